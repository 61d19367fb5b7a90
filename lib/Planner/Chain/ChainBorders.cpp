#include "Chain/ChainBorders.h"

#include "Chain/ChainSums.h"

#include <algorithm>

using namespace pdc;

ChainBorders::ChainBorders(const CostGraph& graph, const std::vector<SolverProblem>& problems, const SplitLoads& loads,
                           const PlannerOptions& options, const Machine& machine)
    : splits_(loads.count()) {
  const std::size_t places = problems[0].blocks.size() + 1, splits = problems.size();
  leastTrips_.assign(places * (splits + 1), 0);
  likelyTrips_.assign(places * (splits + 1), 0);
  parted_.assign(places * splits, false);
  values_.resize(places * splits);
  gradients_.assign(places * splits, 0);
  std::vector<int> placeOf(graph.nodes.size());
  std::vector<int> placeOfBlock(places);
  for (std::size_t i = 0; i + 1 < places; ++i)
    placeOfBlock[static_cast<std::size_t>(problems[0].dag.order()[i])] = static_cast<int>(i);
  for (std::size_t v = 0; v < placeOf.size(); ++v)
    placeOf[v] = placeOfBlock[static_cast<std::size_t>(problems[0].blockOf[v])];
  const int top = machine.levels() - 1;
  for (int split = 0; split < splits_; ++split) {
    const ChainSums sums(problems[static_cast<std::size_t>(split)], options, machine);
    for (std::size_t j = 1; j + 1 < places; ++j) {
      const std::size_t mixedTrip = j * (splits + 1), ownTrip = mixedTrip + 1 + static_cast<std::size_t>(split);
      leastTrips_[ownTrip] = 2 * (machine.routeLatencyMs(0) + sums.nextBytes[j] / machine.bytesPerMs(0));
      likelyTrips_[ownTrip] = 2 * machine.transferMs(top, sums.cutBytes[j], loads.team(split) * sums.cutBytes[j]);
      // No value is smaller than what a member has of it.
      leastTrips_[mixedTrip] = std::max(leastTrips_[mixedTrip], leastTrips_[ownTrip]);
      likelyTrips_[mixedTrip] = std::max(likelyTrips_[mixedTrip], likelyTrips_[ownTrip]);
      parted_[index(static_cast<int>(j), split)] = !loads.isClean(static_cast<int>(j), split);
    }
    for (const CostTensor& tensor : graph.in(split).tensors)
      if (tensor.isPart && !tensor.to.empty()) addTensor(tensor, split, placeOf, machine, loads.team(split));
  }
}

void ChainBorders::addTensor(const CostTensor& tensor, int split, const std::vector<int>& placeOf,
                             const Machine& machine, int members) {
  const double ms = machine.gatherMs(members, static_cast<double>(tensor.bytes));
  const int from = placeOf[static_cast<std::size_t>(tensor.from)];
  std::vector<int> to;
  for (std::int64_t user : tensor.to) to.push_back(placeOf[static_cast<std::size_t>(user)]);
  const int last = *std::max_element(to.begin(), to.end());
  for (int j = from + 1; j <= last; ++j) {
    parted_[index(j, split)] = true;
    if (std::find(to.begin(), to.end(), j) != to.end()) values_[index(j, split)].push_back({from, ms});
  }
  // A gradient goes from each stage with a user to the next one in front, and to its maker at last: over the border at
  // i if a node behind it is a user, and the one in front of it is one, too, or made the value.
  std::vector<int> users;
  for (std::int64_t user : tensor.gradientUsers()) users.push_back(placeOf[static_cast<std::size_t>(user)]);
  const bool isInOrder = std::is_sorted(users.begin(), users.end());
  for (std::size_t u = 0; u < users.size(); ++u) {
    const int i = users[u];
    const bool isFirst = u == 0 || std::find(users.begin(), users.begin() + static_cast<std::ptrdiff_t>(u), i) ==
                                       users.begin() + static_cast<std::ptrdiff_t>(u);
    const bool leads =
        from == i - 1 || (isInOrder && u > 0 && std::find(users.begin(), users.end(), i - 1) != users.end());
    if (isFirst && i > from && leads) gradients_[index(i, split)] += ms;
  }
}

double ChainBorders::valuesMs(int i, int j, int split) const {
  double ms = 0;
  for (const Value& value : values_[index(j, split)])
    if (value.from >= i) ms += value.ms;
  return ms;
}
