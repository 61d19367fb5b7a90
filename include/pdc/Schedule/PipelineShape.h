// What a schedule generator needs to know of a pipeline, and the generators.
#pragma once

#include "pdc/Plan/ScheduleName.h"
#include "pdcrt/Schedule.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pdc {

/// What a generator must know of one stage.
struct StageShape {
  int replicas = 1;
  int warmup = 0;          ///< w_s: forwards before the first backward; w_s + 1 minibatches in flight
  int syncDelay = 0;       ///< d_s: backwards between an all-reduce's start and its update; 0 when updates are common
  pdcrt::Route route = {}; ///< of flushing schedules; the others know round robin only
};

/// A pipeline without its costs.
struct PipelineShape {
  std::string kind = {}; ///< the name of a schedule; empty: 1f1b-flush if there are microbatches, else 1f1b
  pdcrt::WeightPolicy weights = pdcrt::WeightPolicy::stash;
  std::int64_t microbatches = 0; ///< per update, of flushing schedules; 0: each stage updates by itself (1f1b)
  bool gradientNorm = false;     ///< updates await the norm of the gradients of all stages; with microbatches only
  std::vector<StageShape> stages;
  std::vector<pdcrt::ScheduleEdge> edges; ///< sorted by (from, to)
  /// Stages that share parameters: owner and a later user. Sorted, without repetition; with WeightPolicy::stash only.
  std::vector<std::pair<int, int>> shared = {};
};

/// Stages 0 … n-1 with edges between neighbours only.
PipelineShape straightShape(const std::vector<StageShape>& stages);

/// buildSchedule(shape) without its lists: stages with slots, versions and handovers, edges with rings, and ranks with
/// what they host. Memory follows from this alone.
pdcrt::Schedule frameOf(const PipelineShape& shape);

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

/// GPipe (arXiv 1811.06965): all forwards of a batch, then all backwards, then one update of every stage. Each stage is
/// as far ahead as a batch is long, whatever shape.stages says of the warm-up.
pdcrt::Schedule gpipe(const PipelineShape& shape);

/// PipeDream-2BW (arXiv 2006.09503): 1F1B without a flush, and one update of every stage per batch of
/// shape.microbatches, which must be at least max_s (w_s + 1)·R_s. Minibatch k uses version max(0, floor(k/m) - 1), so
/// two are kept.
pdcrt::Schedule twoBufferedWeights(const PipelineShape& shape);

/// ZB-H1 (Zero Bubble, arXiv 2401.10241): the order of 1F1B with a flush, but each backward is split into input
/// gradients I, which the stage before waits for, and weight gradients W, for which nobody waits before the update. A
/// replica of stage s runs w_s forwards, then F, I, and W of a minibatch lag_s before; what W is left at the end of a
/// batch fills the time in which 1F1B waits for the last gradients.
///
/// The lag is so long that every stage holds as many minibatches as the first does under 1F1B, where most memory is
/// needed: see zeroBubbleSlots. Without replicas and with w_s = p-1-s, lag_s = s.
pdcrt::Schedule zeroBubbleH1(const PipelineShape& shape);

/// Minibatches that a replica of `stage` holds under zb-h1: min(ceil(m / R), max(w + 1, floor((w_0 + 1) * R_0 / R))).
int zeroBubbleSlots(std::int64_t microbatches, const StageShape& input, const StageShape& stage);

/// Megatron-LM's interleaved 1F1B with a flush (arXiv 2104.04473), shape.kind "interleaved:V": rank r of p hosts stages
/// r, r + p, …, r + (V-1)p. The ranks take p minibatches through one stage each, then through the next, and so with the
/// gradients, from the last stage to the first. A batch holds a multiple of p minibatches; others work, with more idle
/// time.
///
/// Of this and the next: all stages have the same number of replicas R, copies of one pipeline: rank r·R + q hosts
/// replica q of the stages of rank r. How far a stage runs ahead follows from the order, not from StageShape::warmup.
pdcrt::Schedule interleaved(const PipelineShape& shape);

/// ZB-V (Zero Bubble, arXiv 2401.10241), shape.kind "zb-v": rank r of p hosts stages r and 2p-1-r, so values go down
/// the ranks and up again, and the last rank turns them round without a transfer. The backward is split as in zb-h1.
/// With F = I = W and 2p-1 minibatches per batch or more, no rank waits between its first and last computation of a
/// batch; it holds 2p minibatches of its stages together, as much as p of whole ranks, which is what the first stage of
/// 1F1B holds.
pdcrt::Schedule zeroBubbleV(const PipelineShape& shape);

/// The generator's result for shape.kind.
pdcrt::Schedule buildSchedule(const PipelineShape& shape);

} // namespace pdc
