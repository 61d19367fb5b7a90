// What the schedules share whose ranks host several stages: the order of a batch at each rank, and what follows from
// it.
#pragma once

#include "pdc/Schedule/PipelineShape.h"

namespace pdc {

/// Of one batch, whose minibatches count from 0 at each replica.
struct Computation {
  pdcrt::ActionKind kind = pdcrt::ActionKind::forward; ///< or backward, backwardInput, backwardWeight
  int stage = 0;
  std::int64_t minibatch = 0;
};

/// What each rank computes in a batch, in order.
using BatchOrder = std::vector<std::vector<Computation>>;

/// Megatron-LM's interleaved order of n minibatches (made up to a multiple of `ranks`) over `chunks` stages per rank.
BatchOrder interleavedOrder(int ranks, int chunks, std::int64_t n);

/// ZB-V's order of n minibatches over two stages per rank.
BatchOrder zeroBubbleVOrder(int ranks, std::int64_t n);

/// The order of shape.kind for the replica with the most minibatches.
BatchOrder orderOf(const PipelineShape& shape);

/// emptySchedule() and buildSchedule() of a shape.kind with several stages per rank.
pdcrt::Schedule loopedFrame(const PipelineShape& shape);
pdcrt::Schedule loopedSchedule(const PipelineShape& shape);

} // namespace pdc
