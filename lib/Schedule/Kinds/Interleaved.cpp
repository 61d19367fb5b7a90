// Megatron-LM's interleaved schedule: 1F1B over stages that loop through the ranks, V times.
#include "Kinds/Looped.h"

#include <algorithm>

using namespace pdc;
using pdcrt::ActionKind;

BatchOrder pdc::interleavedOrder(int ranks, int chunks, std::int64_t n) {
  std::int64_t p = ranks, V = chunks, whole = (n + p - 1) / p * p, total = whole * V;
  BatchOrder order(static_cast<std::size_t>(ranks));
  for (std::int64_t r = 0; r < p; ++r) {
    // The i-th forward or backward of this rank: p minibatches through one stage, then the same through the next.
    auto append = [&](ActionKind kind, std::int64_t i) {
      std::int64_t chunk = i / p % V, minibatch = i / (p * V) * p + i % p;
      if (kind == ActionKind::backward) chunk = V - 1 - chunk;
      if (minibatch < n) order[r].push_back({kind, static_cast<int>(chunk * p + r), minibatch});
    };
    // The first gradient comes back when the last rank has done p minibatches with all but its last stage.
    std::int64_t ahead = std::min(total, 2 * (p - 1 - r) + (V - 1) * p);
    for (std::int64_t i = 0; i < ahead; ++i) append(ActionKind::forward, i);
    for (std::int64_t i = 0; i < total; ++i) {
      if (ahead + i < total) append(ActionKind::forward, ahead + i);
      append(ActionKind::backward, i);
    }
  }
  return order;
}

pdcrt::Schedule pdc::interleaved(const PipelineShape& shape) {
  return loopedSchedule(shape);
}
