// From a cost graph and a cluster to the fastest plan: a partition of the graph into pipeline stages with replication
// (PipeDream, arXiv 1806.03377), within the memory of every device, with a proof of how far it is from the best.
#pragma once

#include "pdc/Plan/CostGraph.h"
#include "pdc/Plan/Plan.h"
#include "pdc/Plan/PlannerOptions.h"

#include <optional>

namespace pdc {

/// The fastest plan on at most cluster.deviceCount() devices, under pdc's own cost model (pdc/Cost/CostModel.h,
/// docs/PlannerModels.md). Stages are differences of down-sets of the graph in a chain. Equally fast plans are ordered
/// by peak memory, bytes moved, devices and cuts, and every stage gets the warm-up of the policy; where memory forbids
/// what `hide` asks for, less, and the time is raised accordingly.
///
/// plan.lowerBoundMs bounds every plan that the cost model allows; plan.optimal says that timeMs is no more than that.
/// Reports ExitCode::noPlan with the smallest memory or device count that would do, if there is no plan.
Expected<Plan> planPipeline(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                            Diagnostics& diags);

/// The fewest devices for which planPipeline has a plan: devices as the cluster's first one, joined by links as those
/// of its innermost level with several components. Replicas that the options demand are left out. Nothing: not with
/// `most`.
std::optional<std::int64_t> fewestDevices(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                                          std::int64_t most = 64);

} // namespace pdc
