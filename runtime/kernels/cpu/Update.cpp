// The optimizers' formulas (Optimizer.h). One loop each; the compiler vectorises all.
#include "pdcrt/Optimizer.h"

#include <cmath>

namespace pdcrt {
namespace {

/// The mean gradient of element i, clipped.
float mean(const UpdateSlice& s, std::int64_t i) {
  return s.gradient[i] / s.minibatches * s.scale;
}

/// Without decay the gradient keeps its bits, the sign of a zero too.
float decayed(float gradient, float decay, float weight) {
  return decay == 0 ? gradient : gradient + decay * weight;
}

void sgd(const UpdateSlice& s) {
  for (std::int64_t i = 0; i < s.count; ++i) {
    float g = decayed(mean(s, i), s.weightDecay, s.old[i]);
    s.fresh[i] = s.old[i] - s.learningRate * g;
  }
}

void momentum(const UpdateSlice& s, float factor, bool nesterov) {
  for (std::int64_t i = 0; i < s.count; ++i) {
    float g = decayed(mean(s, i), s.weightDecay, s.old[i]);
    float velocity = factor * s.first[i] + g;
    s.first[i] = velocity;
    float direction = nesterov ? g + factor * velocity : velocity;
    s.fresh[i] = s.old[i] - s.learningRate * direction;
  }
}

void adam(const UpdateSlice& s, const Training& training, std::int64_t t) {
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
    float g = decayed(mean(s, i), coupled, s.old[i]);
    s.first[i] = beta1 * s.first[i] + rest1 * g;
    s.second[i] = beta2 * s.second[i] + rest2 * g * g;
    s.fresh[i] = keep * s.old[i] - rate * s.first[i] / (std::sqrt(s.second[i]) / root + epsilon);
  }
}

} // namespace

void device::update(Stream&, const UpdateSlice& slice, const Training& training, std::int64_t t) {
  switch (training.optimizer) {
  case OptimizerKind::sgd: return sgd(slice);
  case OptimizerKind::momentum: return momentum(slice, static_cast<float>(training.momentum), training.nesterov);
  case OptimizerKind::adam:
  case OptimizerKind::adamw: return adam(slice, training, t);
  }
}

} // namespace pdcrt
