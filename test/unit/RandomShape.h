// Random pipelines for the tests of schedules.
#pragma once

#include "pdc/Schedule/PipelineShape.h"

#include <random>

namespace pdc {

/// Pipelines with skips and backward-only edges, legal warm-ups, replicas, both kinds of schedule.
inline PipelineShape randomShape(std::mt19937& random) {
  auto between = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  PipelineShape shape;
  int stages = between(1, 4);
  bool flush = between(0, 2) == 0, overlap = between(0, 1);
  if (flush) shape.microbatches = between(1, 7);
  for (int s = 0; s < stages; ++s) {
    StageShape stage{.replicas = between(1, 4)};
    if (stages > 1 && stage.replicas > 1 && overlap && !flush) stage.syncDelay = 1;
    shape.stages.push_back(stage);
  }
  // From the last stage backwards: w_{s-1}·R_{s-1} >= w_s·R_s.
  for (int s = stages - 2; s >= 0; --s) {
    const StageShape& next = shape.stages[s + 1];
    int least = (next.warmup * next.replicas + shape.stages[s].replicas - 1) / shape.stages[s].replicas;
    shape.stages[s].warmup = least + between(0, 3);
  }
  for (int from = 0; from < stages; ++from)
    for (int to = from + 1; to < stages; ++to) {
      pdcrt::ScheduleEdge edge{.from = from, .to = to};
      if (to > from + 1) {
        edge.forward = between(0, 2) == 0;
        edge.backward = between(0, 2) == 0;
      }
      if (edge.forward || edge.backward) shape.edges.push_back(edge);
    }
  return shape;
}

} // namespace pdc
