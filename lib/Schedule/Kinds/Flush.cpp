// 1F1B with a flush after every batch of m microbatches, as action lists.
#include "Kinds/ListBuilder.h"

#include <algorithm>

using namespace pdc;

pdcrt::Schedule pdc::oneFOneBFlush(const PipelineShape& shape) {
  pdcrt::Schedule schedule = emptySchedule(shape, "1f1b-flush");
  for (pdcrt::RankList& rank : schedule.ranks) {
    std::int64_t warmup = schedule.stages[rank.hosts[0].stage].warmup;
    const std::vector<ListBuilder> builders = {ListBuilder(schedule, rank.hosts[0])};
    fillBatches(schedule, rank, builders, [&](auto& list, std::int64_t first, std::int64_t last) {
      std::int64_t ahead = std::min(last - first, warmup);
      for (std::int64_t k = first; k < first + ahead; ++k) builders[0].forward(list, k);
      for (std::int64_t j = first; j < last; ++j) {
        if (j + ahead < last) builders[0].forward(list, j + ahead);
        builders[0].backward(list, j);
      }
    });
  }
  return schedule;
}
