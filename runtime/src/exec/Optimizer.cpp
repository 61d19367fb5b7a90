// What is updated with which numbers; the loops are the device's.
#include "pdcrt/Optimizer.h"

#include <algorithm>

namespace pdcrt {

static std::optional<Shards> shardsOf(const Stage& stage, const ShardPlace& place) {
  if (place.replicas == 1) return std::nullopt;
  return Shards(shardedParameters(stage.parameters), place.replicas, place.owners);
}

Optimizer::Optimizer(const Training& training, const Stage& stage, ShardPlace place)
    : training_(training), shards_(shardsOf(stage, place)),
      layout_(training, shards_ ? static_cast<std::size_t>(shards_->most()) * sizeof(float) : stage.bytes.weights),
      inShards_(place.weights), ofRow_(stage.parameters.size(), -1) {
  auto add = [&](std::size_t row, std::size_t gradient) {
    const ParameterRow& parameter = stage.parameters[row];
    TrainedParameter trained{.row = &parameter,
                             .gradient = gradient,
                             .update = updateOf(training, parameter),
                             .weightDecay = training.weightDecay};
    for (const ParameterGroup& group : training.groups)
      if (matches(group, parameter.name, parameter.shape.rank)) {
        if (group.learningRate) trained.learningRate = group.learningRate;
        if (group.weightDecay) trained.weightDecay = *group.weightDecay;
      }
    ofRow_[row] = static_cast<int>(parameters_.size());
    parameters_.push_back(std::move(trained));
  };
  for (const GradientRow& row : stage.gradients) {
    const auto parameter = static_cast<std::size_t>(row.parameter);
    if (!stage.parameters[parameter].trained) continue;
    if (ofRow_[parameter] < 0) add(parameter, row.offset);
    parameters_[static_cast<std::size_t>(ofRow_[parameter])].uses.push_back({.offset = row.offset});
  }
  for (std::size_t row = 0; row < stage.parameters.size(); ++row)
    if (stage.parameters[row].early) {
      add(row, 0);
      early_ = true;
    }
  // Uses elsewhere, in ascending position: those before one have their places already.
  std::vector<int> order;
  for (std::size_t i = 0; i < stage.sharedUses.size(); ++i)
    if (stage.sharedValues[static_cast<std::size_t>(stage.sharedUses[i].value)].parameter >= 0)
      order.push_back(static_cast<int>(i));
  auto position = [&](int use) { return stage.sharedUses[static_cast<std::size_t>(use)].position; };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return position(a) < position(b); });
  for (int use : order) {
    const int value = stage.sharedUses[static_cast<std::size_t>(use)].value;
    const int index = stage.sharedValues[static_cast<std::size_t>(value)].parameter;
    const ParameterRow* parameter = &stage.parameters[static_cast<std::size_t>(index)];
    for (TrainedParameter& trained : parameters_)
      if (trained.row == parameter) trained.uses.insert(trained.uses.begin() + position(use), {.shared = use});
  }
  if (shards_)
    for (const Shards::Range& range : shards_->of(shards_->shardOf(place.replica)))
      if (const int index = ofRow_[static_cast<std::size_t>(range.row)]; index >= 0)
        own_.push_back({&parameters_[static_cast<std::size_t>(index)], range});
  std::size_t most = 0;
  for (const TrainedParameter& trained : parameters_) most = std::max(most, trained.uses.size());
  terms_.reserve(most);
  slices_.reserve(std::max(parameters_.size(), own_.size()));
}

std::size_t Optimizer::trainedBytes() const {
  std::size_t bytes = 0;
  for (const TrainedParameter& parameter : parameters_)
    bytes += static_cast<std::size_t>(parameter.row->shape.elements()) * bytesOf(parameter.row->element);
  return bytes;
}

void Optimizer::addUses(Stream& q, std::byte* gradients, std::span<const std::byte* const> arrived) const {
  for (const TrainedParameter& parameter : parameters_) addUses(q, parameter, gradients, arrived);
}

void Optimizer::addUses(Stream& q, const TrainedParameter& parameter, std::byte* gradients,
                        std::span<const std::byte* const> arrived) const {
  if (parameter.uses.size() <= 1) return;
  terms_.clear();
  for (const TrainedParameter::Use& use : parameter.uses) {
    const std::byte* from = use.shared < 0 ? gradients + use.offset : arrived[static_cast<std::size_t>(use.shared)];
    if (from) terms_.push_back(reinterpret_cast<const float*>(from));
  }
  if (!terms_.empty())
    device::addUp(q, reinterpret_cast<float*>(gradients + parameter.gradient), terms_, parameter.row->shape.elements());
}

void Optimizer::update(Stream& q, const UpdateBlocks& blocks, const UpdateStep& step) const {
  slices_.clear();
  for (const Own& own : own_) {
    const auto* gradient = reinterpret_cast<const float*>(blocks.gradients + own.parameter->gradient);
    UpdateSlice slice = sliceOf(*own.parameter, gradient, blocks, step).partOf({own.range.begin, own.range.count});
    for (std::size_t piece = 0; piece < layout_.pieces(*own.parameter->row).size(); ++piece)
      (piece == 0 ? slice.first : slice.second) =
          reinterpret_cast<float*>(blocks.state + layout_.offsetOf(piece, own.range.at));
    if (inShards_) {
      const std::size_t at = static_cast<std::size_t>(own.range.at) * sizeof(float);
      slice.old = reinterpret_cast<const float*>(blocks.old + at);
      slice.fresh = reinterpret_cast<float*>(blocks.fresh + at);
      slice.gradient = reinterpret_cast<const float*>(blocks.gradients + at);
    }
    slices_.push_back(slice);
  }
  for (const TrainedParameter& parameter : parameters_)
    if (!shards_ && !parameter.row->early)
      slices_.push_back(
          sliceOf(parameter, reinterpret_cast<const float*>(blocks.gradients + parameter.gradient), blocks, step));
  device::update(q, slices_, training_);
}

void Optimizer::updateOne(Stream& q, int row, const float* gradient, Elements elements, const UpdateBlocks& blocks,
                          const UpdateStep& step) const {
  const TrainedParameter& parameter = parameters_[static_cast<std::size_t>(ofRow_[static_cast<std::size_t>(row)])];
  UpdateSlice slice = sliceOf(parameter, gradient, blocks, step).partOf(elements);
  slice.gradient = gradient;
  device::update(q, {&slice, 1}, training_);
}

UpdateSlice Optimizer::sliceOf(const TrainedParameter& parameter, const float* gradient, const UpdateBlocks& blocks,
                               const UpdateStep& step) const {
  const ParameterRow& row = *parameter.row;
  const std::size_t pieces = shards_ ? 0 : layout_.pieces(row).size(); // of a shard they lie elsewhere
  auto state = [&](std::size_t piece) {
    return piece < pieces ? reinterpret_cast<float*>(blocks.state + layout_.offsetOf(piece, row)) : nullptr;
  };
  return {
      .old = reinterpret_cast<const float*>(blocks.old + row.offset),
      .fresh = reinterpret_cast<float*>(blocks.fresh + row.offset),
      .gradient = gradient,
      .first = state(0),
      .second = state(1),
      .count = row.shape.elements(),
      .update = step.count + parameter.updatesBefore,
      .minibatches = static_cast<float>(step.minibatches),
      .scale = static_cast<float>(step.gradientScale),
      .learningRate =
          static_cast<float>((parameter.learningRate ? *parameter.learningRate * step.rateFactor : step.learningRate) *
                             row.learningRateScale),
      .weightDecay = static_cast<float>(parameter.weightDecay * row.weightDecayScale),
  };
}

} // namespace pdcrt
