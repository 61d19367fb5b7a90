// The scalar functions that fused kernels call, beside the operators of the language. T is float or double.
//
// Written so that a loop over them becomes vector code: no branches, no table, no errno. (GCC wants -O3 and
// -fno-trapping-math for that, which changes no result.) Results depend on the argument alone, not on where in a vector
// it stood. `NaN in, NaN out` holds for all.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

// Compiled for the host and, in programs for CUDA, for the device too. (constexpr functions are so anyway.)
#ifdef __CUDACC__
#define PDCRT_DEVICE __host__ __device__
#else
#define PDCRT_DEVICE
#endif

namespace pdcrt {

/// `yes` where the condition holds. Both are computed.
template <class T>
constexpr T select(bool condition, T yes, T no) {
  return condition ? yes : no;
}

/// The smaller and the larger of two; NaN if either is (as ONNX Min and Max, unlike fmin and fmax).
template <class T>
constexpr T minimum(T a, T b) {
  const T smaller = b < a ? b : a; // a if b is NaN
  return b != b ? b : smaller;
}
template <class T>
constexpr T maximum(T a, T b) {
  const T larger = b > a ? b : a; // a if b is NaN
  return b != b ? b : larger;
}

/// -1, 0 or 1.
template <class T>
constexpr T sign(T x) {
  return x != x ? x : static_cast<T>((x > 0) - (x < 0));
}

/// The bits of an integer of 64, moved; what leaves it is lost, also where that is all.
template <class T>
constexpr T shiftLeft(T x, T places) {
  return static_cast<std::uint64_t>(places) < 64 ? static_cast<T>(static_cast<std::uint64_t>(x) << places) : T(0);
}
template <class T>
constexpr T shiftRight(T x, T places) {
  return static_cast<std::uint64_t>(places) < 64 ? static_cast<T>(x >> places) : static_cast<T>(x < 0 ? -1 : 0);
}

/// max(x, 0).
template <class T>
constexpr T relu(T x) {
  return x < 0 ? T(0) : x;
}

/// e^x within 2 units in the last place, over the whole range with denormal results.
PDCRT_DEVICE inline double exp(double x) {
  return std::exp(x);
}
[[gnu::always_inline]] PDCRT_DEVICE inline float exp(float x) {
  // x = n ln 2 + r, |r| <= ln 2 / 2; adding and subtracting 1.5 · 2^23 rounds to an integer, which the low bits then
  // hold.
  constexpr float shift = 12582912.0f;
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  const float shifted = x * 1.44269504088896341f + shift;
  const float n = shifted - shift;
  // ln 2 in two parts, the first with few bits, so that its product with n is exact.
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  // Taylor's series up to r^7 / 7!: the first term left out is below 2^-27 of the sum.
  float series = 1.98412698e-4f;
  series = series * r + 1.38888889e-3f;
  series = series * r + 8.33333333e-3f;
  series = series * r + 4.16666667e-2f;
  series = series * r + 1.66666667e-1f;
  series = series * r + 0.5f;
  series = (series * r) * r + r + 1.0f;
  // 2^n as a product of two powers, since n may leave the range of one exponent (-150 … 128).
  const std::int32_t exponent =
      static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(shift));
  const std::int32_t half = exponent >> 1;
  const float power0 = std::bit_cast<float>(static_cast<std::uint32_t>(half + 127) << 23);
  const float power1 = std::bit_cast<float>(static_cast<std::uint32_t>(exponent - half + 127) << 23);
  return series * power0 * power1;
}

/// 1 / (1 + e^-x).
template <class T>
[[gnu::always_inline]] PDCRT_DEVICE inline T sigmoid(T x) {
  return T(1) / (T(1) + pdcrt::exp(-x));
}

/// Hyperbolic tangent within 3 units in the last place.
PDCRT_DEVICE inline double tanh(double x) {
  return std::tanh(x);
}
[[gnu::always_inline]] PDCRT_DEVICE inline float tanh(float x) {
  // Near 0, where 1 - 2 / (e^2x + 1) cancels, the odd Taylor series.
  const float square = x * x;
  float series = -929569.0f / 638512875.0f;
  series = series * square + 21844.0f / 6081075.0f;
  series = series * square - 1382.0f / 155925.0f;
  series = series * square + 62.0f / 2835.0f;
  series = series * square - 17.0f / 315.0f;
  series = series * square + 2.0f / 15.0f;
  series = series * square - 1.0f / 3.0f;
  const float near = x + x * square * series;
  const float magnitude = x < 0 ? -x : x;
  const float far = 1.0f - 2.0f / (pdcrt::exp(magnitude + magnitude) + 1.0f);
  return magnitude < 0.6f ? near : (x < 0 ? -far : far);
}

/// Error function. Not vectorised: the C library's.
template <class T>
PDCRT_DEVICE T erf(T x) {
  return std::erf(x);
}

/// log(1 + e^x), without overflow.
template <class T>
PDCRT_DEVICE T softplus(T x) {
  return maximum(x, T(0)) + std::log1p(pdcrt::exp(x < 0 ? x : -x));
}

/// x · Φ(x), Φ the distribution function of the normal distribution (Hendrycks and Gimpel 2016), and its derivative.
template <class T>
PDCRT_DEVICE T gelu(T x) {
  return T(0.5) * x * (T(1) + pdcrt::erf(x * T(0.70710678118654752)));
}
template <class T>
PDCRT_DEVICE T geluDerivative(T x) {
  return T(0.5) * (T(1) + pdcrt::erf(x * T(0.70710678118654752))) +
         x * T(0.39894228040143268) * pdcrt::exp(T(-0.5) * x * x);
}

} // namespace pdcrt
