// What all flushing schedules share: lists that are made of batches.
#include "Kinds/ListBuilder.h"

#include <algorithm>
#include <numeric>

using namespace pdc;

void pdc::fillBatches(const pdcrt::Schedule& schedule, pdcrt::RankList& rank, const std::vector<ListBuilder>& builders,
                      const std::function<void(std::vector<pdcrt::Action>& list, const BatchSpan& batch)>& append) {
  const std::int64_t m = schedule.minibatchesPerUpdate;
  const pdcrt::Routing routing = schedule.routing(rank.hosts[0].stage);
  auto localCount = [&](std::int64_t count) { return routing.localCount(count, rank.hosts[0].replica); };
  auto appendBatch = [&](std::vector<pdcrt::Action>& list, std::int64_t batch) {
    append(list, {localCount(batch * m), localCount((batch + 1) * m), batch + 1});
    for (const ListBuilder& builder : builders) builder.reduce(list, batch + 1);
    for (const ListBuilder& builder : builders) builder.norm(list, batch + 1);
    for (const ListBuilder& builder : builders) builder.update(list, batch + 1);
  };
  // Which microbatches of a batch are this replica's repeats after lcm(m, R) microbatches.
  rank.step = std::lcm(m, routing.length());
  std::int64_t batches = rank.step / m, batch = 0, steady = 0;
  for (const ListBuilder& builder : builders) {
    builder.firstReceives(rank.start);
    steady = std::max(steady, builder.steady());
  }
  for (; localCount(batch * m) < steady; batch += batches)
    for (std::int64_t i = 0; i < batches; ++i) appendBatch(rank.start, batch + i);
  for (std::int64_t i = 0; i < batches; ++i) appendBatch(rank.repeat, batch + i);
}
