// The search for the best partition, behind an interface that a better search can take over.
#pragma once

#include "pdc/Cost/CostModel.h"

#include <optional>

namespace pdc {

struct Solution {
  Partition partition;
  PlanCost cost;
  double lowerBoundMs = 0; ///< of cost.timeMs over all partitions
  /// That are likely to be executed as fast as the cost model says, where the best one may not be; not all are
  /// feasible.
  std::vector<Partition> likely = {};
};

/// The best feasible partition in the order of docs/PlannerModels.md; nothing if there is none (or the search, which
/// looks at a bounded number of partitions, has not found any).
std::optional<Solution> solve(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options);

} // namespace pdc
