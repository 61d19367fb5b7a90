// ZB-H1 (Zero Bubble, arXiv 2401.10241): the order of 1F1B with a flush, but each backward is split into input
// gradients I, which the stage before waits for, and weight gradients W, for which nobody waits before the update. A
// replica of stage s runs w_s forwards, then F, I, and W of a minibatch lag_s before; what W is left at the end of a
// batch fills the time in which 1F1B waits for the last gradients.
//
// The lag is so long that every stage holds as many minibatches as the first does under 1F1B, where most memory is
// needed: min(ceil(m / R), max(w + 1, floor((w_0 + 1) * R_0 / R))). Without replicas and with w_s = p-1-s, lag_s = s.
#include "Kinds/ListBuilder.h"

#include <algorithm>

using namespace pdc;

namespace {

class ZeroBubbleH1 : public FlatKind {
public:
  ZeroBubbleH1() : FlatKind("zb-h1") {
    splitsBackward = true;
    hasSafeOrder = true;
  }
  StageDepths depths(std::int64_t microbatches, const StageShape& input, const StageShape& own, int) const override {
    const std::int64_t R = own.replicas, asMany = (std::int64_t{input.warmup} + 1) * input.replicas / R;
    const std::int64_t most = std::max<std::int64_t>(std::int64_t{own.warmup} + 1, asMany);
    const auto slots = static_cast<int>(std::min(most, (microbatches + R - 1) / R));
    return {.slots = slots, .handovers = std::max(1, slots - own.warmup)};
  }
  pdcrt::Schedule build(const PipelineShape& shape) const override;
};

const RegisterSchedule registeredZeroBubbleH1(std::make_shared<ZeroBubbleH1>());

} // namespace

pdcrt::Schedule ZeroBubbleH1::build(const PipelineShape& shape) const {
  pdcrt::Schedule schedule = frame(shape);
  for (pdcrt::RankList& rank : schedule.ranks) {
    const pdcrt::ScheduleStage& stage = schedule.stages[rank.hosts[0].stage];
    std::int64_t warmup = stage.warmup, lag = stage.handovers - 1;
    const std::vector<ListBuilder> builders = {ListBuilder(schedule, rank.hosts[0])};
    fillBatches(schedule, rank, builders, [&](auto& list, const BatchSpan& batch) {
      const std::int64_t first = batch.first, last = batch.last;
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
