// Random pipelines for every schedule.
#pragma once

#include "pdc/Plan/ScheduleDef.h"
#include "pdc/Schedule/PipelineShape.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>

namespace pdc {

class RandomPipeline {
public:
  explicit RandomPipeline(std::mt19937& random) : random_(random) {}

  PipelineShape shape() {
    switch (between(0, 7)) {
    case 0: return oneFOneBShape();
    case 1: return batched("1f1b-flush", between(1, 4));
    case 2: return batched("gpipe", between(1, 4));
    case 3: return batched("2bw", between(1, 4));
    case 4: return batched("zb-h1", between(1, 5));
    case 5: return copies("interleaved:" + std::to_string(between(2, 4)));
    case 6: return copies("zb-v");
    default: return copies("bfs:" + std::to_string(between(2, 5)));
    }
  }

private:
  int between(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }

  /// Stages with legal warm-ups: w·R does not grow.
  void addStages(PipelineShape& shape, int count) {
    for (int s = 0; s < count; ++s) {
      shape.stages.push_back({.replicas = between(0, 1) ? 1 : between(1, 4)});
      if (between(0, 2) == 0) shape.stages.back().sharding = pdcrt::Sharding::optimizer; // if it has replicas
      if (shape.stages.back().replicas == 4 && shape.stages.back().sharding == pdcrt::Sharding::optimizer)
        shape.stages.back().shardDegree = between(0, 1) * 2;
    }
    for (int s = count - 2; s >= 0; --s) {
      const StageShape& next = shape.stages[s + 1];
      int R = shape.stages[s].replicas;
      shape.stages[s].warmup = (next.warmup * next.replicas + R - 1) / R + between(0, 2);
    }
  }

  /// Neighbours, and now and then skips, gradients that go elsewhere than values, and shared parameters.
  void connect(PipelineShape& shape) {
    bool skips = between(0, 3) == 0, ties = between(0, 3) == 0;
    int count = static_cast<int>(shape.stages.size());
    for (int from = 0; from < count; ++from)
      for (int to = from + 1; to < count; ++to) {
        pdcrt::ScheduleEdge edge{.from = from, .to = to};
        if (to > from + 1) edge.forward = skips && between(0, 2) == 0;
        if (to > from + 1) edge.backward = skips && between(0, 2) == 0;
        if (to == from + 1 && between(0, 15) == 0) edge.backward = false;
        if (edge.forward || edge.backward) shape.edges.push_back(edge);
        if (ties && shape.weights == pdcrt::WeightPolicy::stash && between(0, 2) == 0)
          shape.shared.push_back({from, to});
      }
  }

  PipelineShape oneFOneBShape() {
    PipelineShape shape{.kind = "1f1b"};
    addStages(shape, between(1, 4));
    bool overlap = between(0, 1);
    for (StageShape& stage : shape.stages) stage.syncDelay = overlap && stage.replicas > 1 ? 1 : 0;
    shape.weights = static_cast<pdcrt::WeightPolicy>(between(0, 2));
    if (shape.weights == pdcrt::WeightPolicy::verticalSync)
      for (const StageShape& stage : shape.stages) {
        StageShape& input = shape.stages[0];
        int needed = stage.replicas * (stage.warmup + stage.syncDelay);
        input.warmup = std::max(input.warmup, (needed + input.replicas - 1) / input.replicas - input.syncDelay);
      }
    connect(shape);
    return shape;
  }

  PipelineShape batched(const std::string& kind, int stages) {
    PipelineShape shape{.kind = kind, .microbatches = between(1, 9)};
    addStages(shape, stages);
    if (kind == "2bw")
      for (const StageShape& stage : shape.stages)
        shape.microbatches = std::max<std::int64_t>(shape.microbatches, (stage.warmup + 1) * stage.replicas);
    connect(shape);
    return shape;
  }

  PipelineShape copies(const std::string& kind) {
    PipelineShape shape{.kind = kind};
    int ranks = between(1, 4), replicas = between(0, 1) ? 1 : between(2, 4);
    shape.stages.assign(static_cast<std::size_t>(ranks * ScheduleKind(kind)->stagesPerRank), {.replicas = replicas});
    if (between(0, 2) == 0)
      for (StageShape& stage : shape.stages) stage.sharding = pdcrt::Sharding::optimizer; // if it has replicas
    shape.microbatches = kind.starts_with("interleaved") ? ranks * replicas * between(1, 3) : between(1, 12);
    connect(shape);
    if (kind.starts_with("bfs") && between(0, 2) > 0)
      for (int s = 0; s < static_cast<int>(shape.stages.size()); ++s) // those whose parameters no other stage uses
        if (std::ranges::none_of(shape.shared, [&](const auto& pair) { return pair.first == s; }))
          shape.stages[static_cast<std::size_t>(s)].sharding = pdcrt::Sharding::weights;
    const bool hasGroups = replicas == 4 && between(0, 1) > 0;
    for (StageShape& stage : shape.stages)
      if (hasGroups && stage.sharding != pdcrt::Sharding::none) stage.shardDegree = 2;
    return shape;
  }

  std::mt19937& random_;
};

} // namespace pdc
