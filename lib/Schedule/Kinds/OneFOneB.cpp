// PipeDream's 1F1B-RR as action lists.
#include "Kinds/ListBuilder.h"

#include <algorithm>

using namespace pdc;

pdcrt::Schedule pdc::oneFOneB(const PipelineShape& shape) {
  pdcrt::Schedule schedule = emptySchedule(shape, "1f1b");
  for (pdcrt::RankList& rank : schedule.ranks) {
    const pdcrt::ScheduleStage& stage = schedule.stages[rank.hosts[0].stage];
    ListBuilder builder(schedule, rank.hosts[0]);
    // Round j of the steady state: one forward, one backward, one update (which makes version j + 1 when d = 0).
    auto appendRound = [&](std::vector<pdcrt::Action>& list, std::int64_t j) {
      builder.forward(list, stage.warmup + j);
      builder.backward(list, j);
      builder.reduce(list, j + 1);
      builder.update(list, j + 1 - stage.syncDelay);
    };
    builder.firstReceives(rank.start);
    for (std::int64_t k = 0; k < stage.warmup; ++k) builder.forward(rank.start, k);
    std::int64_t steady = std::max({builder.steadyForward() - stage.warmup, builder.steadyBackward(),
                                    static_cast<std::int64_t>(stage.syncDelay), builder.steadySharing()});
    for (std::int64_t j = 0; j < steady; ++j) appendRound(rank.start, j);
    rank.step = builder.stepMinibatches();
    for (std::int64_t i = 0; i < rank.step / stage.replicas; ++i) appendRound(rank.repeat, steady + i);
  }
  return schedule;
}
