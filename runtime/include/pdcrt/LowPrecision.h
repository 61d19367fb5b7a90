// The element types of 16 bits: numbers that are stored so, and computed with as float.
#pragma once

#include <bit>
#include <cstdint>

namespace pdcrt {

/// The upper half of a float: its exponents, 8 bits of precision. Rounded to nearest, ties to even; NaN stays NaN.
struct bfloat16 {
  std::uint16_t bits = 0;

  constexpr bfloat16() = default;
  constexpr explicit bfloat16(float value) {
    const auto all = std::bit_cast<std::uint32_t>(value);
    bits = value != value ? static_cast<std::uint16_t>((all >> 16) | 0x40)
                          : static_cast<std::uint16_t>((all + 0x7FFF + ((all >> 16) & 1)) >> 16);
  }
  constexpr operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// IEEE 754's binary16: from 2^-24 (subnormal) to 65504, 11 bits of precision. Rounded as bfloat16; what is 65520 or
/// more becomes infinite.
struct float16 {
  std::uint16_t bits = 0;

  constexpr float16() = default;
  constexpr explicit float16(double value) : bits(rounded(value)) {}
  constexpr operator float() const {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#endif
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1F, mantissa = bits & 0x3FF;
    if (exponent == 0) { // zero or subnormal: mantissa · 2^-24
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return sign ? -magnitude : magnitude;
    }
    return std::bit_cast<float>(sign | (exponent == 31 ? 0x7F800000 : (exponent + 112) << 23) | (mantissa << 13));
  }

private:
  static constexpr std::uint16_t rounded(double value) {
#ifdef __CUDA_ARCH__
    std::uint16_t result;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(result) : "d"(value));
    return result;
#endif
    const auto all = std::bit_cast<std::uint64_t>(value);
    const auto sign = static_cast<std::uint16_t>((all >> 48) & 0x8000);
    if (value != value) return sign | 0x7E00;
    const int exponent = static_cast<int>((all >> 52) & 0x7FF) - 1023;
    if (exponent > 15) return sign | 0x7C00;
    if (exponent < -25) return sign; // below half of the smallest number
    // The unit in the last place is 2^-24 for subnormal numbers, else 2^(exponent - 10).
    const std::uint64_t significand = (all & ((std::uint64_t{1} << 52) - 1)) | (std::uint64_t{1} << 52);
    const int shift = exponent < -14 ? 28 - exponent : 42;
    const std::uint64_t rest = significand & ((std::uint64_t{1} << shift) - 1), half = std::uint64_t{1} << (shift - 1);
    std::uint64_t units = significand >> shift;
    units += rest > half || (rest == half && (units & 1) != 0);
    // `units` is the mantissa with its hidden bit; a carry into the exponent is an ordinary addition.
    const std::uint64_t above = exponent < -14 ? 0 : static_cast<std::uint64_t>(exponent + 14) << 10;
    return static_cast<std::uint16_t>(sign | (above + units));
  }
};

} // namespace pdcrt
