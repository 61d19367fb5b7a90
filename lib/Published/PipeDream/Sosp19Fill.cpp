#include "PipeDream/Sosp19Fill.h"

#include <algorithm>

using namespace pdc;
using namespace pdc::sosp19;

Fill::Fill(const Problem& problem, const Chain& chain, const Reach& reach)
    : problem_(problem), chain_(chain), reach_(reach), lowerCut_(chain.cutBytes.size()) {
  std::size_t n = chain.order.size();
  lightest_.emplace_back();
  for (std::size_t p = 0; p < n; ++p) lightest_[0].push_back(chain.parameterBytes[p + 1] - chain.parameterBytes[p]);
  for (std::size_t width = 1; 2 * width <= n; width *= 2) {
    std::vector<double> wider;
    for (std::size_t p = 0; p + 2 * width <= n; ++p)
      wider.push_back(std::min(lightest_.back()[p], lightest_.back()[p + width]));
    lightest_.push_back(std::move(wider));
  }
  lowerCut_[n] = chain.size() + 1;
  for (std::size_t p = n; p-- > 0;) {
    int after = static_cast<int>(p) + 1;
    while (after < chain.size() && chain.cutBytes[after] >= chain.cutBytes[p]) after = lowerCut_[after];
    lowerCut_[p] = after;
  }
}

/// The first position from p whose cut takes at most q·τ; the end always does.
int Fill::nextCut(std::size_t k, std::int64_t q, int p) const {
  double bytes = reach_.limit(q) / problem_.levels[k - 1].cutMsPerByte;
  while (p < chain_.size() && chain_.cutBytes[p] > bytes) p = lowerCut_[p];
  return p;
}

/// The first unit from p with so few parameters.
int Fill::nextLight(double bytes, int p) const {
  std::size_t b = 0;
  // Leaps that double while nothing is light enough, then halve.
  while (b < lightest_.size() && static_cast<std::size_t>(p) < lightest_[b].size() && lightest_[b][p] > bytes)
    p += 1 << b++;
  while (b-- > 0)
    while (static_cast<std::size_t>(p) < lightest_[b].size() && lightest_[b][p] > bytes) p += 1 << b;
  return p < chain_.size() ? p : none();
}

double Fill::mostBytes(std::size_t k, std::int64_t q, std::int64_t m) const {
  return reach_.limit(q) / (problem_.levels[k - 1].syncMsPerByte * problem_.syncShare(static_cast<double>(m)));
}

int Fill::stageFill(std::size_t k, std::int64_t q, int p, std::int64_t m) {
  ++steps_;
  if (m == 1) return fill(k - 1, q, p);
  double bytes = mostBytes(k, q, m);
  int light = nextLight(bytes, p); // a stage has a unit, and each of its units is light
  if (light == none()) return none();
  if (k == 1) return light + 1;
  int end = none();
  for (int tries = 0; tries < 16; ++tries) {
    end = fill(k - 1, q * m, light);
    if (end == none() || chain_.parameterBytes[end] - chain_.parameterBytes[light] <= bytes) return end;
    light = nextLight(bytes, light + 1);
    if (light == none()) return none();
  }
  return end;
}

int Fill::fill(std::size_t k, std::int64_t q, int p) {
  if (p >= chain_.size()) return none();
  if (k == 0) return p + 1;
  std::uint64_t key = (static_cast<std::uint64_t>(q) * 8 + k) << 32 | static_cast<std::uint32_t>(p);
  if (auto found = known_.find(key); found != known_.end()) return found->second;
  int result = stageFill(k, q, p, problem_.levels[k - 1].count);
  if (result > p + 1) result = slow(k, q, p).back();
  known_[key] = result;
  return result;
}

std::vector<int> Fill::slow(std::size_t k, std::int64_t q, int i) {
  std::int64_t count = problem_.levels[k - 1].count;
  std::vector<int> slow(static_cast<std::size_t>(count) + 1, none());
  slow[0] = i;
  for (std::int64_t d = 0; d < count; ++d) {
    int p = d == 0 ? i : slow[d] > chain_.size() ? chain_.size() : nextCut(k, q, slow[d]);
    if (p >= chain_.size()) continue;
    for (std::int64_t m = 1; d + m <= count; ++m) {
      if (slow[d + m] <= p + 1) continue;
      int end = stageFill(k, q, p, m);
      slow[d + m] = std::min(slow[d + m], end);
      if (m == 1 || problem_.isOf2018) continue;
      // No unit from here on is light enough for as many replicas, hence not for more.
      if (nextLight(mostBytes(k, q, m), p) == none()) break;
      if (k > 1) continue;
      // A device needs no more than one unit: the same answer while this unit is light enough.
      double bytes = lightest_[0][static_cast<std::size_t>(end) - 1];
      while (d + m < count && mostBytes(k, q, m + 1) >= bytes)
        if (++m, slow[d + m] > end) slow[d + m] = end;
    }
  }
  return slow;
}
