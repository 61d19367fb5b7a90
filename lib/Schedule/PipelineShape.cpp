#include "pdc/Schedule/PipelineShape.h"

using namespace pdc;

PipelineShape pdc::straightShape(const std::vector<StageShape>& stages) {
  PipelineShape shape;
  shape.stages = stages;
  for (int s = 1; s < static_cast<int>(stages.size()); ++s) shape.edges.push_back({.from = s - 1, .to = s});
  return shape;
}

pdcrt::Schedule pdc::buildSchedule(const PipelineShape& shape) {
  return shape.microbatches > 0 ? oneFOneBFlush(shape) : oneFOneB(shape);
}
