// What a schedule generator needs to know of a pipeline, and the generators.
#pragma once

#include "pdcrt/Schedule.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pdc {

/// What a generator must know of one stage.
struct StageShape {
  int replicas = 1;
  int warmup = 0;    ///< w_s: forwards before the first backward; w_s + 1 minibatches in flight
  int syncDelay = 0; ///< d_s: backwards between an all-reduce's start and its update; 0 when updates are common
};

/// A pipeline without its costs.
struct PipelineShape {
  pdcrt::WeightPolicy weights = pdcrt::WeightPolicy::stash;
  std::int64_t microbatches = 0; ///< per update, of flushing schedules; 0: each stage updates by itself (1f1b)
  std::vector<StageShape> stages;
  std::vector<pdcrt::ScheduleEdge> edges; ///< sorted by (from, to)
  /// Stages that share parameters: owner and a later user. Sorted, without repetition; with WeightPolicy::stash only.
  std::vector<std::pair<int, int>> shared = {};
};

/// Stages 0 … n-1 with edges between neighbours only.
PipelineShape straightShape(const std::vector<StageShape>& stages);

/// A schedule with everything but its lists: stages with slots and versions, edges with rings, and one rank per stage
/// replica, stage by stage. Memory follows from this alone.
pdcrt::Schedule emptySchedule(const PipelineShape& shape, std::string kind);

/// PipeDream's 1F1B-RR, without a flush (arXiv 1806.03377): each replica of stage s runs w_s forwards, then alternates
/// one forward, one backward, one update of its stage. For local minibatches k and j, with d = d_s:
///
///   start:  receive values 0 … w_s+1; receive gradients 0, 1
///   F(k):   wait for the send from k's slot; wait for the values of k; forward; send values
///   B(j):   wait for the send from j's gradient buffer; wait for the gradients of j; backward; send gradients;
///           receive the next gradients and values into the freed buffers; all-reduce of j;
///           wait for the all-reduce of j-d; update
///
/// The input gradient leaves before anything waits for an all-reduce, which is what keeps replicated stages from
/// waiting for each other in a circle.
///
/// Where the stage owns parameters that a later stage uses too, the update of version v waits for the gradients of that
/// stage's uses, and v is sent to it; F(k) of the user waits for the version that the owner uses for the same
/// minibatch.
pdcrt::Schedule oneFOneB(const PipelineShape& shape);

/// 1F1B inside each batch of shape.microbatches, then a drain and one update of every stage (PipeDream-Flush,
/// arXiv 2006.09503; DAPPLE; Megatron-LM). Microbatch b is of replica b mod R_s, whether or not R_s divides the batch.
pdcrt::Schedule oneFOneBFlush(const PipelineShape& shape);

/// oneFOneB or oneFOneBFlush, as shape.microbatches says.
pdcrt::Schedule buildSchedule(const PipelineShape& shape);

} // namespace pdc
