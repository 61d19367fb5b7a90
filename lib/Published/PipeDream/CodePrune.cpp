#include "PipeDream/CodePrune.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace pdc;

static constexpr double infinity = std::numeric_limits<double>::infinity();

namespace {

class Relaxation {
public:
  Relaxation(const CodeStates& states, const std::vector<CodeLevel>& levels, bool straight, double timeMs)
      : states_(states), last_(states.size() - 1), timeMs_(timeMs), paysForEnd_(levels.size() == 1),
        fromStart_(states.size(), 0), toEnd_(states.size(), 0) {
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
    firstSlope_ = slope_;
    if (levels.size() == 1 && !straight)
      for (int q = 2; q <= devices_; ++q) slope_[at(q)] *= levels[0].inner;
    for (int q = 0; q <= devices_; ++q) cap_.push_back(timeMs * bytesPerMs * q / 2);
    order_.resize(states.size());
    std::iota(order_.begin(), order_.end(), 0u);
    std::sort(order_.begin(), order_.end(), [&](unsigned a, unsigned b) { return isEarlier(a, b); });
  }

  /// Drops states; false if no plan is left.
  bool relaxed() {
    for (std::size_t before = order_.size() + 1; order_.size() < before;) {
      before = order_.size();
      forwards();
      if (std::find(order_.begin(), order_.end(), last_) == order_.end()) return false;
      backwards();
      if (before < order_.size() + order_.size() / 8) break;
    }
    return true;
  }

  /// The same with stages that are nested, on one level.
  bool nested() {
    nestedForwards();
    if (std::find(order_.begin(), order_.end(), last_) == order_.end()) return false;
    nestedBackwards();
    return true;
  }

  std::size_t count() const { return order_.size(); }

  std::vector<std::size_t> states() const {
    std::vector<std::size_t> passed(order_.begin(), order_.end());
    std::sort(passed.begin(), passed.end());
    return passed;
  }

  int fromStart(std::size_t state) const { return fromStart_[state]; }
  int toEnd(std::size_t state) const { return toEnd_[state]; }

private:
  static std::size_t at(int q) { return static_cast<std::size_t>(q); }
  /// Whether a first stage of q devices, which pays for no cut, can end with the state.
  bool isFirst(std::size_t state, int q) const {
    return firstSlope_[at(q)] < infinity &&
           states_.timeMs[state] + firstSlope_[at(q)] * states_.weights[state] <= q * timeMs_;
  }
  bool isEarlier(unsigned a, unsigned b) const {
    return states_.timeMs[a] != states_.timeMs[b] ? states_.timeMs[a] < states_.timeMs[b] : a < b;
  }
  bool canEnd(std::size_t state, int q) const { return !paysForEnd_ || states_.cut[state] <= cap_[at(q)]; }
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
        hit = isFirst(state, p);
        for (int q = p - 1; q >= 1 && !hit; --q) hit = value(state, q) <= bound[at(q)] && canEnd(state, q);
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

  /// States by their least devices, with the best value among each for a stage of q devices.
  struct Labelled {
    std::vector<std::vector<unsigned>> states;
    std::vector<std::vector<double>> best;

    Labelled(int devices, double none)
        : states(at(devices) + 1), best(at(devices) + 1, std::vector<double>(at(devices) + 1, none)) {}
  };

  void nestedForwards() {
    Labelled labelled(devices_, -infinity);
    std::vector<unsigned> kept;
    std::sort(order_.begin(), order_.end()); // a state after those that it includes
    for (unsigned state : order_) {
      int p = fromStart_[state];
      while (p + leastToEnd(state) <= devices_ && !followsWith(state, p, labelled)) ++p;
      if (p + leastToEnd(state) > devices_) continue;
      fromStart_[state] = p;
      kept.push_back(state);
      labelled.states[at(p)].push_back(state);
      for (int q = 1; q <= devices_ - p; ++q)
        if (slope_[at(q)] < infinity && states_.cut[state] <= cap_[at(q)])
          labelled.best[at(p)][at(q)] = std::max(labelled.best[at(p)][at(q)], value(state, q));
    }
    keep(kept);
  }

  /// Whether a last stage of some q devices ends with `state` after a state that p - q devices reach.
  bool followsWith(unsigned state, int p, const Labelled& labelled) const {
    if (isFirst(state, p)) return true;
    for (int q = 1; q < p; ++q) {
      if (slope_[at(q)] == infinity || !canEnd(state, q)) continue;
      double least = value(state, q) - q * timeMs_;
      if (labelled.best[at(p - q)][at(q)] < least) continue;
      const std::vector<unsigned>& before = labelled.states[at(p - q)];
      for (auto x = before.rbegin(); x != before.rend(); ++x) // the latest are mostly the best
        if (value(*x, q) >= least && states_.cut[*x] <= cap_[at(q)] && states_.includes(state, *x)) return true;
    }
    return false;
  }

  void nestedBackwards() {
    Labelled labelled(devices_, infinity);
    std::vector<unsigned> kept;
    std::sort(order_.rbegin(), order_.rend());
    for (unsigned state : order_) {
      int p = state == last_ ? 0 : std::max(toEnd_[state], 1);
      while (state != last_ && p + fromStart_[state] <= devices_ && !precedesWith(state, p, labelled)) ++p;
      if (p + fromStart_[state] > devices_) continue;
      toEnd_[state] = p;
      kept.push_back(state);
      labelled.states[at(p)].push_back(state);
      for (int q = 1; q <= devices_ - p; ++q)
        if (slope_[at(q)] < infinity && canEnd(state, q))
          labelled.best[at(p)][at(q)] = std::min(labelled.best[at(p)][at(q)], value(state, q));
    }
    keep(kept);
  }

  /// Whether a stage of some q devices begins with `state` and ends with one from which p - q devices reach the end.
  bool precedesWith(unsigned state, int p, const Labelled& labelled) const {
    for (int q = 1; q <= p; ++q) {
      if (slope_[at(q)] == infinity || states_.cut[state] > cap_[at(q)]) continue;
      double most = value(state, q) + q * timeMs_;
      if (labelled.best[at(p - q)][at(q)] > most) continue;
      const std::vector<unsigned>& after = labelled.states[at(p - q)];
      for (auto x = after.rbegin(); x != after.rend(); ++x)
        if (value(*x, q) <= most && canEnd(*x, q) && states_.includes(*x, state)) return true;
    }
    return false;
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
  std::vector<double> firstSlope_; ///< a_q of first stages
  std::vector<double> slope_;      ///< a_q, infinite where no split has q devices
  std::vector<double> cap_;        ///< bytes
  std::vector<unsigned> order_;    ///< by time, those that are left
  std::vector<int> fromStart_, toEnd_;
};

} // namespace

static constexpr double slack = 1e-9; // sums of the same numbers in different order

CodeFastStates CodeFastStates::sample(const CodeStates& all, std::size_t most) const {
  if (states.size() <= most) return *this;
  constexpr std::size_t each = 8;
  std::vector<std::size_t> places(states.size() - 1);
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(),
                   [&](std::size_t a, std::size_t b) { return all.timeMs[states[a]] < all.timeMs[states[b]]; });
  std::vector<std::size_t> taken = {states.size() - 1};
  std::size_t bins = most / each;
  for (std::size_t bin = 0; bin < bins; ++bin) {
    auto begin = places.begin() + static_cast<std::ptrdiff_t>(bin * places.size() / bins);
    auto end = places.begin() + static_cast<std::ptrdiff_t>((bin + 1) * places.size() / bins);
    std::stable_sort(begin, end, [&](std::size_t a, std::size_t b) { return all.cut[states[a]] < all.cut[states[b]]; });
    taken.insert(taken.end(), begin, std::min(end, begin + each));
  }
  std::sort(taken.begin(), taken.end());
  CodeFastStates some;
  for (std::size_t place : taken) {
    some.states.push_back(states[place]);
    some.fromStart.push_back(fromStart[place]);
    some.toEnd.push_back(toEnd[place]);
  }
  return some;
}

CodeFastStates pdc::fastStates(const CodeStates& states, const std::vector<CodeLevel>& levels, bool straight,
                               double timeMs) {
  CodeFastStates fast;
  Relaxation relaxation(states, levels, straight, timeMs * (1 + 1e-12));
  if (!relaxation.relaxed()) return fast;
  fast.states = relaxation.states();
  for (std::size_t s : fast.states) {
    fast.fromStart.push_back(relaxation.fromStart(s));
    fast.toEnd.push_back(relaxation.toEnd(s));
  }
  return fast;
}

std::vector<std::size_t> pdc::statesOfFastPlans(const CodeStates& states, const std::vector<CodeLevel>& levels,
                                                bool straight, double timeMs, std::size_t enough) {
  Relaxation relaxation(states, levels, straight, timeMs * (1 + slack));
  if (!relaxation.relaxed()) return {};
  if (levels.size() == 1 && relaxation.count() > enough && !relaxation.nested()) return {};
  return relaxation.states();
}
