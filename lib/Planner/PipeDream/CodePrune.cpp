#include "PipeDream/CodePrune.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace pdc;

static constexpr double infinity = std::numeric_limits<double>::infinity();

namespace {

class Relaxation {
public:
  Relaxation(const CodeStates& states, std::size_t last, const std::vector<CodeLevel>& levels, bool straight,
             double timeMs)
      : states_(states), last_(last), timeMs_(timeMs), paysForEnd_(levels.size() == 1), fromStart_(states.size(), 0),
        toEnd_(states.size(), 0) {
    for (const CodeLevel& level : levels) devices_ *= level.count;
    slope_.assign(static_cast<std::size_t>(devices_) + 1, infinity);
    slope_[1] = 0;
    double bytesPerMs = 0, parts = 1;
    for (const CodeLevel& level : levels) {
      bytesPerMs = std::max(bytesPerMs, level.bytesPerMs);
      if (straight) continue;
      // Slopes of this level on top of every split among the levels inside; the first stage's share of the sync is the
      // least there is.
      std::vector<double> inside = slope_;
      for (int q = 1; q <= static_cast<int>(parts); ++q)
        for (int m = 2; m <= level.count; ++m) {
          double slope = inside[at(q)] + q * 4.0 * (m - 1) / (level.bytesPerMs * m) / level.inner;
          slope_[at(q * m)] = std::min(slope_[at(q * m)], slope);
        }
      parts *= level.count;
    }
    for (int q = 0; q <= devices_; ++q) cap_.push_back(timeMs * bytesPerMs * q / 2);
    order_.resize(states.size());
    std::iota(order_.begin(), order_.end(), 0u);
    std::sort(order_.begin(), order_.end(), [&](unsigned a, unsigned b) { return isEarlier(a, b); });
  }

  std::vector<std::size_t> run() {
    for (std::size_t before = order_.size() + 1; order_.size() < before;) {
      before = order_.size();
      forwards();
      if (std::find(order_.begin(), order_.end(), last_) == order_.end()) return {};
      backwards();
      if (before < order_.size() + order_.size() / 8) break;
    }
    std::vector<std::size_t> passed(order_.begin(), order_.end());
    std::sort(passed.begin(), passed.end());
    return passed;
  }

private:
  static std::size_t at(int q) { return static_cast<std::size_t>(q); }
  bool isEarlier(unsigned a, unsigned b) const {
    return states_.timeMs[a] != states_.timeMs[b] ? states_.timeMs[a] < states_.timeMs[b] : a < b;
  }
  bool canEnd(std::size_t state, int q) const {
    return !paysForEnd_ || state == last_ || states_.cut[state] <= cap_[at(q)];
  }
  double value(std::size_t state, int q) const {
    return states_.timeMs[state] + slope_[at(q)] * states_.weights[state];
  }

  /// Least devices from the start, in fromStart_; keeps the states that have enough left for what follows.
  void forwards() {
    std::vector<unsigned> open = order_, reached;
    // farthest_[p][q]: the largest value of a state that p devices reach and a stage of q can follow.
    std::vector<std::vector<double>> farthest(at(devices_) + 1, std::vector<double>(at(devices_) + 1, -infinity));
    for (int p = 1; p <= devices_ && !open.empty(); ++p) {
      std::vector<double> bound(at(p) + 1, -infinity);
      double latest = -infinity;
      for (int q = 1; q <= p; ++q) {
        if (slope_[at(q)] == infinity) continue;
        bound[at(q)] = p == q ? q * timeMs_ : q * timeMs_ + farthest[at(p - q)][at(q)];
        latest = std::max(latest, bound[at(q)]);
      }
      if (p > 1) farthest[at(p)] = farthest[at(p - 1)];
      std::size_t kept = 0, i = 0;
      for (; i < open.size() && states_.timeMs[open[i]] <= latest; ++i) {
        unsigned state = open[i];
        bool hit = false;
        for (int q = p; q >= 1 && !hit; --q) // a first stage pays for no cut
          hit = value(state, q) <= bound[at(q)] && (q == p || canEnd(state, q));
        if (!hit) {
          open[kept++] = state;
          continue;
        }
        if (p + leastToEnd(state) > devices_) continue;
        fromStart_[state] = p;
        reached.push_back(state);
        for (int q = 1; q <= devices_ - p; ++q)
          if (slope_[at(q)] < infinity && states_.cut[state] <= cap_[at(q)])
            farthest[at(p)][at(q)] = std::max(farthest[at(p)][at(q)], value(state, q));
      }
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(kept), open.begin() + static_cast<std::ptrdiff_t>(i));
    }
    keep(reached);
  }

  int leastToEnd(std::size_t state) const {
    double left = states_.timeMs[last_] - states_.timeMs[state];
    return std::max(toEnd_[state], static_cast<int>(std::ceil(left / timeMs_)));
  }

  void backwards() {
    std::vector<unsigned> open(order_.rbegin(), order_.rend()), reached = {static_cast<unsigned>(last_)};
    std::erase(open, last_);
    toEnd_[last_] = 0;
    // nearest[p][q]: the least value of a state from which p devices reach the end and that can end a stage of q.
    std::vector<std::vector<double>> nearest(at(devices_) + 1, std::vector<double>(at(devices_) + 1, infinity));
    for (int q = 1; q <= devices_; ++q)
      if (slope_[at(q)] < infinity) nearest[0][at(q)] = value(last_, q);
    for (int p = 1; p < devices_ && !open.empty(); ++p) {
      std::vector<double> bound(at(p) + 1, infinity);
      double earliest = infinity;
      for (int q = 1; q <= p; ++q) {
        if (slope_[at(q)] == infinity) continue;
        bound[at(q)] = nearest[at(p - q)][at(q)] - q * timeMs_;
        earliest = std::min(earliest, bound[at(q)] - slope_[at(q)] * states_.weights[last_]);
      }
      nearest[at(p)] = nearest[at(p - 1)];
      std::size_t kept = 0, i = 0;
      for (; i < open.size() && states_.timeMs[open[i]] >= earliest; ++i) {
        unsigned state = open[i];
        bool hit = false;
        for (int q = p; q >= 1 && !hit; --q)
          hit = slope_[at(q)] < infinity && value(state, q) >= bound[at(q)] && states_.cut[state] <= cap_[at(q)];
        if (!hit) {
          open[kept++] = state;
          continue;
        }
        if (p + fromStart_[state] > devices_) continue;
        toEnd_[state] = p;
        reached.push_back(state);
        for (int q = 1; q <= devices_ - p; ++q)
          if (slope_[at(q)] < infinity && canEnd(state, q))
            nearest[at(p)][at(q)] = std::min(nearest[at(p)][at(q)], value(state, q));
      }
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(kept), open.begin() + static_cast<std::ptrdiff_t>(i));
    }
    keep(reached);
  }

  void keep(std::vector<unsigned>& reached) {
    std::sort(reached.begin(), reached.end(), [&](unsigned a, unsigned b) { return isEarlier(a, b); });
    order_ = std::move(reached);
  }

  const CodeStates& states_;
  std::size_t last_;
  double timeMs_;
  bool paysForEnd_; ///< whether every later stage does; with several levels, not the first of a level inside
  int devices_ = 1;
  std::vector<double> slope_;   ///< a_q, infinite where no split has q devices
  std::vector<double> cap_;     ///< bytes
  std::vector<unsigned> order_; ///< by time, those that are left
  std::vector<int> fromStart_, toEnd_;
};

} // namespace

std::vector<std::size_t> pdc::statesOfFastPlans(const CodeStates& states, std::size_t last,
                                                const std::vector<CodeLevel>& levels, bool straight, double timeMs) {
  double slack = 1e-9; // sums of the same numbers in different order
  return Relaxation(states, last, levels, straight, timeMs * (1 + slack)).run();
}
