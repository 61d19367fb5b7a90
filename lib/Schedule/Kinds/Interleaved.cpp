// Megatron-LM's interleaved 1F1B with a flush (arXiv 2104.04473), "interleaved:V": rank r of p hosts stages r, r + p,
// …, r + (V-1)p. The ranks take p minibatches through one stage each, then through the next, and so with the gradients,
// from the last stage to the first. A batch holds a multiple of p minibatches; others work, with more idle time.
#include "Kinds/Looped.h"

#include <algorithm>

using namespace pdc;
using pdcrt::ActionKind;

namespace {

constexpr std::string_view interleavedPrefix = "interleaved:";

class Interleaved : public LoopedKind {
public:
  explicit Interleaved(int stages) : LoopedKind(std::string(interleavedPrefix) + std::to_string(stages)) {
    stagesPerRank = stages;
    fillsRanks = true;
  }
  BatchOrder order(int ranks, std::int64_t n) const override;
};

std::shared_ptr<const ScheduleDef> interleavedNamed(std::string_view text) {
  const std::optional<int> stages = stagesPerRankIn(text, interleavedPrefix);
  return stages ? std::make_shared<Interleaved>(*stages) : nullptr;
}

const RegisterSchedule registeredInterleaved(ScheduleFamily{"interleaved:V", interleavedNamed});

} // namespace

/// p minibatches at a time, n made up to a multiple of p.
BatchOrder Interleaved::order(int ranks, std::int64_t n) const {
  std::int64_t p = ranks, V = stagesPerRank, whole = (n + p - 1) / p * p, total = whole * V;
  BatchOrder batch(static_cast<std::size_t>(ranks));
  for (std::int64_t r = 0; r < p; ++r) {
    // The i-th forward or backward of this rank: p minibatches through one stage, then the same through the next.
    auto append = [&](ActionKind kind, std::int64_t i) {
      std::int64_t chunk = i / p % V, minibatch = i / (p * V) * p + i % p;
      if (kind == ActionKind::backward) chunk = V - 1 - chunk;
      if (minibatch < n) batch[r].push_back({kind, static_cast<int>(chunk * p + r), minibatch});
    };
    // The first gradient comes back when the last rank has done p minibatches with all but its last stage.
    std::int64_t ahead = std::min(total, 2 * (p - 1 - r) + (V - 1) * p);
    for (std::int64_t i = 0; i < ahead; ++i) append(ActionKind::forward, i);
    for (std::int64_t i = 0; i < total; ++i) {
      if (ahead + i < total) append(ActionKind::forward, ahead + i);
      append(ActionKind::backward, i);
    }
  }
  return batch;
}
