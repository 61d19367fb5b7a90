// One loop per optimizer; the compiler vectorises each.
#include "pdcrt/Optimizer.h"

#include <algorithm>
#include <cmath>

namespace pdcrt {
namespace {

/// The arrays of one parameter, and the numbers of the step in f32.
struct Slice {
  const float* old;
  float* fresh;
  const float* gradient;
  float* first;  ///< velocity, or first moment
  float* second; ///< second moment
  std::int64_t count;
  float minibatches, scale, learningRate, weightDecay;

  /// The mean gradient of element i, clipped.
  float mean(std::int64_t i) const { return gradient[i] / minibatches * scale; }
};

/// Without decay the gradient keeps its bits, the sign of a zero too.
float decayed(float gradient, float decay, float weight) {
  return decay == 0 ? gradient : gradient + decay * weight;
}

void sgd(const Slice& s) {
  for (std::int64_t i = 0; i < s.count; ++i) {
    float g = decayed(s.mean(i), s.weightDecay, s.old[i]);
    s.fresh[i] = s.old[i] - s.learningRate * g;
  }
}

void momentum(const Slice& s, float factor, bool nesterov) {
  for (std::int64_t i = 0; i < s.count; ++i) {
    float g = decayed(s.mean(i), s.weightDecay, s.old[i]);
    float velocity = factor * s.first[i] + g;
    s.first[i] = velocity;
    float direction = nesterov ? g + factor * velocity : velocity;
    s.fresh[i] = s.old[i] - s.learningRate * direction;
  }
}

void adam(const Slice& s, const Training& training, std::int64_t t) {
  const bool decoupled = training.optimizer == OptimizerKind::adamw;
  const float beta1 = static_cast<float>(training.beta1), beta2 = static_cast<float>(training.beta2);
  const float rest1 = static_cast<float>(1 - training.beta1), rest2 = static_cast<float>(1 - training.beta2);
  const float rate =
      static_cast<float>(static_cast<double>(s.learningRate) / (1 - std::pow(training.beta1, static_cast<double>(t))));
  const float root = static_cast<float>(std::sqrt(1 - std::pow(training.beta2, static_cast<double>(t))));
  const float epsilon = static_cast<float>(training.epsilon);
  const float keep = decoupled ? 1 - s.learningRate * s.weightDecay : 1;
  const float coupled = decoupled ? 0 : s.weightDecay;
  for (std::int64_t i = 0; i < s.count; ++i) {
    float g = decayed(s.mean(i), coupled, s.old[i]);
    s.first[i] = beta1 * s.first[i] + rest1 * g;
    s.second[i] = beta2 * s.second[i] + rest2 * g * g;
    s.fresh[i] = keep * s.old[i] - rate * s.first[i] / (std::sqrt(s.second[i]) / root + epsilon);
  }
}

} // namespace

Optimizer::Optimizer(const Training& training, const Stage& stage) : training_(training) {
  for (const GradientRow& row : stage.gradients) {
    const ParameterRow* parameter = &stage.parameters[static_cast<std::size_t>(row.parameter)];
    if (!parameter->trained) continue;
    auto known = std::find_if(parameters_.begin(), parameters_.end(),
                              [&](const TrainedParameter& trained) { return trained.row == parameter; });
    if (known == parameters_.end()) {
      TrainedParameter trained{.row = parameter, .gradient = row.offset, .weightDecay = training.weightDecay};
      for (const ParameterGroup& group : training.groups)
        if (matches(group, parameter->name, parameter->shape.rank)) {
          if (group.learningRate) trained.learningRate = group.learningRate;
          if (group.weightDecay) trained.weightDecay = *group.weightDecay;
        }
      parameters_.push_back(std::move(trained));
      known = parameters_.end() - 1;
    }
    known->uses.push_back({.offset = row.offset});
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
}

std::size_t Optimizer::trainedBytes() const {
  std::size_t bytes = 0;
  for (const TrainedParameter& parameter : parameters_)
    bytes += static_cast<std::size_t>(parameter.row->shape.elements()) * bytesOf(parameter.row->element);
  return bytes;
}

void Optimizer::addUses(std::byte* gradients, std::span<const std::byte* const> arrived) const {
  for (const TrainedParameter& parameter : parameters_) {
    if (parameter.uses.size() == 1) continue;
    auto* sum = reinterpret_cast<float*>(gradients + parameter.gradient);
    const std::int64_t elements = parameter.row->shape.elements();
    // In blocks that stay in the first-level cache; the place of the sum may be that of any use.
    constexpr std::int64_t blockSize = 1024;
    float total[blockSize];
    for (std::int64_t begin = 0; begin < elements; begin += blockSize) {
      const std::int64_t count = std::min(blockSize, elements - begin);
      bool any = false;
      for (const TrainedParameter::Use& use : parameter.uses) {
        const std::byte* from = use.shared < 0 ? gradients + use.offset : arrived[static_cast<std::size_t>(use.shared)];
        if (!from) continue;
        const float* more = reinterpret_cast<const float*>(from) + begin;
        for (std::int64_t i = 0; i < count; ++i) total[i] = any ? total[i] + more[i] : more[i];
        any = true;
      }
      if (any) std::copy_n(total, count, sum + begin);
    }
  }
}

void Optimizer::update(const UpdateBlocks& blocks, const UpdateStep& step) const {
  const std::size_t stateBlocks = optimizerBlocks(training_);
  for (const TrainedParameter& parameter : parameters_) {
    const ParameterRow& row = *parameter.row;
    auto state = [&](std::size_t block) {
      return block < stateBlocks ? reinterpret_cast<float*>(blocks.state + block * blocks.stateStride + row.offset)
                                 : nullptr;
    };
    const Slice slice = {
        .old = reinterpret_cast<const float*>(blocks.old + row.offset),
        .fresh = reinterpret_cast<float*>(blocks.fresh + row.offset),
        .gradient = reinterpret_cast<const float*>(blocks.gradients + parameter.gradient),
        .first = state(0),
        .second = state(1),
        .count = row.shape.elements(),
        .minibatches = static_cast<float>(step.minibatches),
        .scale = static_cast<float>(step.gradientScale),
        .learningRate = static_cast<float>(
            (parameter.learningRate ? *parameter.learningRate * step.rateFactor : step.learningRate) *
            row.learningRateScale),
        .weightDecay = static_cast<float>(parameter.weightDecay * row.weightDecayScale),
    };
    switch (training_.optimizer) {
    case OptimizerKind::sgd: sgd(slice); break;
    case OptimizerKind::momentum: momentum(slice, static_cast<float>(training_.momentum), training_.nesterov); break;
    case OptimizerKind::adam:
    case OptimizerKind::adamw: adam(slice, training_, step.count); break;
    }
  }
}

} // namespace pdcrt
