#include "pdc/Schedule/PipelineShape.h"

#include "Kinds/ListBuilder.h"
#include "Kinds/Looped.h"

using namespace pdc;

PipelineShape pdc::straightShape(const std::vector<StageShape>& stages) {
  PipelineShape shape;
  shape.stages = stages;
  for (int s = 1; s < static_cast<int>(stages.size()); ++s) shape.edges.push_back({.from = s - 1, .to = s});
  return shape;
}

pdcrt::Schedule pdc::frameOf(const PipelineShape& shape) {
  if (stagesPerRank(shape.kind) > 1) return loopedFrame(shape);
  if (shape.kind.empty()) return emptySchedule(shape, shape.microbatches > 0 ? "1f1b-flush" : "1f1b");
  if (shape.kind == "gpipe") return emptySchedule(withWholeBatchesAhead(shape), shape.kind);
  pdcrt::Schedule schedule = emptySchedule(shape, shape.kind);
  if (shape.kind == "2bw") keepTwoVersions(schedule);
  return schedule;
}

pdcrt::Schedule pdc::buildSchedule(const PipelineShape& shape) {
  if (shape.kind == "gpipe") return gpipe(shape);
  if (shape.kind == "2bw") return twoBufferedWeights(shape);
  if (shape.kind == "zb-h1") return zeroBubbleH1(shape);
  if (shape.kind == "zb-v") return zeroBubbleV(shape);
  if (stagesPerRank(shape.kind) > 1) return interleaved(shape);
  return shape.microbatches > 0 ? oneFOneBFlush(shape) : oneFOneB(shape);
}
