// PipeDream-2BW (arXiv 2006.09503): 1F1B without a flush, and one update of every stage per batch of m microbatches,
// which must be at least max_s (w_s + 1)·R_s. Minibatch k uses version max(0, floor(k/m) - 1), so two are kept.
#include "Kinds/ListBuilder.h"

#include <algorithm>
#include <numeric>

using namespace pdc;

namespace {

class TwoBufferedWeights : public FlatKind {
public:
  TwoBufferedWeights() : FlatKind("2bw") {
    flushes = false;
    inFlightFitsBatch = true;
    hasSafeOrder = true;
  }
  int versions(pdcrt::WeightPolicy, const StageShape&, const StageShape&, int) const override { return 2; }
  pdcrt::WeightPolicy weights(pdcrt::WeightPolicy) const override { return pdcrt::WeightPolicy::twoVersions; }
  pdcrt::Schedule build(const PipelineShape& shape) const override;
};

const RegisterSchedule registeredTwoBufferedWeights(std::make_shared<TwoBufferedWeights>());

} // namespace

pdcrt::Schedule TwoBufferedWeights::build(const PipelineShape& shape) const {
  pdcrt::Schedule schedule = frame(shape);
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
    std::int64_t steady = std::max({builder.steadyForward() - stage.warmup, builder.steadyBackward(),
                                    builder.steadySharing(), builder.steadyGathering()});
    for (std::int64_t j = 0; j < steady; ++j) appendRound(rank.start, j);
    rank.step = std::lcm(m, routing.length());
    const std::int64_t rounds = routing.localCount(rank.step, host.replica);
    for (std::int64_t i = 0; i < rounds; ++i) appendRound(rank.repeat, steady + i);
  }
  return schedule;
}
