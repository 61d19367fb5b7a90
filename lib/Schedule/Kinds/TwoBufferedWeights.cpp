// PipeDream-2BW as action lists.
#include "Kinds/ListBuilder.h"

#include <algorithm>
#include <numeric>

using namespace pdc;

void pdc::keepTwoVersions(pdcrt::Schedule& schedule) {
  schedule.weights = pdcrt::WeightPolicy::twoVersions;
  for (pdcrt::ScheduleStage& stage : schedule.stages) stage.versions = 2;
}

pdcrt::Schedule pdc::twoBufferedWeights(const PipelineShape& shape) {
  pdcrt::Schedule schedule = emptySchedule(shape, "2bw");
  keepTwoVersions(schedule);
  std::int64_t m = shape.microbatches;
  for (pdcrt::RankList& rank : schedule.ranks) {
    const pdcrt::Host host = rank.hosts[0];
    const pdcrt::ScheduleStage& stage = schedule.stages[host.stage];
    const pdcrt::Routing routing = stage.routing();
    ListBuilder builder(schedule, host);
    // Round j of the steady state: one forward, one backward, and after the last backward of a batch its update.
    auto appendRound = [&](std::vector<pdcrt::Action>& list, std::int64_t j) {
      builder.forward(list, stage.warmup + j);
      builder.backward(list, j);
      std::int64_t batch = routing.minibatch(j, host.replica) / m;
      std::int64_t next = routing.minibatch(j + 1, host.replica) / m;
      if (next == batch) return;
      builder.reduce(list, batch + 1);
      builder.norm(list, batch + 1);
      builder.update(list, batch + 1);
    };
    builder.firstReceives(rank.start);
    for (std::int64_t k = 0; k < stage.warmup; ++k) builder.forward(rank.start, k);
    std::int64_t steady =
        std::max({builder.steadyForward() - stage.warmup, builder.steadyBackward(), builder.steadySharing()});
    for (std::int64_t j = 0; j < steady; ++j) appendRound(rank.start, j);
    rank.step = std::lcm(m, routing.length());
    const std::int64_t rounds = routing.localCount(rank.step, host.replica);
    for (std::int64_t i = 0; i < rounds; ++i) appendRound(rank.repeat, steady + i);
  }
  return schedule;
}
