// What a kind of schedule needs to know of a pipeline to make its lists (pdc/Plan/ScheduleDef.h; lib/Schedule/Kinds).
#pragma once

#include "pdc/Plan/ScheduleDef.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace pdc {

/// A pipeline without its costs.
struct PipelineShape {
  ScheduleKind kind = {}; ///< not chosen: 1f1b-flush if there are microbatches, else 1f1b
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

/// The schedule of shape.kind.
pdcrt::Schedule buildSchedule(const PipelineShape& shape);

} // namespace pdc
