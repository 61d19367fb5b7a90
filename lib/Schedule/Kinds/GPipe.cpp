// GPipe as action lists: 1F1B with a flush in which every stage is a whole batch ahead.
#include "Kinds/ListBuilder.h"

using namespace pdc;

PipelineShape pdc::withWholeBatchesAhead(const PipelineShape& shape) {
  PipelineShape ahead = shape;
  for (StageShape& stage : ahead.stages)
    stage.warmup = static_cast<int>((shape.microbatches + stage.replicas - 1) / stage.replicas) - 1;
  return ahead;
}

pdcrt::Schedule pdc::gpipe(const PipelineShape& shape) {
  pdcrt::Schedule schedule = oneFOneBFlush(withWholeBatchesAhead(shape));
  schedule.kind = "gpipe";
  return schedule;
}
