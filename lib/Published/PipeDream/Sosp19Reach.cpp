#include "PipeDream/Sosp19Reach.h"

#include <algorithm>
#include <bit>
#include <cmath>

using namespace pdc;
using namespace pdc::sosp19;

PositionTable::PositionTable(const std::vector<double>& values) : values_(values) {
  std::size_t count = 2 * values.size();
  double range = values.back() - values.front();
  if (range > 0) perValue_ = static_cast<double>(count) / range;
  // buckets_[b]: how many values lie in buckets before b.
  buckets_.assign(count + 3, 0);
  for (double value : values) ++buckets_[static_cast<std::size_t>((value - values.front()) * perValue_) + 1];
  for (std::size_t b = 1; b < buckets_.size(); ++b) buckets_[b] += buckets_[b - 1];
}

int PositionTable::last(double value) const {
  double place = (value - values_.front()) * perValue_;
  if (!(place < static_cast<double>(buckets_.size() - 2)) || perValue_ == 0)
    return static_cast<int>(values_.size()) - 1;
  auto bucket = static_cast<std::size_t>(place);
  auto first = values_.begin() + buckets_[bucket], end = values_.begin() + buckets_[bucket + 1];
  return static_cast<int>(std::upper_bound(first, end, value) - values_.begin()) - 1;
}

Reach::Reach(const Problem& problem, const Chain& chain)
    : problem_(problem), chain_(chain), byCompute_(chain.computeMs), byParameters_(chain.parameterBytes),
      known_(std::bit_ceil(std::min<std::size_t>(64 * chain.cutBytes.size(), 1 << 18))) {
  // Differences of prefix sums are off by rounding of the whole sum, which a device has only its part of.
  slack_ = 1e-11 + 1e-15 * static_cast<double>(problem.devices);
  lowerCut_.assign(chain.cutBytes.size(), 0);
  for (std::size_t p = 1; p < lowerCut_.size(); ++p) {
    int before = static_cast<int>(p) - 1;
    while (before > 0 && chain.cutBytes[before] >= chain.cutBytes[p]) before = lowerCut_[before];
    lowerCut_[p] = before;
  }
}

void Reach::setThreshold(double tau) {
  limit_ = tau * (1 + slack_);
  ++epoch_;
}

int Reach::computeReach(double q, int p) const {
  return byCompute_.last(chain_.computeMs[p] + q * limit_);
}

int Reach::syncReach(std::size_t k, double q, int p, double m) const {
  if (m == 1) return chain_.size();
  double bytes = q * limit_ / (problem_.levels[k - 1].syncMsPerByte * problem_.syncShare(m));
  return byParameters_.last(chain_.parameterBytes[p] + bytes);
}

bool Reach::syncs(std::size_t k, std::int64_t q, int from, int to, std::int64_t m) const {
  double bytes = chain_.parameterBytes[to] - chain_.parameterBytes[from];
  return problem_.levels[k - 1].syncMsPerByte * problem_.syncShare(static_cast<double>(m)) * bytes <=
         static_cast<double>(q) * limit_;
}

int Reach::lastCut(std::size_t k, std::int64_t q, int p) const {
  double bytes = static_cast<double>(q) * limit_ / problem_.levels[k - 1].cutMsPerByte;
  while (p > 0 && chain_.cutBytes[p] > bytes) p = lowerCut_[p];
  return p;
}

int Reach::stageReach(std::size_t k, std::int64_t q, int p, std::int64_t m) {
  int sync = syncReach(k, static_cast<double>(q), p, static_cast<double>(m));
  return sync == p ? p : std::min(sync, reach(k - 1, q * m, p));
}

/// Whether one stage in each level, on all components, gets to `end`.
bool Reach::replicationReaches(std::size_t k, std::int64_t q, int p, int end) {
  for (; k > 0; q *= problem_.levels[k - 1].count, --k)
    if (!syncs(k, q, p, end, problem_.levels[k - 1].count)) return false;
  return computeReach(static_cast<double>(q), p) >= end;
}

int Reach::reach(std::size_t k, std::int64_t q, int p) {
  ++steps_;
  if (k == 0) return computeReach(static_cast<double>(q), p);
  const Level& level = problem_.levels[k - 1];
  int bound = computeReach(static_cast<double>(q) * static_cast<double>(level.count * level.devicesInside), p);
  if (bound == p || replicationReaches(k, q, p, bound)) return bound;
  std::uint64_t key = (static_cast<std::uint64_t>(q) * 8 + k) << 32 | static_cast<std::uint32_t>(p);
  std::uint64_t hash = key * 0x9e3779b97f4a7c15;
  std::size_t slot = (hash ^ hash >> 29) >> 8 & (known_.size() - 1);
  if (known_[slot].key == key && known_[slot].epoch == epoch_) return known_[slot].reach;
  int result = far(k, q, p).back();
  known_[slot] = {key, epoch_, result};
  return result;
}

/// The next number of components after m that may compute more than p → reached.
std::int64_t Reach::nextCount(std::size_t k, std::int64_t q, int p, int reached, std::int64_t m) const {
  double one = static_cast<double>(q) * static_cast<double>(problem_.levels[k - 1].devicesInside) * limit_;
  double needed = (chain_.computeMs[reached + 1] - chain_.computeMs[p]) / one;
  return std::max(m + 1, static_cast<std::int64_t>(std::min(needed * (1 - 1e-9), 1e15)));
}

std::vector<int> Reach::far(std::size_t k, std::int64_t q, int i) {
  const Level& level = problem_.levels[k - 1];
  std::vector<int> far(static_cast<std::size_t>(level.count) + 1, i);
  int source = -1;
  // Up to `covered` the stage from `cover` (reached with coverCount devices) can have any number of devices, and so
  // gets as far as its computation allows. A later start gets no further with as many, if it did not get ahead of that.
  int cover = -1, covered = -1;
  std::int64_t coverCount = 0;
  for (std::int64_t d = 0; d < level.count; ++d) {
    if (d > 0) far[d] = std::max(far[d], far[d - 1]);
    if (far[d] == chain_.size()) {
      std::fill(far.begin() + d, far.end(), chain_.size());
      break;
    }
    int p = d == 0 ? i : lastCut(k, q, far[d]);
    if (p <= source || p < i) continue;
    source = p;
    int reached = p;
    if (k == 1 && !problem_.isOf2018) {
      double ahead = static_cast<double>(q * (d - coverCount)) * limit_;
      bool isBehind = cover >= 0 && chain_.computeMs[p] <= chain_.computeMs[cover] + ahead;
      if (isBehind) reached = std::max(reached, covered);
      int end = syncReach(k, static_cast<double>(q), p, static_cast<double>(level.count));
      if (end > covered || !isBehind) cover = p, covered = end, coverCount = d;
      if (reached == chain_.size()) continue;
    }
    for (std::int64_t m = reached > p ? nextCount(k, q, p, reached, 0) : 1; d + m <= level.count;
         m = nextCount(k, q, p, reached, m)) {
      ++steps_;
      reached = std::max(reached, far[d + m]);
      int sync = syncReach(k, static_cast<double>(q), p, static_cast<double>(m));
      int compute = computeReach(static_cast<double>(q * m) * static_cast<double>(level.devicesInside), p);
      if (std::min(sync, compute) > reached) {
        reached = k == 1 ? std::min(sync, compute) : std::min(sync, std::max(reached, reach(k - 1, q * m, p)));
        far[d + m] = reached;
      }
      if (reached == chain_.size()) break;
      // More replicas only compute more; they synchronise less, except in the model of 2018.
      if (m > 1 && sync <= reached && !problem_.isOf2018) break;
    }
  }
  for (std::size_t d = 1; d < far.size(); ++d) far[d] = std::max(far[d], far[d - 1]);
  return far;
}
