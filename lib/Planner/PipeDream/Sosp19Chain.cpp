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

bool ChainSearch::mayReach(double tau) {
  reach_.setThreshold(tau);
  fill_.thresholdChanged();
  return reach_.reach(problem_.levels.size(), 1, 0) == chain_.size() &&
         fill_.fill(problem_.levels.size(), 1, 0) <= chain_.size();
}

std::optional<Placement> ChainSearch::place(double tau, std::int64_t steps) {
  reach_.setThreshold(tau);
  mirrorReach_.setThreshold(tau);
  fill_.thresholdChanged();
  mirrorFill_.thresholdChanged();
  known_.clear();
  stepsLeft_ = steps;
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
  Unit unit{k, q, from, to, {}, {}, {}, {}};
  bool found = tryStage(unit, from, to, level.count);
  if (!found) {
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
  if (unit.failed.count(state) || --stepsLeft_ < 0) return false;
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
      --stepsLeft_;
      if (!tryStage(unit, p, end, m)) continue;
      if (search(unit, end, left - m)) return true;
      unit.steps.pop_back();
    }
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
