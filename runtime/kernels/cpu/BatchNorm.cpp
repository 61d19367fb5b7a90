// See BatchNorm.h. Everything is computed for one channel of row-major values, or for the 16 channels of a block at
// once, by the same templates.
#include "pdcrt/kernels/BatchNorm.h"

#include "ChannelBlocks.h"
#include "Parts.h"
#include "Shapes.h"
#include "Sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace pdcrt {
namespace {

using blocks::Doubles, blocks::Floats;
constexpr std::int64_t most = blocks::lanes;           ///< channels at once
constexpr int floats = sizeof(Floats) / sizeof(float); ///< in a vector

/// How the planes of one channel, or of a block of them, lie in memory.
struct Planes {
  std::int64_t samples, stride, size; ///< `stride` between samples, in floats
};

/// One number per channel.
struct Sums {
  alignas(64) double first[most], second[most];
};
struct Factors {
  alignas(64) float mean[most], factor[most], bias[most];
  alignas(64) float meanGradient[most], slope[most]; ///< of a gradient only
};

// What is computed at once: one float, or those of a block.

struct OneFloat {
  using Type = float;
  static constexpr int pieces = 1, width = 1;
};
struct OneBlock {
  using Type = Floats;
  static constexpr int pieces = most / floats, width = most;
};

/// The numbers of `values` that belong to the pieces of a step.
template <class Step>
struct Each {
  typename Step::Type piece[Step::pieces];

  PDCRT_INLINE explicit Each(const float* values) {
    PDCRT_EACH(k, Step::pieces) piece[k] = reinterpret_cast<const typename Step::Type*>(values)[k];
  }
};

/// y = (x - mean) · factor + bias. The mean is taken off first: folded into the bias it would cancel.
template <class T>
PDCRT_INLINE void map(const T& x, const T& mean, const T& factor, const T& bias, T& y) {
  y = (x - mean) * factor + bias;
}

/// How one knows what a ReLU let through: everything, where there is none; what is positive in its result y; or where
/// what it was applied to is positive, which is computed from x again.
enum class Relu { none, byResult, byInput };

/// What of dy, `g`, comes through a ReLU with result `y`, of which `x` and the map are the input.
template <Relu relu, class T>
PDCRT_INLINE void letThrough(const float* y, const T& x, const T& mean, const T& factor, const T& bias, T& g) {
  const T zero = {}, one = zero + 1;
  if constexpr (relu == Relu::byResult) g = g * (*reinterpret_cast<const T*>(y) > zero ? one : zero);
  if constexpr (relu == Relu::byInput) {
    T before;
    map(x, mean, factor, bias, before);
    g = g * (before > zero ? one : zero);
  }
}

/// The operands of a gradient, from the first channel of a block on.
struct Given {
  const float *dy, *x, *y;
  Relu relu;

  /// What they are where `g` has been computed: what of dy comes through the ReLU.
  Given alreadyThrough(const float* g) const { return {g, x, nullptr, Relu::none}; }
};

// One channel. The variance is the mean square of x - mean, in a second pass: it does not cancel.

PDCRT_VECTORIZED double sum(Planes p, const float* x) {
  double total = 0;
  for (std::int64_t n = 0; n < p.samples; ++n, x += p.stride)
    total += sumOf(p.size, [x](std::int64_t i) { return x[i]; });
  return total;
}

PDCRT_VECTORIZED double sumOfSquares(Planes p, const float* x, double mean) {
  double total = 0;
  for (std::int64_t n = 0; n < p.samples; ++n, x += p.stride)
    total += sumOf(p.size, [x, mean](std::int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  return total;
}

/// Of what a ReLU lets through.
template <class Term>
PDCRT_INLINE double sumOfMasked(Planes p, const Given& given, float mean, float factor, float bias, Term term) {
  const auto [dy, x, y, relu] = given;
  double total = 0;
  for (std::int64_t n = 0; n < p.samples; ++n) {
    const std::int64_t at = n * p.stride;
    const auto sumWhere = [&](auto open) {
      return sumOf(p.size, [&](std::int64_t i) { return term(dy[at + i] * (open(at + i) ? 1.0f : 0.0f), at + i); });
    };
    if (relu == Relu::byResult)
      total += sumWhere([y = y](std::int64_t i) { return y[i] > 0; });
    else if (relu == Relu::byInput)
      total += sumWhere([=, x = x](std::int64_t i) {
        float before;
        map(x[i], mean, factor, bias, before);
        return before > 0;
      });
    else
      total += sumOf(p.size, [&](std::int64_t i) { return term(dy[at + i], at + i); });
  }
  return total;
}

/// dr = what comes through.
template <Relu relu>
PDCRT_INLINE void keepWhatComesThrough(Planes p, const Given& given, float mean, float factor, float bias, float* dr) {
  for (std::int64_t n = 0; n < p.samples; ++n)
    for (std::int64_t i = n * p.stride; i < n * p.stride + p.size; ++i) {
      float g = given.dy[i];
      letThrough<relu>(given.y + i, given.x[i], mean, factor, bias, g);
      dr[i] = g;
    }
}

PDCRT_VECTORIZED void sumsOfGradient(Planes p, Given given, float mean, float factor, float bias, Sums& sums,
                                     float* dr) {
  if (dr) {
    switch (given.relu) {
    case Relu::none: keepWhatComesThrough<Relu::none>(p, given, mean, factor, bias, dr); break;
    case Relu::byResult: keepWhatComesThrough<Relu::byResult>(p, given, mean, factor, bias, dr); break;
    case Relu::byInput: keepWhatComesThrough<Relu::byInput>(p, given, mean, factor, bias, dr); break;
    }
    given = given.alreadyThrough(dr);
  }
  sums.first[0] = sumOfMasked(p, given, mean, factor, bias, [](float g, std::int64_t) { return g; });
  const double middle = mean;
  sums.second[0] = sumOfMasked(p, given, mean, factor, bias,
                               [x = given.x, middle](float g, std::int64_t i) { return g * (x[i] - middle); });
}

// A block of channels, whose planes seldom fit the cache: one pass. Squares are of the distance to the first value of
// each channel, which does not cancel either.

constexpr int pieces = OneBlock::pieces;

/// Positions whose terms are added in single precision before they join sums in double precision: so few that nothing
/// is lost by it, and enough that conversions take no time.
constexpr std::int64_t run = 16;

/// Two sums for each channel of a block, in double precision.
struct BlockSums {
  Doubles first[2 * pieces], second[2 * pieces];

  PDCRT_INLINE void add(const Floats (&one)[pieces], const Floats (&other)[pieces]) {
    PDCRT_EACH(k, pieces) {
      addHalves(one[k], first + 2 * k);
      addHalves(other[k], second + 2 * k);
    }
  }
  PDCRT_INLINE void store(Sums& sums) const {
    std::memcpy(sums.first, first, sizeof first);
    std::memcpy(sums.second, second, sizeof second);
  }

private:
  PDCRT_INLINE static void addHalves(const Floats& x, Doubles* to) {
    to[0] += __builtin_convertvector(__builtin_shufflevector(x, x, 0, 1, 2, 3), Doubles);
    to[1] += __builtin_convertvector(__builtin_shufflevector(x, x, 4, 5, 6, 7), Doubles);
  }
};

PDCRT_VECTORIZED void sumsOfDistances(Planes p, const float* x, Sums& sums) {
  const auto at = [](const float* address) -> const Floats& { return *reinterpret_cast<const Floats*>(address); };
  const Each<OneBlock> first(x);
  BlockSums all = {};
  for (std::int64_t n = 0; n < p.samples; ++n, x += p.stride)
    for (std::int64_t begin = 0; begin < p.size; begin += run * most) {
      Floats total[pieces] = {}, squares[pieces] = {};
      for (std::int64_t i = begin; i < std::min(begin + run * most, p.size); i += most) {
        PDCRT_EACH(k, pieces) {
          const Floats distance = at(x + i + k * floats) - first.piece[k];
          total[k] += distance;
          squares[k] += distance * distance;
        }
      }
      all.add(total, squares);
    }
  all.store(sums);
}

/// With `residual`, dr = what comes through.
template <Relu relu, bool residual>
PDCRT_INLINE void sumsOfGradients(Planes p, const Given& given, const Factors& f, Sums& sums, float* dr) {
  const auto at = [](const float* address) -> const Floats& { return *reinterpret_cast<const Floats*>(address); };
  const auto [dy, x, y, _] = given;
  const Each<OneBlock> mean(f.mean), factor(f.factor), bias(f.bias);
  BlockSums all = {};
  for (std::int64_t n = 0; n < p.samples; ++n)
    for (std::int64_t begin = n * p.stride, end = begin + p.size; begin < end; begin += run * most) {
      Floats total[pieces] = {}, products[pieces] = {};
      for (std::int64_t i = begin; i < std::min(begin + run * most, end); i += most) {
        PDCRT_EACH(k, pieces) {
          const std::int64_t here = i + k * floats;
          Floats g = at(dy + here);
          letThrough<relu>(y + here, at(x + here), mean.piece[k], factor.piece[k], bias.piece[k], g);
          total[k] += g;
          products[k] += g * (at(x + here) - mean.piece[k]);
          if constexpr (residual) *reinterpret_cast<Floats*>(dr + here) = g;
        }
      }
      all.add(total, products);
    }
  all.store(sums);
}

template <Relu relu>
PDCRT_INLINE void sumsOfGradients(Planes p, const Given& given, const Factors& f, Sums& sums, float* dr) {
  if (dr)
    sumsOfGradients<relu, true>(p, given, f, sums, dr);
  else
    sumsOfGradients<relu, false>(p, given, f, sums, dr);
}

PDCRT_VECTORIZED void sumsOfGradients(Planes p, const Given& given, const Factors& f, Sums& sums, float* dr) {
  switch (given.relu) {
  case Relu::none: return sumsOfGradients<Relu::none>(p, given, f, sums, dr);
  case Relu::byResult: return sumsOfGradients<Relu::byResult>(p, given, f, sums, dr);
  case Relu::byInput: return sumsOfGradients<Relu::byInput>(p, given, f, sums, dr);
  }
}

// Passes that write.

/// y = (x - mean) · factor + bias, plus r, if there is one, and with `relu` nothing below 0.
template <class Step, bool relu, bool residual>
PDCRT_INLINE void normalise(Planes p, const float* x, const float* r, const Factors& f, float* y) {
  using T = typename Step::Type;
  const auto at = [](const float* address) -> const T& { return *reinterpret_cast<const T*>(address); };
  const Each<Step> mean(f.mean), factor(f.factor), bias(f.bias);
  const T zero = {};
  for (std::int64_t n = 0; n < p.samples; ++n)
    for (std::int64_t i = n * p.stride; i < n * p.stride + p.size; i += Step::width) {
      PDCRT_EACH(k, Step::pieces) {
        const std::int64_t here = i + k * (Step::width / Step::pieces);
        T value;
        map(at(x + here), mean.piece[k], factor.piece[k], bias.piece[k], value);
        if constexpr (residual) value = value + at(r + here);
        if constexpr (relu) value = zero > value ? zero : value;
        *reinterpret_cast<T*>(y + here) = value;
      }
    }
}

template <class Step>
PDCRT_INLINE void normalise(Planes p, const float* x, const float* r, bool relu, const Factors& f, float* y) {
  if (relu && r)
    normalise<Step, true, true>(p, x, r, f, y);
  else if (relu)
    normalise<Step, true, false>(p, x, r, f, y);
  else if (r)
    normalise<Step, false, true>(p, x, r, f, y);
  else
    normalise<Step, false, false>(p, x, r, f, y);
}

PDCRT_VECTORIZED void normalise(Planes p, std::int64_t lanes, const float* x, const float* r, bool relu,
                                const Factors& f, float* y) {
  if (lanes == 1)
    normalise<OneFloat>(p, x, r, relu, f, y);
  else
    normalise<OneBlock>(p, x, r, relu, f, y);
}

/// dx = (g - meanGradient - (x - mean) · slope) · factor, where g is what of dy comes through the ReLU.
template <class Step, Relu relu>
PDCRT_INLINE void differentiate(Planes p, const Given& given, const Factors& f, float* dx) {
  using T = typename Step::Type;
  const auto at = [](const float* address) -> const T& { return *reinterpret_cast<const T*>(address); };
  const auto [dy, x, y, _] = given;
  const Each<Step> mean(f.mean), factor(f.factor), bias(f.bias), meanGradient(f.meanGradient), slope(f.slope);
  for (std::int64_t n = 0; n < p.samples; ++n)
    for (std::int64_t i = n * p.stride; i < n * p.stride + p.size; i += Step::width) {
      PDCRT_EACH(k, Step::pieces) {
        const std::int64_t here = i + k * (Step::width / Step::pieces);
        T g = at(dy + here);
        letThrough<relu>(y + here, at(x + here), mean.piece[k], factor.piece[k], bias.piece[k], g);
        const T value = (g - meanGradient.piece[k] - (at(x + here) - mean.piece[k]) * slope.piece[k]) * factor.piece[k];
        *reinterpret_cast<T*>(dx + here) = value;
      }
    }
}

template <class Step>
PDCRT_INLINE void differentiate(Planes p, const Given& given, const Factors& f, float* dx) {
  switch (given.relu) {
  case Relu::none: return differentiate<Step, Relu::none>(p, given, f, dx);
  case Relu::byResult: return differentiate<Step, Relu::byResult>(p, given, f, dx);
  case Relu::byInput: return differentiate<Step, Relu::byInput>(p, given, f, dx);
  }
}

PDCRT_VECTORIZED void differentiate(Planes p, std::int64_t lanes, const Given& given, const Factors& f, float* dx) {
  if (lanes == 1)
    differentiate<OneFloat>(p, given, f, dx);
  else
    differentiate<OneBlock>(p, given, f, dx);
}

template <class Step>
PDCRT_INLINE void scaleBy(Planes p, const float* dy, const Factors& f, float* dx) {
  using T = typename Step::Type;
  const Each<Step> factor(f.factor);
  for (std::int64_t n = 0; n < p.samples; ++n, dy += p.stride, dx += p.stride)
    for (std::int64_t i = 0; i < p.size; i += Step::width) {
      PDCRT_EACH(k, Step::pieces) {
        const std::int64_t here = i + k * (Step::width / Step::pieces);
        *reinterpret_cast<T*>(dx + here) = *reinterpret_cast<const T*>(dy + here) * factor.piece[k];
      }
    }
}

PDCRT_VECTORIZED void scaleBy(Planes p, std::int64_t lanes, const float* dy, const Factors& f, float* dx) {
  if (lanes == 1)
    scaleBy<OneFloat>(p, dy, f, dx);
  else
    scaleBy<OneBlock>(p, dy, f, dx);
}

/// Means and variances of the channels that begin at x.
Sums momentsOf(Planes p, std::int64_t lanes, const float* x) {
  const double count = static_cast<double>(p.samples * (p.size / lanes));
  Sums moments;
  if (lanes == 1) {
    moments.first[0] = sum(p, x) / count;
    moments.second[0] = sumOfSquares(p, x, moments.first[0]) / count;
    return moments;
  }
  sumsOfDistances(p, x, moments);
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    const double distance = moments.first[lane] / count;
    moments.first[lane] = x[lane] + distance;
    moments.second[lane] = std::max(0.0, moments.second[lane] / count - distance * distance);
  }
  return moments;
}

/// Σ g and Σ g · (x - mean), with g as `differentiate` has it; dr = g, if it is given.
Sums gradientSums(Planes p, std::int64_t lanes, const Given& given, const Factors& f, float* dr = nullptr) {
  Sums sums;
  if (lanes == 1)
    sumsOfGradient(p, given, f.mean[0], f.factor[0], f.bias[0], sums, dr);
  else
    sumsOfGradients(p, given, f, sums, dr);
  return sums;
}

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
        newRunningVariance[c] = static_cast<float>(runningVariance[c] * momentum_ + variance * (1 - momentum_));
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
