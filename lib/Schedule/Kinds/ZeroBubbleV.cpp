// ZB-V (Zero Bubble, arXiv 2401.10241): rank r of p hosts stages r and 2p-1-r, so values go down the ranks and up
// again, and the last rank turns them round without a transfer. The backward is split as in zb-h1. With F = I = W and
// 2p-1 minibatches per batch or more, no rank waits between its first and last computation of a batch; it holds 2p
// minibatches of its stages together, as much as p of whole ranks, which is what the first stage of 1F1B holds.
#include "Kinds/Looped.h"

#include <algorithm>

using namespace pdc;
using pdcrt::ActionKind;

namespace {

/// One rank's batch. `down` and `up` are its two stages.
class RankOrder {
public:
  RankOrder(int ranks, int rank, std::int64_t n) : down_(rank), up_(2 * ranks - 1 - rank), n_(n) {}

  void forward(int stage) { append(ActionKind::forward, stage, forwards_); }
  void input(int stage) { append(ActionKind::backwardInput, stage, inputs_); }
  void weight(int stage) { append(ActionKind::backwardWeight, stage, weights_); }

  std::vector<Computation> fill(std::int64_t p, std::int64_t r, std::int64_t pattern) {
    int down = 0, up = 1;
    // Forwards, until the first minibatch comes back up; then two at a time.
    for (std::int64_t i = 0; i < 2 * (p - r) - 1; ++i) forward(down);
    for (std::int64_t i = 0; i < r; ++i) {
      forward(up);
      forward(down);
    }
    // The last stages' gradients are on their way: up-going minibatches only.
    for (std::int64_t i = 0; i < p - r; ++i) {
      forward(up);
      input(up);
      weight(up);
    }
    while (forwards_[up] < pattern) {
      if (forwards_[down] < pattern) forward(down);
      input(down);
      weight(down);
      forward(up);
      input(up);
      weight(up);
    }
    // Others wait for the input gradients that are left; the weight gradients fill the end.
    for (std::int64_t i = 0; i < r; ++i) {
      input(down);
      input(up);
    }
    while (inputs_[down] < pattern) {
      input(down);
      weight(down);
    }
    while (weights_[up] < pattern) weight(up);
    while (weights_[down] < pattern) weight(down);
    return std::move(order_);
  }

private:
  void append(ActionKind kind, int stage, std::int64_t (&done)[2]) {
    std::int64_t minibatch = done[stage]++;
    if (minibatch < n_) order_.push_back({kind, stage == 0 ? down_ : up_, minibatch});
  }

  int down_, up_;
  std::int64_t n_;
  std::int64_t forwards_[2] = {}, inputs_[2] = {}, weights_[2] = {};
  std::vector<Computation> order_;
};

class ZeroBubbleV : public LoopedKind {
public:
  ZeroBubbleV() : LoopedKind("zb-v") {
    splitsBackward = true;
    stagesPerRank = 2;
  }
  int rankOfStage(int stage, int stages) const override { return std::min(stage, stages - 1 - stage); }
  BatchOrder order(int ranks, std::int64_t n) const override;
};

const RegisterSchedule registeredZeroBubbleV(std::make_shared<ZeroBubbleV>());

} // namespace

BatchOrder ZeroBubbleV::order(int ranks, std::int64_t n) const {
  BatchOrder batch;
  // A shorter batch is the shortest that fills the pipeline, with its last minibatches left out.
  std::int64_t pattern = std::max<std::int64_t>(n, 2 * ranks - 1);
  for (int r = 0; r < ranks; ++r) batch.push_back(RankOrder(ranks, r, n).fill(ranks, r, pattern));
  return batch;
}
