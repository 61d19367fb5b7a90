// ZB-H1 of "Zero Bubble Pipeline Parallelism" as action lists.
#include "Kinds/ListBuilder.h"

#include <algorithm>

using namespace pdc;

int pdc::zeroBubbleSlots(std::int64_t microbatches, const StageShape& input, const StageShape& stage) {
  std::int64_t R = stage.replicas, asMany = (std::int64_t{input.warmup} + 1) * input.replicas / R;
  std::int64_t slots = std::max<std::int64_t>(std::int64_t{stage.warmup} + 1, asMany);
  return static_cast<int>(std::min(slots, (microbatches + R - 1) / R));
}

pdcrt::Schedule pdc::zeroBubbleH1(const PipelineShape& shape) {
  pdcrt::Schedule schedule = emptySchedule(shape, "zb-h1");
  for (pdcrt::RankList& rank : schedule.ranks) {
    const pdcrt::ScheduleStage& stage = schedule.stages[rank.hosts[0].stage];
    std::int64_t warmup = stage.warmup, lag = stage.handovers - 1;
    const std::vector<ListBuilder> builders = {ListBuilder(schedule, rank.hosts[0])};
    fillBatches(schedule, rank, builders, [&](auto& list, std::int64_t first, std::int64_t last) {
      std::int64_t ahead = std::min(last - first, warmup);
      for (std::int64_t k = first; k < first + ahead; ++k) builders[0].forward(list, k);
      for (std::int64_t j = first; j < last; ++j) {
        if (j + ahead < last) builders[0].forward(list, j + ahead);
        builders[0].backwardInput(list, j);
        if (j - lag >= first) builders[0].backwardWeight(list, j - lag);
      }
      for (std::int64_t j = std::max(first, last - lag); j < last; ++j) builders[0].backwardWeight(list, j);
    });
  }
  return schedule;
}
