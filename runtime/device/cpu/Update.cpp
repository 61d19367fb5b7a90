// The updates of parameters on the CPU, one after the other: one loop per optimizer. They become vector code, which is
// bound by memory.
#include "Parts.h"
#include "Sums.h"
#include "pdcrt/Optimizer.h"

#include <cmath>

namespace pdcrt {
namespace {

/// The mean gradient of element i, clipped and with weight decay. Without decay it keeps its bits, the sign of a zero
/// too.
template <bool decays>
PDCRT_INLINE float meanGradient(const UpdateSlice& s, std::int64_t i) {
  const float mean = s.gradient[i] / s.minibatches * s.scale;
  return decays ? mean + s.weightDecay * s.old[i] : mean;
}

template <bool decays>
PDCRT_INLINE void sgd(const UpdateSlice& s) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < s.count; ++i) s.fresh[i] = s.old[i] - s.learningRate * meanGradient<decays>(s, i);
}

template <bool decays, bool nesterov>
PDCRT_INLINE void momentum(const UpdateSlice& s, float factor) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < s.count; ++i) {
    const float g = meanGradient<decays>(s, i), velocity = factor * s.first[i] + g;
    s.first[i] = velocity;
    s.fresh[i] = s.old[i] - s.learningRate * (nesterov ? g + factor * velocity : velocity);
  }
}

/// What an update multiplies.
struct AdamFactors {
  float beta1, beta2, rest1, rest2, rate, root, epsilon, keep;

  AdamFactors(const Training& training, const UpdateSlice& s)
      : beta1(static_cast<float>(training.beta1)), beta2(static_cast<float>(training.beta2)),
        rest1(static_cast<float>(1 - training.beta1)), rest2(static_cast<float>(1 - training.beta2)),
        rate(static_cast<float>(static_cast<double>(s.learningRate) /
                                (1 - std::pow(training.beta1, static_cast<double>(s.update))))),
        root(static_cast<float>(std::sqrt(1 - std::pow(training.beta2, static_cast<double>(s.update))))),
        epsilon(static_cast<float>(training.epsilon)),
        keep(training.optimizer == OptimizerKind::adamw ? 1 - s.learningRate * s.weightDecay : 1) {}
};

template <bool decays>
PDCRT_INLINE void adam(const UpdateSlice& s, const AdamFactors& f) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < s.count; ++i) {
    const float g = meanGradient<decays>(s, i);
    const float first = f.beta1 * s.first[i] + f.rest1 * g, second = f.beta2 * s.second[i] + f.rest2 * g * g;
    s.first[i] = first;
    s.second[i] = second;
    s.fresh[i] = f.keep * s.old[i] - f.rate * first / (std::sqrt(second) / f.root + f.epsilon);
  }
}

// Arguments by value: what the loops write must not change them.

PDCRT_VECTORIZED void sgd(UpdateSlice s, bool decays) {
  decays ? sgd<true>(s) : sgd<false>(s);
}

PDCRT_VECTORIZED void momentum(UpdateSlice s, bool decays, float factor, bool nesterov) {
  if (nesterov)
    decays ? momentum<true, true>(s, factor) : momentum<false, true>(s, factor);
  else
    decays ? momentum<true, false>(s, factor) : momentum<false, false>(s, factor);
}

PDCRT_VECTORIZED void adam(UpdateSlice s, bool decays, AdamFactors f) {
  decays ? adam<true>(s, f) : adam<false>(s, f);
}

void updatePart(const UpdateSlice& slice, const Training& training) {
  const bool decays = slice.weightDecay != 0;
  switch (training.optimizer) {
  case OptimizerKind::sgd: return sgd(slice, decays);
  case OptimizerKind::momentum:
    return momentum(slice, decays, static_cast<float>(training.momentum), training.nesterov);
  case OptimizerKind::adam: return adam(slice, decays, {training, slice});
  case OptimizerKind::adamw: return adam(slice, false, {training, slice});
  }
}

} // namespace

void device::update(Stream&, std::span<const UpdateSlice> slices, const Training& training) {
  for (const UpdateSlice& slice : slices)
    parts::runLines(slice.count, slice.count, [&](std::int64_t begin, std::int64_t end) {
      updatePart(slice.partOf({begin, end - begin}), training);
    });
}

} // namespace pdcrt
