// The optimizers, over the flat weights block of a stage, by its parameter table.
//
// With g = (sum of the gradients / their number) · scale + weight decay · w (adamw: without the decay), per element, in
// f32:
//
//   sgd        w' = w - lr · g
//   momentum   v' = momentum · v + g;   w' = w - lr · v'    (nesterov: w' = w - lr · (g + momentum · v'))
//   adam       m' = β1 · m + (1 - β1) · g;   s' = β2 · s + (1 - β2) · g²
//              w' = w - (lr / (1 - β1^t)) · m' / (sqrt(s') / sqrt(1 - β2^t) + eps)
//   adamw      w first loses lr · weight decay · w, then as adam
//
// v, m, s start at 0; t counts the stage's own updates from 1. These are PyTorch's SGD, Adam and AdamW without
// dampening.
#pragma once

#include "pdcrt/Device.h"
#include "pdcrt/OptimizerLayout.h"
#include "pdcrt/Shards.h"
#include "pdcrt/Stage.h"
#include "pdcrt/Training.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace pdcrt {

/// Where an update reads and writes. `old` and `fresh` may be the same block.
struct UpdateBlocks {
  const std::byte* old;       ///< newest weights
  std::byte* fresh;           ///< next version
  const std::byte* gradients; ///< sums; of a parameter with several uses, at its first row
  std::byte* state;           ///< the optimizer block, as Optimizer::layout() has it
};

/// What the update is.
struct UpdateStep {
  double learningRate;      ///< already scaled for the stage and scheduled
  double rateFactor = 1;    ///< the same for a parameter with a learning rate of its own: its factor
  std::int64_t minibatches; ///< that the gradients are sums of
  std::int64_t count;       ///< this is the stage's count-th update, from 1
  double gradientScale = 1; ///< factor of the mean gradient: clipping, divided by the loss scale
};

/// A trained parameter and where its gradients are.
struct TrainedParameter {
  const ParameterRow* row;
  std::size_t gradient; ///< offset of its first use's accumulator, which will hold the sum; none if it is early
  /// All its uses, in program order: the offset of an accumulator here, or a row of Stage::sharedUses of which the
  /// gradient comes from another stage.
  struct Use {
    std::size_t offset = 0;
    int shared = -1;
  };
  std::vector<Use> uses;
  ParameterUpdate update;
  std::optional<double> learningRate; ///< of its groups, instead of the training's
  double weightDecay = 0;
  /// Added to the count of updates: a parameter may have come from a checkpoint of a stage that made more or fewer.
  std::int64_t updatesBefore = 0;
};

/// The arrays of one parameter, or of some of its elements, and the numbers of the step in f32.
struct UpdateSlice {
  const float* old;
  float* fresh;
  const float* gradient;
  float* first;  ///< velocity, or first moment
  float* second; ///< second moment
  std::int64_t count;
  std::int64_t update; ///< this is the parameter's so many-th, from 1
  float minibatches, scale, learningRate, weightDecay;

  /// Of these of its elements.
  UpdateSlice partOf(Elements elements) const {
    UpdateSlice part = *this;
    for (float** data : {&part.fresh, &part.first, &part.second})
      if (*data) *data += elements.begin;
    part.old += elements.begin;
    part.gradient += elements.begin;
    part.count = std::min(elements.count, count - elements.begin);
    return part;
  }
};

namespace device {
/// Makes the formulas above of all `slices`, of which none writes what another one reads or writes.
void update(Stream& q, std::span<const UpdateSlice> slices, const Training& training);
} // namespace device

/// Which of the replicas that divide a stage's updates this is.
struct ShardPlace {
  int replicas = 1, replica = 0; ///< one replica: nothing is divided
  int owners = 0;                ///< of the replicas that have everything together; 0: all
  bool weights = false;          ///< the blocks of weights and gradients have the shard only, as that of the state has
};

class Optimizer {
public:
  Optimizer(const Training& training, const Stage& stage, ShardPlace place = {});

  /// The trained parameters of the stage, in the order of their first gradient rows.
  std::span<const TrainedParameter> parameters() const { return parameters_; }
  std::span<TrainedParameter> parameters() { return parameters_; }
  /// Bytes of their values, without padding.
  std::size_t trainedBytes() const;
  const OptimizerLayout& layout() const { return layout_; }
  /// Null: it updates whole parameters.
  const Shards* shards() const { return shards_ ? &*shards_ : nullptr; }
  /// What it updates of parameters(), where it has a shard.
  struct Own {
    const TrainedParameter* parameter;
    Shards::Range range;
  };
  std::span<const Own> own() const { return own_; }

  /// Adds the gradients of several uses of a parameter, in program order, into its first accumulator. `arrived` has
  /// those of uses in other stages, by row of Stage::sharedUses; null for what did not come.
  void addUses(Stream& q, std::byte* gradients, std::span<const std::byte* const> arrived = {}) const;
  /// The same for one of parameters().
  void addUses(Stream& q, const TrainedParameter& parameter, std::byte* gradients,
               std::span<const std::byte* const> arrived = {}) const;

  /// Makes the next version of all trained parameters but those that are early, or of its shard of them.
  void update(Stream& q, const UpdateBlocks& blocks, const UpdateStep& step) const;

  /// The same for some elements of one early parameter, a row of Stage::parameters; `gradient` has theirs.
  void updateOne(Stream& q, int row, const float* gradient, Elements elements, const UpdateBlocks& blocks,
                 const UpdateStep& step) const;
  bool hasEarly() const { return early_; }

private:
  UpdateSlice sliceOf(const TrainedParameter& parameter, const float* gradient, const UpdateBlocks& blocks,
                      const UpdateStep& step) const;

  const Training& training_;
  std::optional<Shards> shards_;
  OptimizerLayout layout_;
  bool inShards_; ///< ShardPlace::weights
  std::vector<Own> own_;
  std::vector<TrainedParameter> parameters_;
  mutable std::vector<const float*> terms_; ///< of the sum that is being made
  mutable std::vector<UpdateSlice> slices_; ///< of the update that is being made
  std::vector<int> ofRow_; ///< index into parameters_ by row of Stage::parameters; -1: it is not trained
  bool early_ = false;
};

} // namespace pdcrt
