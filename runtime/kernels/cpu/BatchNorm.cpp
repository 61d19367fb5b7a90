// See BatchNorm.h.
#include "pdcrt/kernels/BatchNorm.h"

#include "BatchNormLoops.h"
#include "common/Shapes.h"
#include "device/cpu/Parts.h"

#include <cmath>
#include <stdexcept>

namespace pdcrt {

using namespace batchnorm;

namespace {

/// Calls f(first) for the first channel of each block; threads share the blocks.
template <class F>
void forEachBlock(const Planes& planes, std::int64_t channels, std::int64_t lanes, const F& f) {
  const std::int64_t blocks = channels / lanes;
  parts::runRanges(parts::countOf(blocks, blocks * planes.samples * planes.size), blocks,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t block = begin; block < end; ++block) f(block * lanes);
                   });
}

/// Of what is saved, and not of the double that it is rounded from: so trainForwardAgain has the same.
float factorOf(float scale, float inverseStd) {
  return static_cast<float>(scale * static_cast<double>(inverseStd));
}

const float* offset(View<const float> view, std::int64_t elements) {
  return view ? view.data + elements : nullptr;
}

} // namespace

BatchNorm::BatchNorm(Setup&, const Options& o)
    : lanes_(o.lanes), epsilon_(o.epsilon), momentum_(o.momentum), relu_(o.relu) {
  const auto refuse = [&](const char* why) {
    throw std::runtime_error("batch normalisation of " + toString(o.input) + ": " + why);
  };
  if (o.input.rank < 2) refuse("it has no channel axis");
  if (!lanesFit(o.lanes, o.input.dims[1])) refuse("lanes must be 1, or 16 where they divide the channels");
  samples_ = o.input.dims[0];
  channels_ = o.input.dims[1];
  inner_ = 1;
  for (int axis = 2; axis < o.input.rank; ++axis) inner_ *= o.input.dims[axis];
  const auto count = static_cast<double>(samples_ * inner_);
  correction_ = o.unbiased && count > 1 ? count / (count - 1) : 1;
}

void BatchNorm::forward(Stream&, View<const float> x, View<const float> scale, View<const float> bias,
                        View<const float> runningMean, View<const float> runningVariance, View<float> y) const {
  const Planes planes = {samples_, channels_ * inner_, lanes_ * inner_};
  forEachBlock(planes, channels_, lanes_, [&](std::int64_t first) {
    Factors f;
    for (std::int64_t lane = 0; lane < lanes_; ++lane) {
      const std::int64_t c = first + lane;
      const double inverse = 1 / std::sqrt(runningVariance[c] + epsilon_);
      f.mean[lane] = runningMean[c];
      f.factor[lane] = static_cast<float>(scale[c] * inverse);
      f.bias[lane] = bias[c];
    }
    normalise(planes, lanes_, x.data + first * inner_, nullptr, false, f, y.data + first * inner_);
  });
}

void BatchNorm::trainForward(Stream&, View<const float> x, View<const float> scale, View<const float> bias,
                             View<const float> runningMean, View<const float> runningVariance,
                             View<const float> residual, View<float> y, View<float> mean, View<float> inverseStd,
                             View<float> newRunningMean, View<float> newRunningVariance) const {
  const Planes planes = {samples_, channels_ * inner_, lanes_ * inner_};
  forEachBlock(planes, channels_, lanes_, [&](std::int64_t first) {
    const float* const in = x.data + first * inner_;
    const Sums moments = momentsOf(planes, lanes_, in);
    Factors f;
    for (std::int64_t lane = 0; lane < lanes_; ++lane) {
      const std::int64_t c = first + lane;
      const double average = moments.first[lane], variance = moments.second[lane];
      const double inverse = 1 / std::sqrt(variance + epsilon_);
      mean[c] = f.mean[lane] = static_cast<float>(average);
      inverseStd[c] = static_cast<float>(inverse);
      f.factor[lane] = factorOf(scale[c], inverseStd[c]);
      f.bias[lane] = bias[c];
      if (newRunningMean)
        newRunningMean[c] = static_cast<float>(runningMean[c] * momentum_ + average * (1 - momentum_));
      if (newRunningVariance)
        newRunningVariance[c] =
            static_cast<float>(runningVariance[c] * momentum_ + variance * correction_ * (1 - momentum_));
    }
    normalise(planes, lanes_, in, offset(residual, first * inner_), relu_, f, y.data + first * inner_);
  });
}

void BatchNorm::trainForwardAgain(Stream&, View<const float> x, View<const float> scale, View<const float> bias,
                                  View<const float> mean, View<const float> inverseStd, View<const float> residual,
                                  View<float> y) const {
  const Planes planes = {samples_, channels_ * inner_, lanes_ * inner_};
  forEachBlock(planes, channels_, lanes_, [&](std::int64_t first) {
    Factors f;
    for (std::int64_t lane = 0; lane < lanes_; ++lane) {
      const std::int64_t c = first + lane;
      f.mean[lane] = mean[c];
      f.factor[lane] = factorOf(scale[c], inverseStd[c]);
      f.bias[lane] = bias[c];
    }
    const std::int64_t begin = first * inner_;
    normalise(planes, lanes_, x.data + begin, offset(residual, begin), relu_, f, y.data + begin);
  });
}

void BatchNorm::gradient(Stream&, View<const float> dy, View<const float> x, View<const float> scale,
                         View<const float> mean, View<const float> inverseStd, View<const float> y,
                         View<const float> bias, View<float> dx, View<float> dscale, View<float> dbias,
                         View<float> dresidual) const {
  // With x̂ = (x - mean) · inverseStd and g = dy, or what the ReLU lets through:  dbias = Σ g,  dscale = Σ g · x̂,
  // dx = scale · inverseStd · (g - dbias / count - x̂ · dscale / count).
  const Planes planes = {samples_, channels_ * inner_, lanes_ * inner_};
  const double count = static_cast<double>(samples_ * inner_);
  const Relu relu = !relu_ ? Relu::none : y ? Relu::byResult : Relu::byInput;
  forEachBlock(planes, channels_, lanes_, [&](std::int64_t first) {
    const std::int64_t begin = first * inner_;
    const Given given = {dy.data + begin, x.data + begin, offset(y, begin), relu};
    Factors f = {};
    for (std::int64_t lane = 0; lane < lanes_; ++lane) {
      const std::int64_t c = first + lane;
      f.mean[lane] = mean[c];
      f.factor[lane] = factorOf(scale[c], inverseStd[c]);
      if (relu == Relu::byInput) f.bias[lane] = bias[c];
    }
    float* const dr = dresidual ? dresidual.data + begin : nullptr;
    const Sums sums = gradientSums(planes, lanes_, given, f, dr);
    for (std::int64_t lane = 0; lane < lanes_; ++lane) {
      const std::int64_t c = first + lane;
      const double inverse = inverseStd[c], biasGradient = sums.first[lane],
                   scaleGradient = sums.second[lane] * inverse;
      dscale[c] = static_cast<float>(scaleGradient);
      dbias[c] = static_cast<float>(biasGradient);
      f.meanGradient[lane] = static_cast<float>(biasGradient / count);
      f.slope[lane] = static_cast<float>(scaleGradient * inverse / count);
    }
    differentiate(planes, lanes_, dr ? given.alreadyThrough(dr) : given, f, dx.data + begin);
  });
}

void BatchNorm::frozenGradient(Stream&, View<const float> dy, View<const float> x, View<const float> scale,
                               View<const float> runningMean, View<const float> runningVariance, View<float> dx,
                               View<float> dscale, View<float> dbias) const {
  const Planes planes = {samples_, channels_ * inner_, lanes_ * inner_};
  forEachBlock(planes, channels_, lanes_, [&](std::int64_t first) {
    const Given given = {dy.data + first * inner_, offset(x, first * inner_), nullptr, Relu::none};
    Factors f = {};
    double inverse[most];
    for (std::int64_t lane = 0; lane < lanes_; ++lane) {
      const std::int64_t c = first + lane;
      inverse[lane] = 1 / std::sqrt(runningVariance[c] + epsilon_);
      f.mean[lane] = runningMean[c];
      f.factor[lane] = static_cast<float>(scale[c] * inverse[lane]);
    }
    if (dscale || dbias) { // before dx, which may be dy's memory
      const Sums sums = gradientSums(planes, lanes_, given, f);
      for (std::int64_t lane = 0; lane < lanes_; ++lane) {
        const std::int64_t c = first + lane;
        if (dscale) dscale[c] = static_cast<float>(sums.second[lane] * inverse[lane]);
        if (dbias) dbias[c] = static_cast<float>(sums.first[lane]);
      }
    }
    if (dx) scaleBy(planes, lanes_, given.dy, f, dx.data + first * inner_);
  });
}

} // namespace pdcrt
