// 1F1B with a flush after every batch of m microbatches, as action lists.
#include "ListBuilder.h"

#include <algorithm>
#include <numeric>

using namespace pdc;

pdcrt::Schedule pdc::oneFOneBFlush(const PipelineShape& shape) {
  pdcrt::Schedule schedule = emptySchedule(shape, "1f1b-flush");
  std::int64_t m = shape.microbatches;
  for (pdcrt::RankList& rank : schedule.ranks) {
    const pdcrt::Host host = rank.hosts[0];
    const pdcrt::ScheduleStage& stage = schedule.stages[host.stage];
    ListBuilder builder(schedule, host);
    // Local minibatches among the first `count` of the pipeline.
    auto localCount = [&](std::int64_t count) {
      return std::max<std::int64_t>(0, (count - host.replica + stage.replicas - 1) / stage.replicas);
    };
    auto appendBatch = [&](std::vector<pdcrt::Action>& list, std::int64_t batch) {
      std::int64_t first = localCount(batch * m), last = localCount((batch + 1) * m);
      std::int64_t ahead = std::min(last, first + stage.warmup);
      for (std::int64_t k = first; k < ahead; ++k) builder.forward(list, k);
      for (std::int64_t j = first; j < last; ++j) {
        if (j + (ahead - first) < last) builder.forward(list, j + (ahead - first));
        builder.backward(list, j);
      }
      builder.update(list, batch + 1, batch + 1);
    };
    // Which microbatches of a batch are this replica's repeats after lcm(m, R) microbatches.
    rank.step = std::lcm(m, static_cast<std::int64_t>(stage.replicas));
    std::int64_t batches = rank.step / m, batch = 0;
    std::int64_t steady = std::max({builder.steadyForward(), builder.steadyBackward(), builder.steadySharing()});
    builder.firstReceives(rank.start);
    for (; localCount(batch * m) < steady; batch += batches)
      for (std::int64_t i = 0; i < batches; ++i) appendBatch(rank.start, batch + i);
    for (std::int64_t i = 0; i < batches; ++i) appendBatch(rank.repeat, batch + i);
  }
  return schedule;
}
