#include "pdc/Schedule/PipelineShape.h"

using namespace pdc;

PipelineShape pdc::straightShape(const std::vector<StageShape>& stages) {
  PipelineShape shape;
  shape.stages = stages;
  for (int s = 1; s < static_cast<int>(stages.size()); ++s) shape.edges.push_back({.from = s - 1, .to = s});
  return shape;
}

pdcrt::Schedule pdc::buildSchedule(const PipelineShape& shape) {
  if (shape.kind == "gpipe") return gpipe(shape);
  if (shape.kind == "2bw") return twoBufferedWeights(shape);
  if (shape.kind == "zb-h1") return zeroBubbleH1(shape);
  return shape.microbatches > 0 ? oneFOneBFlush(shape) : oneFOneB(shape);
}
