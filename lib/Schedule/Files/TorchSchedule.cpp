// From the computations of a batch to an endless schedule.
#include "Kinds/ListBuilder.h"
#include "pdc/Schedule/TorchCsv.h"
#include "pdcrt/Machine.h"

#include <algorithm>

using namespace pdc;
using pdcrt::ActionKind;

/// Stages whose weights a rank has at once, at most.
static int poolOf(const std::vector<pdcrt::Action>& batch) {
  int held = 0, most = pdcrt::RankList().pool;
  for (const pdcrt::Action& action : batch) {
    held += (action.kind == ActionKind::unshard ? 1 : 0) - (action.kind == ActionKind::reshard ? 1 : 0);
    most = std::max(most, held);
  }
  return most;
}

/// The lists, over the rings that the schedule has.
static void fillLists(const TorchBatch& batch, pdcrt::Schedule& schedule) {
  schedule.ranks.clear();
  for (std::size_t r = 0; r < batch.ranks.size(); ++r) {
    pdcrt::RankList rank;
    rank.hosts = batch.hosts[r];
    rank.pool = poolOf(batch.ranks[r]);
    rank.sums = std::max(rank.sums, static_cast<int>(rank.hosts.size())); // backwards may come in any order
    std::vector<ListBuilder> builders;
    std::vector<std::size_t> builderOf(batch.stages.size(), 0); // by stage
    for (const pdcrt::Host& host : rank.hosts) {
      builderOf[static_cast<std::size_t>(host.stage)] = builders.size();
      builders.emplace_back(schedule, host);
    }
    fillBatches(schedule, rank, builders, [&](auto& list, const BatchSpan& span) {
      for (const pdcrt::Action& action : batch.ranks[r]) {
        const auto stage = static_cast<std::size_t>(action.stage);
        const ListBuilder& builder = builders[builderOf[stage]];
        const std::int64_t local = span.first + schedule.routing(action.stage).local(action.index);
        if (action.kind == ActionKind::forward) builder.forward(list, local);
        if (action.kind == ActionKind::backward) builder.backward(list, local);
        if (action.kind == ActionKind::backwardInput) builder.backwardInput(list, local);
        if (action.kind == ActionKind::backwardWeight) builder.backwardWeight(list, local);
        if (action.kind == ActionKind::unshard) builder.unshard(list);
        if (action.kind == ActionKind::reshard) builder.reshard(list);
        if (action.kind == ActionKind::reduceScatter) builder.reduce(list, span.version);
      }
      for (const ListBuilder& builder : builders) builder.reshardAll(list);
    });
    schedule.ranks.push_back(std::move(rank));
  }
}

pdcrt::Schedule pdc::scheduleOfBatch(const TorchBatch& batch, const PipelineShape& shape) {
  PipelineShape own = shape;
  own.kind = "1f1b-flush";
  own.weights = pdcrt::WeightPolicy::stash;
  own.microbatches = batch.microbatches;
  own.stages.clear();
  for (const TorchBatch::Stage& stage : batch.stages)
    own.stages.push_back({.replicas = stage.replicas,
                          .warmup = stage.warmup,
                          .sharding = stage.sweeps > 0 ? pdcrt::Sharding::weights : pdcrt::Sharding::none});
  for (std::size_t s = 0; s < std::min(own.stages.size(), shape.stages.size()); ++s) {
    if (batch.stages[s].sweeps == 0) own.stages[s].sharding = shape.stages[s].sharding;
    own.stages[s].shardDegree = shape.stages[s].shardDegree;
  }
  pdcrt::Schedule schedule = frameOf(own);
  schedule.kind = "csv";
  for (std::size_t s = 0; s < batch.stages.size(); ++s) {
    schedule.stages[s].slots = batch.stages[s].slots;
    schedule.stages[s].handovers = batch.stages[s].handovers;
    schedule.stages[s].sweeps = std::max(batch.stages[s].sweeps, 1);
  }
  sizeRings(schedule);
  // An order that lets one end run far ahead of the other needs deeper rings, of a whole batch at most.
  for (int most = static_cast<int>(std::min<std::int64_t>(batch.microbatches, 1 << 20));;) {
    fillLists(batch, schedule);
    if (!pdcrt::check(schedule, 2 * batch.microbatches, {.order = false, .picture = false}).deadlock) return schedule;
    bool deeper = false;
    for (pdcrt::EdgeRings& rings : schedule.rings)
      for (int* ring : {&rings.forwardReceive, &rings.backwardSend, &rings.backwardReceive})
        if (*ring > 0 && *ring < most) {
          *ring = std::min(2 * *ring, most);
          deeper = true;
        }
    if (!deeper) return schedule;
  }
}
