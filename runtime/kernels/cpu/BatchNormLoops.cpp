// See BatchNormLoops.h. One channel of row-major values and the 16 of a block have the same templates.
#include "BatchNormLoops.h"

#include "device/cpu/Sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace pdcrt::batchnorm {
namespace {

using blocks::Doubles, blocks::Floats;
constexpr int floats = sizeof(Floats) / sizeof(float); ///< in a vector

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

} // namespace

PDCRT_VECTORIZED void normalise(Planes p, std::int64_t lanes, const float* x, const float* r, bool relu,
                                const Factors& f, float* y) {
  if (lanes == 1)
    normalise<OneFloat>(p, x, r, relu, f, y);
  else
    normalise<OneBlock>(p, x, r, relu, f, y);
}

PDCRT_VECTORIZED void differentiate(Planes p, std::int64_t lanes, const Given& given, const Factors& f, float* dx) {
  if (lanes == 1)
    differentiate<OneFloat>(p, given, f, dx);
  else
    differentiate<OneBlock>(p, given, f, dx);
}

PDCRT_VECTORIZED void scaleBy(Planes p, std::int64_t lanes, const float* dy, const Factors& f, float* dx) {
  if (lanes == 1)
    scaleBy<OneFloat>(p, dy, f, dx);
  else
    scaleBy<OneBlock>(p, dy, f, dx);
}

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

Sums gradientSums(Planes p, std::int64_t lanes, const Given& given, const Factors& f, float* dr) {
  Sums sums;
  if (lanes == 1)
    sumsOfGradient(p, given, f.mean[0], f.factor[0], f.bias[0], sums, dr);
  else
    sumsOfGradients(p, given, f, sums, dr);
  return sums;
}

} // namespace pdcrt::batchnorm
