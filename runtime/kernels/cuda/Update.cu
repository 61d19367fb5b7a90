// The optimizers' formulas (Optimizer.h), one thread per element.
#include "pdcrt/Optimizer.h"

#include "Cuda.h"

namespace pdcrt {
namespace {

/// The mean gradient of element i, clipped.
__device__ float mean(const UpdateSlice& s, std::int64_t i) {
  return s.gradient[i] / s.minibatches * s.scale;
}

/// Without decay the gradient keeps its bits, the sign of a zero too.
__device__ float decayed(float gradient, float decay, float weight) {
  return decay == 0 ? gradient : gradient + decay * weight;
}

__global__ void sgd(UpdateSlice s) {
  for (std::int64_t i = thread(); i < s.count; i += threads())
    s.fresh[i] = s.old[i] - s.learningRate * decayed(mean(s, i), s.weightDecay, s.old[i]);
}

__global__ void momentum(UpdateSlice s, float factor, bool nesterov) {
  for (std::int64_t i = thread(); i < s.count; i += threads()) {
    const float g = decayed(mean(s, i), s.weightDecay, s.old[i]), velocity = factor * s.first[i] + g;
    s.first[i] = velocity;
    s.fresh[i] = s.old[i] - s.learningRate * (nesterov ? g + factor * velocity : velocity);
  }
}

struct AdamNumbers {
  float beta1, beta2, rest1, rest2, rate, root, epsilon, keep, coupledDecay;
};

__global__ void adam(UpdateSlice s, AdamNumbers n) {
  for (std::int64_t i = thread(); i < s.count; i += threads()) {
    const float g = decayed(mean(s, i), n.coupledDecay, s.old[i]);
    const float first = n.beta1 * s.first[i] + n.rest1 * g, second = n.beta2 * s.second[i] + n.rest2 * g * g;
    s.first[i] = first;
    s.second[i] = second;
    s.fresh[i] = n.keep * s.old[i] - n.rate * first / (std::sqrt(second) / n.root + n.epsilon);
  }
}

AdamNumbers adamNumbers(const UpdateSlice& s, const Training& training, std::int64_t t) {
  const bool decoupled = training.optimizer == OptimizerKind::adamw;
  const auto count = static_cast<double>(t);
  return {.beta1 = static_cast<float>(training.beta1),
          .beta2 = static_cast<float>(training.beta2),
          .rest1 = static_cast<float>(1 - training.beta1),
          .rest2 = static_cast<float>(1 - training.beta2),
          .rate = static_cast<float>(static_cast<double>(s.learningRate) / (1 - std::pow(training.beta1, count))),
          .root = static_cast<float>(std::sqrt(1 - std::pow(training.beta2, count))),
          .epsilon = static_cast<float>(training.epsilon),
          .keep = decoupled ? 1 - s.learningRate * s.weightDecay : 1,
          .coupledDecay = decoupled ? 0 : s.weightDecay};
}

} // namespace

void device::update(Stream& q, const UpdateSlice& slice, const Training& training, std::int64_t t) {
  switch (training.optimizer) {
  case OptimizerKind::sgd: return launchLoop(q, "sgd", sgd, slice.count, slice);
  case OptimizerKind::momentum:
    return launchLoop(q, "momentum", momentum, slice.count, slice, static_cast<float>(training.momentum),
                      training.nesterov);
  case OptimizerKind::adam:
  case OptimizerKind::adamw: return launchLoop(q, "adam", adam, slice.count, slice, adamNumbers(slice, training, t));
  }
}

} // namespace pdcrt
