// The plan that everyone compares with.
#pragma once

#include "pdc/Published/Published.h"

#include <optional>

namespace pdc {

/// Time per minibatch, in ms, of one stage on all devices of the cluster under options.costModel, whatever memory that
/// takes. Nothing where there is no such plan: several levels under `pipedream-2018`, a schedule whose ranks
/// host several stages.
std::optional<double> dataParallelTime(const CostGraph& graph, const Cluster& cluster, PublishedOptions options);

} // namespace pdc
