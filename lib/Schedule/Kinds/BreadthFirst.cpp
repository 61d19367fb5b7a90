// Breadth-first, "bfs:V" (arXiv 2211.05953; PyTorch's LoopedBFS): rank r of p hosts stages r, r + p, …, r + (V-1)p, and
// takes all minibatches of a batch through one of them before it goes on to the next, and so with the gradients, from
// the last stage to the first. A rank is done with a stage before it needs the next one; the price is slots for the
// whole batch. Replicas that divide their weights gather those of a stage twice for a batch, those of the last stage
// once.
#include "Kinds/Looped.h"

using namespace pdc;
using pdcrt::ActionKind;

namespace {

constexpr std::string_view breadthFirstPrefix = "bfs:";

class BreadthFirst : public LoopedKind {
public:
  explicit BreadthFirst(int stages) : LoopedKind(std::string(breadthFirstPrefix) + std::to_string(stages)) {
    stagesPerRank = stages;
  }
  /// The last stage of a rank has its backwards right behind its forwards.
  int sweeps(int stage, int stages) const override { return stage < stages - stages / stagesPerRank ? 2 : 1; }
  BatchOrder order(int ranks, std::int64_t n) const override;
};

std::shared_ptr<const ScheduleDef> breadthFirstNamed(std::string_view text) {
  const std::optional<int> stages = stagesPerRankIn(text, breadthFirstPrefix);
  return stages ? std::make_shared<BreadthFirst>(*stages) : nullptr;
}

const RegisterSchedule registeredBreadthFirst(ScheduleFamily{"bfs:V", breadthFirstNamed});

} // namespace

BatchOrder BreadthFirst::order(int ranks, std::int64_t n) const {
  BatchOrder batch(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    auto pass = [&](ActionKind kind, int chunk) {
      for (std::int64_t minibatch = 0; minibatch < n; ++minibatch)
        batch[static_cast<std::size_t>(r)].push_back({kind, chunk * ranks + r, minibatch});
    };
    for (int chunk = 0; chunk < stagesPerRank; ++chunk) pass(ActionKind::forward, chunk);
    for (int chunk = stagesPerRank - 1; chunk >= 0; --chunk) pass(ActionKind::backward, chunk);
  }
  return batch;
}
