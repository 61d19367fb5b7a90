// From a cost graph and a cluster to a plan: PipeDream's partition with replication (arXiv 1806.03377), over the
// graph's program order, on a flat cluster, within the memory of every device.
#pragma once

#include "pdc/Plan/CostGraph.h"
#include "pdc/Plan/Plan.h"

#include <vector>

namespace pdc {

enum class WarmupPolicy { hide, paper, given };

struct PlannerOptions {
  std::string schedule = "1f1b"; ///< "1f1b" or "1f1b-flush"
  std::string weights = "stash"; ///< "stash", "vertical-sync" or "latest"
  std::string sync = "overlap";  ///< "overlap" or "barrier"
  std::int64_t microbatches = 1; ///< per update, of flushing schedules
  WarmupPolicy warmupPolicy = WarmupPolicy::hide;
  std::vector<int> warmup;                   ///< w_s per stage, of WarmupPolicy::given
  double optimizerStatePerParameterByte = 0; ///< 0 for SGD, 1 with momentum, 2 for Adam
  bool straight = false;                     ///< no replication
  std::string costModel = "pdc";             ///< or "sosp19", "pipedream-2018", "pipedream-code"
  std::string recompute = "none";            ///< "auto": the planner chooses for each stage; "all": every stage
  std::int64_t memoryBytes = 0;              ///< if positive: the limit of every device, instead of the cluster's
  double timeLimitS = 0;                     ///< if positive: return the best plan found by then, with its gap
  /// If not empty: exactly these replica counts, one per stage; the planner only chooses where to cut.
  std::vector<int> stageReplicas;
};

/// The fastest plan with at most cluster.deviceCount() devices whose stages are intervals of the program order; among
/// equally fast ones that with less peak memory, then fewer bytes moved, fewer devices, earlier cuts. Every stage gets
/// the warm-up of the policy; where memory forbids what `hide` asks for, less, and the time is raised accordingly.
///
/// plan.lowerBoundMs bounds every plan of that kind; it equals plan.timeMs when the search could prove it. Reports
/// ExitCode::noPlan with the smallest memory or device count that would do, if there is no plan.
Expected<Plan> planPipeline(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                            Diagnostics& diags);

} // namespace pdc
