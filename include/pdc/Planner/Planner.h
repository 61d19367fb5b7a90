// From a cost graph and a cluster to the fastest plan: a partition of the graph into pipeline stages with replication
// (PipeDream, arXiv 1806.03377), within the memory of every device, with a proof of how far it is from the best.
#pragma once

#include "pdc/Plan/CostGraph.h"
#include "pdc/Plan/GradientBuckets.h"
#include "pdc/Plan/Plan.h"

#include <vector>

namespace pdc {

enum class WarmupPolicy { hide, paper, given };

struct PlannerOptions {
  std::string schedule = "1f1b"; ///< the name of a schedule (pdc/Plan/ScheduleName.h)
  std::string weights = "stash"; ///< "stash", "vertical-sync" or "latest"
  std::string sync = "overlap";  ///< "overlap" or "barrier"
  std::int64_t microbatches = 1; ///< per update, of all schedules but 1f1b
  WarmupPolicy warmupPolicy = WarmupPolicy::hide;
  std::vector<int> warmup;                       ///< w_s per stage, of WarmupPolicy::given
  double optimizerStatePerParameterByte = 0;     ///< 0 for SGD, 1 with momentum, 2 for Adam
  bool straight = false;                         ///< no replication
  std::string costModel = "pdc";                 ///< or "sosp19", "pipedream-2018", "pipedream-code"
  std::string recompute = "none";                ///< "auto": the planner chooses for each stage; "all": every stage
  std::int64_t memoryBytes = 0;                  ///< if positive: the limit of every device, instead of the cluster's
  std::int64_t bucketBytes = defaultBucketBytes; ///< of gradients that are reduced together
  double timeLimitS = 0;                         ///< if positive: return the best plan found by then, with its gap
  /// If not empty: exactly these replica counts, one per stage; the planner only chooses where to cut.
  std::vector<int> stageReplicas;
};

/// The fastest plan on at most cluster.deviceCount() devices, under the cost model of the options
/// (docs/PlannerModels.md). Stages are differences of down-sets of the graph in a chain. Under cost model `pdc`
/// (pdc/Planner/CostModel.h) equally fast plans are ordered by peak memory, bytes moved, devices and cuts, and every
/// stage gets the warm-up of the policy; where memory forbids what `hide` asks for, less, and the time is raised
/// accordingly.
///
/// plan.lowerBoundMs bounds every plan that the cost model allows; plan.optimal says that timeMs is no more than that.
/// Reports ExitCode::noPlan with the smallest memory or device count that would do, if there is no plan.
Expected<Plan> planPipeline(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                            Diagnostics& diags);

} // namespace pdc
