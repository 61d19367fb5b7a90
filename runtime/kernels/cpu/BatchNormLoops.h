// The passes of BatchNorm over the planes of a channel, or of the 16 channels of a block at once.
#pragma once

#include "cpu/tiles/ChannelBlocks.h"

#include <cstdint>

namespace pdcrt::batchnorm {

constexpr std::int64_t most = blocks::lanes; ///< channels at once

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

/// How one knows what a ReLU let through: everything, where there is none; what is positive in its result y; or where
/// what it was applied to is positive, which is computed from x again.
enum class Relu { none, byResult, byInput };

/// The operands of a gradient, from the first channel of a block on.
struct Given {
  const float *dy, *x, *y;
  Relu relu;

  /// What they are where `g` has been computed: what of dy comes through the ReLU.
  Given alreadyThrough(const float* g) const { return {g, x, nullptr, Relu::none}; }
};

// `lanes`: 1, or 16 of a block.

/// Means and variances of the channels that begin at x.
Sums momentsOf(Planes p, std::int64_t lanes, const float* x);

/// Σ g and Σ g · (x - mean), with g as `differentiate` has it; dr = g, if it is given.
Sums gradientSums(Planes p, std::int64_t lanes, const Given& given, const Factors& f, float* dr = nullptr);

/// y = (x - mean) · factor + bias, plus r, if there is one, and with `relu` nothing below 0.
void normalise(Planes p, std::int64_t lanes, const float* x, const float* r, bool relu, const Factors& f, float* y);

/// dx = (g - meanGradient - (x - mean) · slope) · factor, where g is what of dy comes through the ReLU.
void differentiate(Planes p, std::int64_t lanes, const Given& given, const Factors& f, float* dx);

/// dx = dy · factor.
void scaleBy(Planes p, std::int64_t lanes, const float* dy, const Factors& f, float* dx);

} // namespace pdcrt::batchnorm
