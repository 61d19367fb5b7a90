#include "pdc/Schedule/PipelineShape.h"

using namespace pdc;

PipelineShape pdc::straightShape(const std::vector<StageShape>& stages) {
  PipelineShape shape;
  shape.stages = stages;
  for (int s = 1; s < static_cast<int>(stages.size()); ++s) shape.edges.push_back({.from = s - 1, .to = s});
  return shape;
}

static ScheduleKind kindOf(const PipelineShape& shape) {
  return shape.kind.isChosen() || shape.microbatches == 0 ? shape.kind : ScheduleKind("1f1b-flush");
}

pdcrt::Schedule pdc::frameOf(const PipelineShape& shape) {
  return kindOf(shape)->frame(shape);
}

pdcrt::Schedule pdc::buildSchedule(const PipelineShape& shape) {
  return kindOf(shape)->build(shape);
}
