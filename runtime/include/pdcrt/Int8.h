// Symmetric quantisation to 8 bits: a row of floats becomes integers from -127 to 127 and one scale, of which value i
// is about integer i · scale. The compiler quantises weights with it, kernels quantise activations.
//
// Source: T. Dettmers et al., LLM.int8() (arXiv:2208.07339), vector-wise quantisation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace pdcrt::int8 {

inline constexpr float largest = 127.0f;

/// So many products of two such integers fit into a sum of 32 bits.
inline constexpr std::int64_t productsIn32Bits = 2147483647 / (127 * 127);

/// The scale of a row whose largest absolute value is `max`, which is finite.
inline float scaleOf(float max) {
  return max / largest;
}

/// The integer of `value` in a row with this scale: the quotient, rounded to the nearest, to the even one in the
/// middle. 0 where the scale is.
inline std::int8_t quantized(float value, float scale) {
  if (!(scale > 0)) return 0;
  // A scale that is subnormal has lost bits, so that quotients may be too large.
  return static_cast<std::int8_t>(std::clamp(std::rint(value / scale), -largest, largest));
}

} // namespace pdcrt::int8
