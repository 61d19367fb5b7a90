#include "pdc/Schedule/PipelineShape.h"

using namespace pdc;

PipelineShape pdc::straightShape(const std::vector<StageShape>& stages) {
  PipelineShape shape;
  shape.stages = stages;
  for (int s = 1; s < static_cast<int>(stages.size()); ++s) shape.edges.push_back({.from = s - 1, .to = s});
  return shape;
}

std::span<const char* const> pdc::scheduleNames() {
  static constexpr const char* names[] = {"1f1b", "1f1b-flush", "gpipe", "2bw"};
  return names;
}

bool pdc::hasBatches(std::string_view schedule) {
  return schedule != "1f1b";
}

bool pdc::flushes(std::string_view schedule) {
  return schedule == "1f1b-flush" || schedule == "gpipe";
}

pdcrt::Schedule pdc::buildSchedule(const PipelineShape& shape) {
  if (shape.kind == "gpipe") return gpipe(shape);
  if (shape.kind == "2bw") return twoBufferedWeights(shape);
  return shape.microbatches > 0 ? oneFOneBFlush(shape) : oneFOneB(shape);
}
