// See BatchNorm.h. Two passes for the statistics: the variance is the mean square of x - mean, which does not cancel.
#include "pdcrt/kernels/BatchNorm.h"

#include "Shapes.h"
#include "Sums.h"

#include <cmath>
#include <stdexcept>

namespace pdcrt {
namespace {

/// How one channel of [samples, channels, inner] lies in memory.
struct Channel {
  std::int64_t samples, stride, inner; ///< `stride` between samples
};

PDCRT_VECTORIZED double sum(Channel c, const float* x) {
  double total = 0;
  for (std::int64_t n = 0; n < c.samples; ++n, x += c.stride)
    total += sumOf(c.inner, [x](std::int64_t i) { return x[i]; });
  return total;
}

PDCRT_VECTORIZED double sumOfSquares(Channel c, const float* x, double mean) {
  double total = 0;
  for (std::int64_t n = 0; n < c.samples; ++n, x += c.stride)
    total += sumOf(c.inner, [x, mean](std::int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  return total;
}

PDCRT_VECTORIZED double sumOfProducts(Channel c, const float* dy, const float* x, double mean) {
  double total = 0;
  for (std::int64_t n = 0; n < c.samples; ++n, x += c.stride, dy += c.stride)
    total += sumOf(c.inner, [x, dy, mean](std::int64_t i) { return dy[i] * (x[i] - mean); });
  return total;
}

/// y = (x - mean) · factor + bias. The mean is taken off first: folded into the bias it would cancel.
PDCRT_VECTORIZED void normalise(Channel c, const float* x, float mean, float factor, float bias, float* y) {
  for (std::int64_t n = 0; n < c.samples; ++n, x += c.stride, y += c.stride)
    for (std::int64_t i = 0; i < c.inner; ++i) y[i] = (x[i] - mean) * factor + bias;
}

/// dx = (dy - meanDy - (x - mean) · slope) · factor.
PDCRT_VECTORIZED void differentiate(Channel c, const float* dy, const float* x, float mean, float meanDy, float slope,
                                    float factor, float* dx) {
  for (std::int64_t n = 0; n < c.samples; ++n, x += c.stride, dy += c.stride, dx += c.stride)
    for (std::int64_t i = 0; i < c.inner; ++i) dx[i] = (dy[i] - meanDy - (x[i] - mean) * slope) * factor;
}

PDCRT_VECTORIZED void scaleBy(Channel c, const float* dy, float factor, float* dx) {
  for (std::int64_t n = 0; n < c.samples; ++n, dy += c.stride, dx += c.stride)
    for (std::int64_t i = 0; i < c.inner; ++i) dx[i] = dy[i] * factor;
}

} // namespace

BatchNorm::BatchNorm(Setup&, const Options& o) : epsilon_(o.epsilon), momentum_(o.momentum) {
  if (o.input.rank < 2)
    throw std::runtime_error("batch normalisation of " + toString(o.input) + ": it has no channel axis");
  samples_ = o.input.dims[0];
  channels_ = o.input.dims[1];
  inner_ = 1;
  for (int axis = 2; axis < o.input.rank; ++axis) inner_ *= o.input.dims[axis];
}

void BatchNorm::forward(Stream&, View<const float> x, View<const float> scale, View<const float> bias,
                        View<const float> runningMean, View<const float> runningVariance, View<float> y) const {
  const Channel channel = {samples_, channels_ * inner_, inner_};
  for (std::int64_t c = 0; c < channels_; ++c) {
    const double inverse = 1 / std::sqrt(runningVariance[c] + epsilon_);
    normalise(channel, x.data + c * inner_, runningMean[c], static_cast<float>(scale[c] * inverse), bias[c],
              y.data + c * inner_);
  }
}

void BatchNorm::trainForward(Stream&, View<const float> x, View<const float> scale, View<const float> bias,
                             View<const float> runningMean, View<const float> runningVariance, View<float> y,
                             View<float> mean, View<float> inverseStd, View<float> newRunningMean,
                             View<float> newRunningVariance) const {
  const Channel channel = {samples_, channels_ * inner_, inner_};
  const double count = static_cast<double>(samples_ * inner_);
  for (std::int64_t c = 0; c < channels_; ++c) {
    const float* const in = x.data + c * inner_;
    const double average = sum(channel, in) / count, variance = sumOfSquares(channel, in, average) / count;
    const double inverse = 1 / std::sqrt(variance + epsilon_);
    mean[c] = static_cast<float>(average);
    inverseStd[c] = static_cast<float>(inverse);
    normalise(channel, in, mean[c], static_cast<float>(scale[c] * inverse), bias[c], y.data + c * inner_);
    if (newRunningMean) newRunningMean[c] = static_cast<float>(runningMean[c] * momentum_ + average * (1 - momentum_));
    if (newRunningVariance)
      newRunningVariance[c] = static_cast<float>(runningVariance[c] * momentum_ + variance * (1 - momentum_));
  }
}

void BatchNorm::gradient(Stream&, View<const float> dy, View<const float> x, View<const float> scale,
                         View<const float> mean, View<const float> inverseStd, View<float> dx, View<float> dscale,
                         View<float> dbias) const {
  // With x̂ = (x - mean) · inverseStd:  dbias = Σ dy,  dscale = Σ dy · x̂,
  // dx = scale · inverseStd · (dy - dbias / count - x̂ · dscale / count).
  const Channel channel = {samples_, channels_ * inner_, inner_};
  const double count = static_cast<double>(samples_ * inner_);
  for (std::int64_t c = 0; c < channels_; ++c) {
    const float *const dOut = dy.data + c * inner_, *const in = x.data + c * inner_;
    const double inverse = inverseStd[c], biasGradient = sum(channel, dOut),
                 scaleGradient = sumOfProducts(channel, dOut, in, mean[c]) * inverse;
    dscale[c] = static_cast<float>(scaleGradient);
    dbias[c] = static_cast<float>(biasGradient);
    differentiate(channel, dOut, in, mean[c], static_cast<float>(biasGradient / count),
                  static_cast<float>(scaleGradient * inverse / count), static_cast<float>(scale[c] * inverse),
                  dx.data + c * inner_);
  }
}

void BatchNorm::frozenGradient(Stream&, View<const float> dy, View<const float> x, View<const float> scale,
                               View<const float> runningMean, View<const float> runningVariance, View<float> dx,
                               View<float> dscale, View<float> dbias) const {
  const Channel channel = {samples_, channels_ * inner_, inner_};
  for (std::int64_t c = 0; c < channels_; ++c) {
    const float* const dOut = dy.data + c * inner_;
    const double inverse = 1 / std::sqrt(runningVariance[c] + epsilon_);
    // Before dx, which may be dy's memory.
    if (dscale)
      dscale[c] = static_cast<float>(sumOfProducts(channel, dOut, x.data + c * inner_, runningMean[c]) * inverse);
    if (dbias) dbias[c] = static_cast<float>(sum(channel, dOut));
    if (dx) scaleBy(channel, dOut, static_cast<float>(scale[c] * inverse), dx.data + c * inner_);
  }
}

} // namespace pdcrt
