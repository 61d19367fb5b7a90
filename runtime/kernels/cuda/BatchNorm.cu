// See BatchNorm.h. Own kernels and not cuDNN's, which average the variance over count - 1 into the running one, where
// ONNX's is over count. Sums of a channel are cut into parts (SumParts), each for one block; those of the statistics
// are of x - x[0], in double precision, so that neither a large mean nor the square cancels.
#include "pdcrt/kernels/BatchNorm.h"

#include "Divider.h"
#include "Shapes.h"
#include "pdcrt/CudaWorkspace.h"

namespace pdcrt {
namespace {

using cuda::blockSum;

struct Sizes {
  std::int64_t samples, channels, inner;
  cuda::SumParts parts;
  cuda::Divider byChannels, byInner;

  /// Of element i.
  __device__ std::int64_t channelOf(std::int64_t i) const { return byChannels.remainder(byInner.quotient(i)); }
  __device__ std::int64_t terms() const { return samples * inner; }
  /// Where term i of channel c is.
  __device__ std::int64_t at(std::int64_t c, std::int64_t i) const {
    const std::int64_t sample = byInner.quotient(i);
    return (sample * channels + c) * inner + i - sample * inner;
  }
  __device__ std::int64_t end(std::int64_t part) const {
    return (part + 1) * parts.size < terms() ? (part + 1) * parts.size : terms();
  }
};

/// Two sums of a part of a channel.
struct Pair {
  double first, second;
};

/// Of d and d², d = x - x[0].
__global__ void addDeviations(Sizes s, const float* x, Pair* partial) {
  for (std::int64_t block = blockIdx.x; block < s.channels * s.parts.parts; block += gridDim.x) {
    const std::int64_t c = block / s.parts.parts, part = block % s.parts.parts;
    const double origin = x[s.at(c, 0)];
    double sum = 0, squares = 0;
    for (std::int64_t i = part * s.parts.size + threadIdx.x; i < s.end(part); i += blockDim.x) {
      const double d = x[s.at(c, i)] - origin;
      sum += d;
      squares += d * d;
    }
    sum = blockSum(sum);
    squares = blockSum(squares);
    if (threadIdx.x == 0) partial[block] = {sum, squares};
  }
}

struct Statistics {
  const float *runningMean, *runningVariance;
  float *mean, *inverse, *newRunningMean, *newRunningVariance;
  double epsilon, momentum;
};

__global__ void finishStatistics(Sizes s, const float* x, const Pair* partial, Statistics to) {
  for (std::int64_t c = thread(); c < s.channels; c += threads()) {
    double sum = 0, squares = 0;
    for (std::int64_t part = 0; part < s.parts.parts; ++part) {
      sum += partial[c * s.parts.parts + part].first;
      squares += partial[c * s.parts.parts + part].second;
    }
    const double count = static_cast<double>(s.terms()), offset = sum / count;
    const double average = x[s.at(c, 0)] + offset, spread = squares / count - offset * offset;
    const double variance = spread < 0 ? 0 : spread;
    to.mean[c] = static_cast<float>(average);
    to.inverse[c] = static_cast<float>(1 / std::sqrt(variance + to.epsilon));
    if (to.newRunningMean)
      to.newRunningMean[c] = static_cast<float>(to.runningMean[c] * to.momentum + average * (1 - to.momentum));
    if (to.newRunningVariance)
      to.newRunningVariance[c] = static_cast<float>(to.runningVariance[c] * to.momentum + variance * (1 - to.momentum));
  }
}

/// inverse[c] = 1 / sqrt(variance[c] + epsilon).
__global__ void invert(std::int64_t channels, const float* variance, double epsilon, float* inverse) {
  for (std::int64_t c = thread(); c < channels; c += threads())
    inverse[c] = static_cast<float>(1 / std::sqrt(variance[c] + epsilon));
}

/// y = (x - mean) · (scale · inverse) + bias, plus the residual, if there is one, and with `relu` nothing below 0. The
/// mean is taken off first: folded into the bias it would cancel.
__global__ void normalise(Sizes s, const float* x, const float* mean, const float* inverse, const float* scale,
                          const float* bias, const float* residual, bool relu, float* y) {
  for (std::int64_t i = thread(); i < s.samples * s.channels * s.inner; i += threads()) {
    const std::int64_t c = s.channelOf(i);
    float value = (x[i] - mean[c]) * (scale[c] * inverse[c]) + bias[c];
    if (residual) value = value + residual[i];
    y[i] = relu && 0.0f > value ? 0.0f : value; // a NaN stays one
  }
}

/// What of dy[i] comes through a ReLU with result y; dy[i] where there is none.
__device__ float masked(const float* dy, const float* y, std::int64_t i) {
  return y ? dy[i] * (y[i] > 0 ? 1.0f : 0.0f) : dy[i];
}

/// Of g and of g · (x - mean), where g is dy, or what of it comes through a ReLU with result y.
__global__ void addGradients(Sizes s, const float* dy, const float* y, const float* x, const float* mean,
                             Pair* partial) {
  for (std::int64_t block = blockIdx.x; block < s.channels * s.parts.parts; block += gridDim.x) {
    const std::int64_t c = block / s.parts.parts, part = block % s.parts.parts;
    double sum = 0, products = 0;
    for (std::int64_t i = part * s.parts.size + threadIdx.x; i < s.end(part); i += blockDim.x) {
      const std::int64_t at = s.at(c, i);
      const float g = masked(dy, y, at);
      sum += g;
      products += double(g) * (double(x[at]) - mean[c]);
    }
    sum = blockSum(sum);
    products = blockSum(products);
    if (threadIdx.x == 0) partial[block] = {sum, products};
  }
}

/// What the gradient of a channel's input needs of its sums.
struct Slopes {
  float meanDy, slope;
};

__global__ void finishGradients(Sizes s, const Pair* partial, const float* inverse, float* dscale, float* dbias,
                                Slopes* slopes) {
  for (std::int64_t c = thread(); c < s.channels; c += threads()) {
    double sum = 0, products = 0;
    for (std::int64_t part = 0; part < s.parts.parts; ++part) {
      sum += partial[c * s.parts.parts + part].first;
      products += partial[c * s.parts.parts + part].second;
    }
    const double count = static_cast<double>(s.terms()), scaled = products * inverse[c];
    if (dscale) dscale[c] = static_cast<float>(scaled);
    if (dbias) dbias[c] = static_cast<float>(sum);
    if (slopes) slopes[c] = {static_cast<float>(sum / count), static_cast<float>(scaled * inverse[c] / count)};
  }
}

/// dx = (g - meanDy - (x - mean) · slope) · (scale · inverse), g as above; dresidual = g.
__global__ void differentiate(Sizes s, const float* dy, const float* y, const float* x, const float* mean,
                              const float* inverse, const float* scale, const Slopes* slopes, float* dx,
                              float* dresidual) {
  for (std::int64_t i = thread(); i < s.samples * s.channels * s.inner; i += threads()) {
    const std::int64_t c = s.channelOf(i);
    const float g = masked(dy, y, i);
    dx[i] = (g - slopes[c].meanDy - (x[i] - mean[c]) * slopes[c].slope) * (scale[c] * inverse[c]);
    if (dresidual) dresidual[i] = g;
  }
}

__global__ void scaleBy(Sizes s, const float* dy, const float* scale, const float* inverse, float* dx) {
  for (std::int64_t i = thread(); i < s.samples * s.channels * s.inner; i += threads()) {
    const std::int64_t c = s.channelOf(i);
    dx[i] = dy[i] * (scale[c] * inverse[c]);
  }
}

Sizes sizesOf(std::int64_t samples, std::int64_t channels, std::int64_t inner) {
  const std::int64_t elements = samples * channels * inner;
  return {samples, channels, inner, cuda::partsOf(channels, samples * inner), {channels, elements}, {inner, elements}};
}

/// The workspace: the parts' sums, then two floats per channel.
struct Room {
  Pair* partial;
  float* perChannel;

  Room(Stream& q, const Sizes& s)
      : partial(reinterpret_cast<Pair*>(q.workspace())),
        perChannel(reinterpret_cast<float*>(partial + s.channels * s.parts.parts)) {}
};

} // namespace

BatchNorm::BatchNorm(Setup& setup, const Options& o)
    : lanes_(o.lanes), epsilon_(o.epsilon), momentum_(o.momentum), relu_(o.relu) {
  if (lanes_ != 1)
    throw std::runtime_error("batch normalisation of " + toString(o.input) + ": blocks of channels are for the CPU");
  if (o.input.rank < 2)
    throw std::runtime_error("batch normalisation of " + toString(o.input) + ": it has no channel axis");
  samples_ = o.input.dims[0];
  channels_ = o.input.dims[1];
  inner_ = 1;
  for (int axis = 2; axis < o.input.rank; ++axis) inner_ *= o.input.dims[axis];
  setup.needWorkspace(cuda::workspaceOf(o));
}

void BatchNorm::forward(Stream& q, View<const float> x, View<const float> scale, View<const float> bias,
                        View<const float> runningMean, View<const float> runningVariance, View<float> y) const {
  const Sizes s = sizesOf(samples_, channels_, inner_);
  float* const inverse = Room(q, s).perChannel;
  launchLoop(q, "batch normalisation, variance", invert, channels_, channels_, runningVariance.data, epsilon_, inverse);
  launchLoop(q, "batch normalisation", normalise, samples_ * channels_ * inner_, s, x.data, runningMean.data, inverse,
             scale.data, bias.data, nullptr, false, y.data);
}

void BatchNorm::trainForward(Stream& q, View<const float> x, View<const float> scale, View<const float> bias,
                             View<const float> runningMean, View<const float> runningVariance,
                             View<const float> residual, View<float> y, View<float> mean, View<float> inverseStd,
                             View<float> newRunningMean, View<float> newRunningVariance) const {
  const Sizes s = sizesOf(samples_, channels_, inner_);
  const Room room(q, s);
  const Statistics to = {.runningMean = runningMean.data,
                         .runningVariance = runningVariance.data,
                         .mean = mean.data,
                         .inverse = inverseStd.data,
                         .newRunningMean = newRunningMean.data,
                         .newRunningVariance = newRunningVariance.data,
                         .epsilon = epsilon_,
                         .momentum = momentum_};
  cuda::launchBlocks(q, "batch normalisation, sums", addDeviations, channels_ * s.parts.parts, s, x.data, room.partial);
  launchLoop(q, "batch normalisation, statistics", finishStatistics, channels_, s, x.data, room.partial, to);
  launchLoop(q, "batch normalisation", normalise, samples_ * channels_ * inner_, s, x.data, mean.data, inverseStd.data,
             scale.data, bias.data, residual.data, relu_, y.data);
}

void BatchNorm::trainForwardAgain(Stream& q, View<const float> x, View<const float> scale, View<const float> bias,
                                  View<const float> mean, View<const float> inverseStd, View<const float> residual,
                                  View<float> y) const {
  const Sizes s = sizesOf(samples_, channels_, inner_);
  launchLoop(q, "batch normalisation, again", normalise, samples_ * channels_ * inner_, s, x.data, mean.data,
             inverseStd.data, scale.data, bias.data, residual.data, relu_, y.data);
}

void BatchNorm::gradient(Stream& q, View<const float> dy, View<const float> x, View<const float> scale,
                         View<const float> mean, View<const float> inverseStd, View<const float> y, View<float> dx,
                         View<float> dscale, View<float> dbias, View<float> dresidual) const {
  const Sizes s = sizesOf(samples_, channels_, inner_);
  const float* const result = relu_ ? y.data : nullptr;
  const Room room(q, s);
  auto* const slopes = reinterpret_cast<Slopes*>(room.perChannel);
  cuda::launchBlocks(q, "batch normalisation, sums of gradients", addGradients, channels_ * s.parts.parts, s, dy.data,
                     result, x.data, mean.data, room.partial);
  launchLoop(q, "batch normalisation, weight gradient", finishGradients, channels_, s, room.partial, inverseStd.data,
             dscale.data, dbias.data, slopes);
  launchLoop(q, "batch normalisation, input gradient", differentiate, samples_ * channels_ * inner_, s, dy.data, result,
             x.data, mean.data, inverseStd.data, scale.data, slopes, dx.data, dresidual.data);
}

void BatchNorm::frozenGradient(Stream& q, View<const float> dy, View<const float> x, View<const float> scale,
                               View<const float> runningMean, View<const float> runningVariance, View<float> dx,
                               View<float> dscale, View<float> dbias) const {
  const Sizes s = sizesOf(samples_, channels_, inner_);
  const Room room(q, s);
  float* const inverse = room.perChannel;
  launchLoop(q, "batch normalisation, variance", invert, channels_, channels_, runningVariance.data, epsilon_, inverse);
  if (dscale || dbias) { // before dx, which may be dy's memory
    cuda::launchBlocks(q, "batch normalisation, sums of gradients", addGradients, channels_ * s.parts.parts, s, dy.data,
                       nullptr, x.data, runningMean.data, room.partial);
    launchLoop(q, "batch normalisation, weight gradient", finishGradients, channels_, s, room.partial, inverse,
               dscale.data, dbias.data, nullptr);
  }
  if (dx)
    launchLoop(q, "batch normalisation, input gradient", scaleBy, samples_ * channels_ * inner_, s, dy.data, scale.data,
               inverse, dx.data);
}

} // namespace pdcrt
