// 1F1B inside each batch of microbatches, then a drain and one update of every stage (PipeDream-Flush, arXiv
// 2006.09503; DAPPLE; Megatron-LM). Microbatch b is of replica b mod R_s, whether or not R_s divides the batch.
#include "Kinds/Flush.h"

#include <algorithm>

using namespace pdc;

static const RegisterSchedule registeredFlush(std::make_shared<FlushKind>("1f1b-flush"));

pdcrt::Schedule FlushKind::build(const PipelineShape& shape) const {
  pdcrt::Schedule schedule = frame(shape);
  for (pdcrt::RankList& rank : schedule.ranks) {
    std::int64_t warmup = schedule.stages[rank.hosts[0].stage].warmup;
    const std::vector<ListBuilder> builders = {ListBuilder(schedule, rank.hosts[0])};
    fillBatches(schedule, rank, builders, [&](auto& list, const BatchSpan& batch) {
      const std::int64_t first = batch.first, last = batch.last;
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
