#include "PipeDream/Sosp19Chain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

using namespace pdc;
using namespace pdc::sosp19;

struct ChainSearch::Unit {
  std::size_t k;
  std::int64_t q;
  int from, to;
  std::vector<int> near, late; ///< the first and the last position from which d components may reach `to`
  std::vector<int> cuts;       ///< from, the positions between whose cut fits, to
  std::vector<Counts> alive;   ///< at from + ·
  std::unordered_set<std::int64_t> failed;
  std::vector<Step> steps;
};

std::size_t ChainSearch::KeyHash::operator()(const Key& key) const {
  std::uint64_t hash = 0;
  for (std::int64_t part : key)
    hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15, hash ^= hash >> 31;
  return hash;
}

ChainSearch::ChainSearch(const Problem& problem, const Chain& chain)
    : problem_(problem), chain_(chain), mirror_(chain.reversed()), reach_(problem, chain_),
      mirrorReach_(problem, mirror_), fill_(problem, chain_, reach_), mirrorFill_(problem, mirror_, mirrorReach_) {}

void ChainSearch::setThreshold(double tau) {
  reach_.setThreshold(tau);
  mirrorReach_.setThreshold(tau);
  fill_.thresholdChanged();
  mirrorFill_.thresholdChanged();
  known_.clear();
}

bool ChainSearch::mayStep() {
  if (steps() > lastStep_) stepsLeft_ = 0;
  return --stepsLeft_ >= 0;
}

std::int64_t ChainSearch::steps() const {
  return pairs_ +
         static_cast<std::int64_t>(reach_.steps() + mirrorReach_.steps() + fill_.steps() + mirrorFill_.steps());
}

bool ChainSearch::mayReach(double tau) {
  setThreshold(tau);
  return reach_.reach(problem_.levels.size(), 1, 0) == chain_.size() &&
         fill_.fill(problem_.levels.size(), 1, 0) <= chain_.size();
}

ThresholdRun::Answer ChainSearch::isAlive(double tau, std::int64_t steps) {
  setThreshold(tau);
  lastStep_ = this->steps() + steps;
  Unit unit{problem_.levels.size(), 1, 0, chain_.size(), {}, {}, {}, {}, {}, {}};
  if (!findAlive(unit)) return ThresholdRun::Answer::unknown;
  return unit.alive[0].holds(problem_.levels.back().count) ? ThresholdRun::Answer::feasible
                                                           : ThresholdRun::Answer::infeasible;
}

std::optional<Placement> ChainSearch::place(double tau, std::int64_t steps, bool alongAlive) {
  setThreshold(tau);
  stepsLeft_ = steps;
  lastStep_ = this->steps() + 200 * steps;
  alongAlive_ = alongAlive;
  if (!fits(problem_.levels.size(), 1, 0, chain_.size())) return std::nullopt;
  Placement placement;
  std::vector<Share> shares(problem_.levels.size());
  emit(problem_.levels.size(), 1, 0, chain_.size(), shares, placement);
  return placement;
}

/// Whether the search finds stages on all components of one component of level k.
bool ChainSearch::fits(std::size_t k, std::int64_t q, int from, int to) {
  if (reach_.reach(k, q, from) < to || fill_.fill(k, q, from) > to) return false;
  if (k == 0) return true;
  Key key = {static_cast<std::int64_t>(k), q, from, to};
  if (auto found = known_.find(key); found != known_.end()) return !found->second.empty();

  const Level& level = problem_.levels[k - 1];
  Unit unit{k, q, from, to, {}, {}, {}, {}, {}, {}};
  bool found = tryStage(unit, from, to, level.count);
  if (!found && alongAlive_) {
    found = findAlive(unit) && searchAlive(unit, from, level.count);
  } else if (!found) {
    for (int position : mirrorReach_.far(k, q, chain_.size() - to)) unit.near.push_back(chain_.size() - position);
    for (int position : mirrorFill_.slow(k, q, chain_.size() - to)) unit.late.push_back(chain_.size() - position);
    found = search(unit, from, level.count);
  }
  if (!found) unit.steps.clear();
  known_[key] = std::move(unit.steps);
  return found;
}

bool ChainSearch::tryStage(Unit& unit, int p, int end, std::int64_t m) {
  if (!reach_.syncs(unit.k, unit.q, p, end, m) || !fits(unit.k - 1, unit.q * m, p, end)) return false;
  unit.steps.push_back({end, m});
  return true;
}

/// Covers p → unit.to with exactly `left` components.
bool ChainSearch::search(Unit& unit, int p, std::int64_t left) {
  if (unit.near[left] > p || unit.late[left] < p) return false;
  std::int64_t state = static_cast<std::int64_t>(p) << 32 | left;
  if (unit.failed.count(state) || !mayStep()) return false;
  bool isWhole = p == unit.from && left == problem_.levels[unit.k - 1].count; // was tried
  if (!isWhole && tryStage(unit, p, unit.to, left)) return true;
  for (std::int64_t m = 1; m < left && stepsLeft_ >= 0; ++m) {
    int least = std::max(unit.near[left - m], p + 1), most = std::min(unit.late[left - m], unit.to - 1);
    if (least > most) continue;
    int end = std::min(reach_.stageReach(unit.k, unit.q, p, m), most);
    if (least > end) continue;
    least = std::max(least, fill_.stageFill(unit.k, unit.q, p, m));
    for (end = reach_.lastCut(unit.k, unit.q, end); end >= least && stepsLeft_ >= 0;
         end = reach_.lastCut(unit.k, unit.q, end - 1)) {
      if (!mayStep() || !tryStage(unit, p, end, m)) continue;
      if (search(unit, end, left - m)) return true;
      unit.steps.pop_back();
    }
  }
  unit.failed.insert(state);
  return false;
}

/// The counts from 2 on with which from → to synchronises in time.
ChainSearch::Interval ChainSearch::syncCounts(const Unit& unit, int from, int to) const {
  const Level& level = problem_.levels[unit.k - 1];
  double bytes = chain_.parameterBytes[to] - chain_.parameterBytes[from];
  double share = reach_.limit(unit.q) / (level.syncMsPerByte * bytes); // must not be exceeded; infinite without bytes
  auto syncs = [&](std::int64_t m) { return reach_.syncs(unit.k, unit.q, from, to, m); };
  Interval counts{2, level.count};
  if (problem_.isOf2018) { // (m-1)/m² falls from m = 2 on
    if (share < 0.25)
      counts.first = static_cast<std::int64_t>((1 + std::sqrt(1 - 4 * share)) / (2 * share) * (1 - 1e-9));
    counts.first = std::max<std::int64_t>(counts.first, 2);
    while (counts.first <= counts.last && !syncs(counts.first)) ++counts.first;
  } else { // (m-1)/m rises
    if (share < 1)
      counts.last = std::min(counts.last, static_cast<std::int64_t>(std::min(1 / (1 - share) * (1 + 1e-9), 1e15)));
    while (counts.last >= 2 && !syncs(counts.last)) --counts.last;
  }
  return counts;
}

/// Those of them that may compute from → to and be used up on it.
ChainSearch::Interval ChainSearch::stageCounts(const Unit& unit, int from, int to) {
  const Level& level = problem_.levels[unit.k - 1];
  Interval counts = syncCounts(unit, from, to);
  double one = reach_.limit(unit.q) * static_cast<double>(level.devicesInside);
  double needed = (chain_.computeMs[to] - chain_.computeMs[from]) / one * (1 - 1e-9);
  counts.first = std::max(counts.first, static_cast<std::int64_t>(std::min(needed, 1e15)));
  for (; counts.first <= counts.last; ++counts.first) {
    std::int64_t q = unit.q * counts.first;
    if (reach_.reach(unit.k - 1, q, from) >= to && fill_.fill(unit.k - 1, q, from) <= to) break;
  }
  return counts;
}

/// Fills in unit.cuts and unit.alive, from the back. False if that takes too long.
bool ChainSearch::findAlive(Unit& unit) {
  std::int64_t count = problem_.levels[unit.k - 1].count;
  unit.cuts = {unit.to};
  for (int p = reach_.lastCut(unit.k, unit.q, unit.to - 1); p > unit.from; p = reach_.lastCut(unit.k, unit.q, p - 1))
    unit.cuts.push_back(p);
  unit.cuts.push_back(unit.from);
  std::reverse(unit.cuts.begin(), unit.cuts.end());
  unit.alive.assign(static_cast<std::size_t>(unit.to - unit.from) + 1, Counts(count));
  unit.alive.back().insert(0);
  for (std::size_t i = unit.cuts.size() - 1; i-- > 0;) {
    int p = unit.cuts[i], one = reach_.reach(unit.k - 1, unit.q, p), least = fill_.fill(unit.k - 1, unit.q, p);
    int most = reach_.reach(unit.k - 1, unit.q * count, p);
    Counts& alive = unit.alive[static_cast<std::size_t>(p - unit.from)];
    for (std::size_t j = i + 1; j < unit.cuts.size() && unit.cuts[j] <= most; ++j) {
      int end = unit.cuts[j];
      pairs_ += static_cast<std::int64_t>(1 + alive.words() / 4);
      if (steps() > lastStep_) return false;
      const Counts& rest = unit.alive[static_cast<std::size_t>(end - unit.from)];
      bool fitsOne = least <= end && end <= one;
      if (fitsOne) alive.addShifted(rest, 1);
      Interval counts = syncCounts(unit, p, end);
      if (counts.first > counts.last && end > one) break; // what goes further is heavier still
      if (counts.first > counts.last || rest.empty()) continue;
      counts = stageCounts(unit, p, end);
      alive.addInterval(rest, counts.first, counts.last);
    }
  }
  return true;
}

/// As `search`, along what is alive.
bool ChainSearch::searchAlive(Unit& unit, int p, std::int64_t left) {
  if (p == unit.to) return left == 0;
  if (!unit.alive[static_cast<std::size_t>(p - unit.from)].holds(left)) return false;
  std::int64_t state = static_cast<std::int64_t>(p) << 32 | left;
  if (unit.failed.count(state) || !mayStep()) return false;
  std::size_t here =
      static_cast<std::size_t>(std::lower_bound(unit.cuts.begin(), unit.cuts.end(), p) - unit.cuts.begin());
  int most = reach_.reach(unit.k - 1, unit.q * left, p);
  std::size_t last = here + 1;
  while (last + 1 < unit.cuts.size() && unit.cuts[last + 1] <= most) ++last;
  for (std::size_t j = last; j > here && stepsLeft_ >= 0; --j) {
    int end = unit.cuts[j];
    const Counts& rest = unit.alive[static_cast<std::size_t>(end - unit.from)];
    auto attempt = [&](std::int64_t m) {
      if (m > left || !rest.holds(left - m) || !mayStep() || !tryStage(unit, p, end, m)) return false;
      if (searchAlive(unit, end, left - m)) return true;
      unit.steps.pop_back();
      return false;
    };
    if (attempt(1)) return true;
    if (rest.empty()) continue;
    Interval counts = stageCounts(unit, p, end);
    for (std::int64_t m = counts.first; m <= std::min(counts.last, left); ++m)
      if (attempt(m)) return true;
  }
  unit.failed.insert(state);
  return false;
}

void ChainSearch::emit(std::size_t k, std::int64_t q, int from, int to, std::vector<Share>& shares,
                       Placement& placement) const {
  if (k == 0) {
    placement.push_back({{chain_.order.begin() + from, chain_.order.begin() + to}, shares});
    return;
  }
  const std::vector<Step>& steps = known_.at({static_cast<std::int64_t>(k), q, from, to});
  int number = 0, begin = from;
  for (const Step& step : steps) {
    shares[k - 1] = {number++, step.count};
    emit(k - 1, q * step.count, begin, step.end, shares, placement);
    begin = step.end;
  }
}
