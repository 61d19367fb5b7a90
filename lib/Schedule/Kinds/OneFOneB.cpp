// PipeDream's 1F1B-RR, without a flush (arXiv 1806.03377), as action lists: each replica of stage s runs w_s forwards,
// then alternates one forward, one backward, one update of its stage. For local minibatches k and j, with d = d_s:
//
//   start:  receive values 0 … w_s+1; receive gradients 0, 1
//   F(k):   wait for the send from k's slot; wait for the values of k; forward; send values
//   B(j):   wait for the send from j's gradient buffer; wait for the gradients of j; backward; send gradients;
//           receive the next gradients and values into the freed buffers; all-reduce of j;
//           wait for the all-reduce of j-d; update
//
// The input gradient leaves before anything waits for an all-reduce, which is what keeps replicated stages from waiting
// for each other in a circle.
//
// Where the optimizer is sharded, each replica updates its shard (reduce-scatter instead of all-reduce), then version v
// is gathered: F(k) waits for the version that it uses.
//
// Where the stage owns parameters that a later stage uses too, the update of version v waits for the gradients of that
// stage's uses, and v is sent to it; F(k) of the user waits for the version that the owner uses for the same minibatch.
#include "Kinds/ListBuilder.h"

#include <algorithm>

using namespace pdc;

namespace {

class OneFOneB : public FlatKind {
public:
  OneFOneB() : FlatKind("1f1b") {
    hasBatches = flushes = false;
    hasSafeOrder = true;
  }
  pdcrt::Schedule build(const PipelineShape& shape) const override;
};

const RegisterSchedule registeredOneFOneB(std::make_shared<OneFOneB>());

} // namespace

pdcrt::Schedule OneFOneB::build(const PipelineShape& shape) const {
  pdcrt::Schedule schedule = frame(shape);
  for (pdcrt::RankList& rank : schedule.ranks) {
    const pdcrt::ScheduleStage& stage = schedule.stages[rank.hosts[0].stage];
    ListBuilder builder(schedule, rank.hosts[0]);
    // Round j of the steady state: one forward, one backward, one update (which makes version j + 1 when d = 0).
    auto appendRound = [&](std::vector<pdcrt::Action>& list, std::int64_t j) {
      builder.forward(list, stage.warmup + j);
      builder.backward(list, j);
      builder.reduce(list, j + 1);
      builder.norm(list, j + 1 - stage.syncDelay);
      builder.update(list, j + 1 - stage.syncDelay);
    };
    builder.firstReceives(rank.start);
    for (std::int64_t k = 0; k < stage.warmup; ++k) builder.forward(rank.start, k);
    std::int64_t steady =
        std::max({builder.steadyForward() - stage.warmup, builder.steadyBackward(),
                  static_cast<std::int64_t>(stage.syncDelay), builder.steadySharing(), builder.steadyGathering()});
    for (std::int64_t j = 0; j < steady; ++j) appendRound(rank.start, j);
    rank.step = builder.stepMinibatches();
    for (std::int64_t i = 0; i < rank.step / stage.replicas; ++i) appendRound(rank.repeat, steady + i);
  }
  return schedule;
}
