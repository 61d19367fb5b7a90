#include "PipeDream/Sosp19Rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

using namespace pdc;
using namespace pdc::sosp19;

namespace {

double sumOver(const NodeSet& set, const std::vector<double>& values) {
  double sum = 0;
  set.forEach([&](std::size_t unit) { sum += values[unit]; });
  return sum;
}

} // namespace

RowSearch::RowSearch(const Problem& problem, const DownSets& downSets)
    : problem_(problem), slack_(1e-11 + 1e-15 * static_cast<double>(problem.devices)),
      rows_(problem.levels.size() + 1) {
  std::vector<double> compute(downSets.size());
  std::vector<std::size_t> order(downSets.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = 0; i < downSets.size(); ++i) compute[i] = sumOver(downSets[i], problem.computeMs);
  // Down-sets come by size, so a stable sort by computation keeps every set behind its subsets: adding the same numbers
  // in the same order and more of them between gives no smaller sum, rounding included.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return compute[a] < compute[b]; });
  for (std::size_t i : order) {
    const NodeSet& set = downSets[i];
    sets_.push_back(set);
    computeMs_.push_back(compute[i]);
    parameterBytes_.push_back(sumOver(set, problem.parameterBytes));
    double cut = 0;
    for (const UnitTensor& tensor : problem.tensors)
      if (set.contains(static_cast<std::size_t>(tensor.from)) &&
          std::any_of(tensor.to.begin(), tensor.to.end(),
                      [&](int to) { return !set.contains(static_cast<std::size_t>(to)); }))
        cut += tensor.bytes;
    cutBytes_.push_back(cut);
  }
}

RowSearch::Result RowSearch::run(double tau, std::int64_t pairs, const std::function<bool()>& isOver) {
  limit_ = tau * (1 + slack_);
  pairsLeft_ = pairs;
  isOver_ = &isOver;
  for (auto& rows : rows_) rows.clear();
  std::size_t top = problem_.levels.size();
  int all = static_cast<int>(sets_.size()) - 1;
  Result result;
  bool isFeasible = inRow(top, 1, 0, all);
  pairs_ = pairs - pairsLeft_;
  if (pairsLeft_ < 0) return result;
  result.answer = isFeasible ? ThresholdRun::Answer::feasible : ThresholdRun::Answer::infeasible;
  if (!isFeasible) return result;
  pairsLeft_ = std::numeric_limits<std::int64_t>::max(); // what is left is only to look up
  isOver_ = nullptr;
  std::vector<Share> shares(top);
  emit(top, 1, 0, all, shares, result.placement);
  return result;
}

bool RowSearch::mayGoOn() {
  if (pairsLeft_ % 4096 == 0 && isOver_ && (*isOver_)()) pairsLeft_ = 0;
  return --pairsLeft_ >= 0;
}

int RowSearch::windowEnd(int from, double computeMs) const {
  auto end = std::upper_bound(computeMs_.begin() + from, computeMs_.end(), computeMs_[from] + computeMs);
  return static_cast<int>(end - computeMs_.begin());
}

bool RowSearch::cutFits(std::size_t k, std::int64_t q, int at) const {
  return problem_.levels[k - 1].cutMsPerByte * cutBytes_[at] <= static_cast<double>(q) * limit_;
}

bool RowSearch::inRow(std::size_t k, std::int64_t q, int from, int to) {
  double capacity = static_cast<double>(q) * limit_;
  if (k == 0) return computeMs_[to] - computeMs_[from] <= capacity;
  const Level& level = problem_.levels[k - 1];
  int end = windowEnd(from, capacity * static_cast<double>(level.count * level.devicesInside));
  if (to >= end) return false;
  std::uint64_t key = static_cast<std::uint64_t>(q) << 32 | static_cast<std::uint32_t>(from);
  auto found = rows_[k].find(key);
  if (found == rows_[k].end()) {
    Row row;
    for (const Counts& each : counts(k, q, from, end)) row.holds.push_back(each.holds(level.count));
    found = rows_[k].emplace(key, std::move(row)).first;
  }
  return found->second.holds[static_cast<std::size_t>(to - from)];
}

/// One replica: no synchronisation.
bool RowSearch::allowsOne(std::size_t k, std::int64_t q, int from, int to) {
  return inRow(k - 1, q, from, to);
}

/// The counts from 2 to `most` that the stage from → to can have.
RowSearch::Interval RowSearch::allowed(std::size_t k, std::int64_t q, int from, int to, std::int64_t most) {
  const Level& level = problem_.levels[k - 1];
  double weights = level.syncMsPerByte * (parameterBytes_[to] - parameterBytes_[from]);
  double limit = static_cast<double>(q) * limit_;
  auto syncs = [&](std::int64_t m) { return weights * problem_.syncShare(static_cast<double>(m)) <= limit; };
  auto computes = [&](std::int64_t m) { return inRow(k - 1, q * m, from, to); };
  double needed = (computeMs_[to] - computeMs_[from]) / (limit * static_cast<double>(level.devicesInside));
  auto first = std::max<std::int64_t>(2, static_cast<std::int64_t>(std::min(needed * (1 - 1e-9), 1e15)));
  std::int64_t last = most;
  if (problem_.isOf2018) {
    while (first <= last && !syncs(first)) ++first;
  } else {
    while (last >= first && !syncs(last)) --last;
  }
  while (first <= last && !computes(first)) ++first;
  return {first, last};
}

/// bits(J) of row(k, q, from) for J = from … last-1.
std::vector<Counts> RowSearch::counts(std::size_t k, std::int64_t q, int from, int last) {
  const Level& level = problem_.levels[k - 1];
  double perComponent = static_cast<double>(q) * limit_ * static_cast<double>(level.devicesInside);
  std::vector<Counts> bits(static_cast<std::size_t>(last - from), Counts(level.count));
  bits[0].insert(0);
  for (int at = from; at < last && pairsLeft_ >= 0; ++at) {
    const Counts source = bits[static_cast<std::size_t>(at - from)];
    if (source.empty() || (at > from && !cutFits(k, q, at))) continue;
    std::int64_t used = 0;
    while (!source.holds(used)) ++used;
    std::int64_t most = level.count - used;
    if (most == 0) continue;
    int end = std::min(last, windowEnd(at, static_cast<double>(most) * perComponent));
    for (int to = at + 1; to < end && mayGoOn(); ++to) {
      if (!sets_[static_cast<std::size_t>(to)].includes(sets_[static_cast<std::size_t>(at)])) continue;
      Counts& target = bits[static_cast<std::size_t>(to - from)];
      if (allowsOne(k, q, at, to)) target.addShifted(source, 1);
      Interval interval = allowed(k, q, at, to, most);
      target.addInterval(source, interval.first, interval.last);
    }
  }
  return bits;
}

void RowSearch::emit(std::size_t k, std::int64_t q, int from, int to, std::vector<Share>& shares,
                     Placement& placement) {
  if (k == 0) {
    NodeSet stage = sets_[static_cast<std::size_t>(to)] - sets_[static_cast<std::size_t>(from)];
    placement.push_back({{}, shares});
    stage.forEach([&](std::size_t unit) { placement.back().units.push_back(static_cast<int>(unit)); });
    return;
  }
  // Backwards from all components at `to`.
  struct Step {
    int begin, end;
    std::int64_t count;
  };
  std::vector<Step> steps;
  std::vector<Counts> bits = counts(k, q, from, to + 1);
  std::int64_t left = problem_.levels[k - 1].count;
  for (int end = to; end > from;) {
    auto isStep = [&](int begin, std::int64_t m) {
      if (!bits[static_cast<std::size_t>(begin - from)].holds(left - m) || (begin > from && !cutFits(k, q, begin)))
        return false;
      if (m == 1) return allowsOne(k, q, begin, end);
      Interval interval = allowed(k, q, begin, end, m);
      return interval.first <= m && interval.last == m;
    };
    Step step{-1, end, 0};
    for (int begin = from; begin < end && step.begin < 0; ++begin) {
      if (!sets_[static_cast<std::size_t>(end)].includes(sets_[static_cast<std::size_t>(begin)])) continue;
      for (std::int64_t m = 1; m <= left && step.begin < 0; ++m)
        if (isStep(begin, m)) step = {begin, end, m};
    }
    steps.push_back(step);
    left -= step.count;
    end = step.begin;
  }
  std::reverse(steps.begin(), steps.end());
  for (std::size_t s = 0; s < steps.size(); ++s) {
    shares[k - 1] = {static_cast<int>(s), steps[s].count};
    emit(k - 1, q * steps[s].count, steps[s].begin, steps[s].end, shares, placement);
  }
}
