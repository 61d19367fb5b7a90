// Breadth-first, "bfs:V" (arXiv 2211.05953; PyTorch's LoopedBFS): rank r of p hosts stages r, r + p, …, r + (V-1)p, and
// takes all minibatches of a batch through one of them before it goes on to the next, and so with the gradients, from
// the last stage to the first. So a rank is done with a stage before it needs the next one, at the price of slots for
// the whole batch: what replicas divide of the weights of a stage is gathered twice for a batch, of the last stage
// once.
#include "Kinds/Looped.h"

#include <charconv>

using namespace pdc;
using pdcrt::ActionKind;

namespace {

constexpr std::string_view prefix = "bfs:";
constexpr int mostStages = 1024; // of a rank

class BreadthFirst : public LoopedKind {
public:
  explicit BreadthFirst(int stages) : LoopedKind(std::string(prefix) + std::to_string(stages)) {
    stagesPerRank = stages;
  }
  /// The last stage of a rank has its backwards right behind its forwards.
  int sweeps(int stage, int stages) const override { return stage < stages - stages / stagesPerRank ? 2 : 1; }
  BatchOrder order(int ranks, std::int64_t n) const override;
};

std::shared_ptr<const ScheduleDef> breadthFirstNamed(std::string_view text) {
  if (!text.starts_with(prefix)) return nullptr;
  int stages = 0;
  const char* end = text.data() + text.size();
  auto [next, code] = std::from_chars(text.data() + prefix.size(), end, stages);
  if (code != std::errc() || next != end || stages < 2 || stages > mostStages) return nullptr;
  return std::make_shared<BreadthFirst>(stages);
}

const RegisterSchedule registered(ScheduleFamily{"bfs:V", breadthFirstNamed});

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
