// What the planner is asked for, besides a graph and a cluster.
#pragma once

#include "pdc/Plan/EdgeCodec.h"
#include "pdc/Plan/GradientBuckets.h"
#include "pdc/Plan/ScheduleDef.h"

#include <cstdint>
#include <vector>

namespace pdc {

enum class WarmupPolicy { hide, paper, given };

/// Which stages run their forward again in the backward: none, those for which the planner chooses it, or all.
enum class RecomputePolicy : std::uint8_t { none, automatic, all };

struct PlannerOptions {
  ScheduleKind schedule;
  pdcrt::WeightPolicy weights = pdcrt::WeightPolicy::stash;
  SyncPolicy sync = SyncPolicy::overlap;
  std::int64_t microbatches = 1; ///< per update, of schedules with batches
  WarmupPolicy warmupPolicy = WarmupPolicy::hide;
  std::vector<int> warmup;                   ///< w_s per stage, of WarmupPolicy::given
  double optimizerStatePerParameterByte = 0; ///< 0 for SGD, 1 with momentum, 2 for Adam
  bool straight = false;                     ///< no replication
  RecomputePolicy recompute = RecomputePolicy::none;
  std::int64_t memoryBytes = 0;                  ///< if positive: the limit of every device, instead of the cluster's
  std::int64_t bucketBytes = defaultBucketBytes; ///< of gradients that are reduced together
  EdgeCodecChoice edgeCodec = {};                ///< of the tensors that can be encoded (CostTensor::codec)
  double timeLimitS = 0;                         ///< if positive: return the best plan found by then, with its gap
  /// If not empty: exactly these replica counts, one per stage; the planner only chooses where to cut.
  std::vector<int> stageReplicas;
};

} // namespace pdc
