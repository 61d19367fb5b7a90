// GPipe as action lists: 1F1B with a flush in which every stage is a whole batch ahead.
#include "pdc/Schedule/PipelineShape.h"

using namespace pdc;

pdcrt::Schedule pdc::gpipe(const PipelineShape& shape) {
  PipelineShape ahead = shape;
  for (StageShape& stage : ahead.stages)
    stage.warmup = static_cast<int>((shape.microbatches + stage.replicas - 1) / stage.replicas) - 1;
  pdcrt::Schedule schedule = oneFOneBFlush(ahead);
  schedule.kind = "gpipe";
  return schedule;
}
