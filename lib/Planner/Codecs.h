// Which of the tensors that cross between the stages of a partition are encoded (CostTensor::codec).
#pragma once

#include "pdc/Cost/CostModel.h"

#include <vector>

namespace pdc {

/// Every tensor that can be encoded crosses in the fewer bytes, and coding takes no time: no choice of codecs makes any
/// partition of `graph` faster than the same partition of this graph is.
CostGraph withFreeCodecs(const CostGraph& graph);

/// What `partition` sees if the tensors of `coded` cross encoded: their bytes, and at the ends of each message the time
/// that coding takes. Others, and those that do not cross, are as they are.
CostGraph withCodecs(const CostGraph& graph, const Partition& partition, const std::vector<bool>& coded);

/// The tensors that are encoded where that makes `partition` fastest; of equally fast choices one that encodes fewer.
/// Exact unless `mostCosts` costs do not suffice for the search: then the best choice found.
std::vector<bool> chooseCodecs(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                               const Partition& partition, int mostCosts = 1 << 14);

/// All that can be encoded.
std::vector<bool> allCodecs(const CostGraph& graph);

/// All that can be encoded and that `plan`, a plan of `graph`, sends from one rank to another.
std::vector<bool> codecsBetweenRanks(const CostGraph& graph, const Plan& plan);

/// Says in `plan`, a plan of `graph`, that the tensors of `coded` cross encoded.
void markCodecs(Plan& plan, const CostGraph& graph, const std::vector<bool>& coded, const EdgeCodec& codec);

} // namespace pdc
