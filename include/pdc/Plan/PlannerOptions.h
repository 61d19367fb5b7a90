// What the planner is asked for, besides a graph and a cluster.
#pragma once

#include "pdc/Plan/GradientBuckets.h"

#include <cstdint>
#include <string>
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
  std::string recompute = "none";                ///< "auto": the planner chooses for each stage; "all": every stage
  std::int64_t memoryBytes = 0;                  ///< if positive: the limit of every device, instead of the cluster's
  std::int64_t bucketBytes = defaultBucketBytes; ///< of gradients that are reduced together
  double timeLimitS = 0;                         ///< if positive: return the best plan found by then, with its gap
  /// If not empty: exactly these replica counts, one per stage; the planner only chooses where to cut.
  std::vector<int> stageReplicas;
};

} // namespace pdc
