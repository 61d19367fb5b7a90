// The scalar functions that fused kernels call, beside the operators of the language. T is float or double.
//
// Written so that a loop over them becomes vector code: no branches, no table, no errno. (GCC wants -O3 and
// -fno-trapping-math for that, which changes no result.) Results depend on the argument alone, not on where in a vector
// it stood. `NaN in, NaN out` holds for all. On a GPU exp, tanh and erf are CUDA's, and all take the exponential
// from the special function unit, so that fused kernels wait for memory and not for polynomials.
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

namespace detail {

/// x = n ln 2 + r, |r| <= ln 2 / 2.
struct Reduced {
  float r;
  std::int32_t n;
};

[[gnu::always_inline]] PDCRT_DEVICE inline Reduced reduced(float x) {
  // Adding and subtracting 1.5 · 2^23 rounds to an integer, which the low bits then hold.
  constexpr float shift = 12582912.0f;
  const float shifted = x * 1.44269504088896341f + shift;
  const float n = shifted - shift;
  // ln 2 in two parts, the first with few bits, so that its product with n is exact.
  return {(x - n * 0.693359375f) - n * -2.12194440e-4f,
          static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(shift))};
}

/// e^r - 1, |r| <= ln 2 / 2.
[[gnu::always_inline]] PDCRT_DEVICE inline float expMinusOne(float r) {
  // Taylor's series up to r^7 / 7!: the first term left out is below 2^-27 of e^r.
  float series = 1.98412698e-4f;
  series = series * r + 1.38888889e-3f;
  series = series * r + 8.33333333e-3f;
  series = series * r + 4.16666667e-2f;
  series = series * r + 1.66666667e-1f;
  series = series * r + 0.5f;
  return (series * r) * r + r;
}

/// 2^n, -126 <= n <= 127; 0 for -127, infinity for 128.
[[gnu::always_inline]] PDCRT_DEVICE inline float powerOfTwo(std::int32_t n) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

/// |x|, but at most `limit`; of NaN it stays NaN. (On the bits: a comparison with 0 would cost vector code a mask.)
[[gnu::always_inline]] PDCRT_DEVICE inline float limitedSize(float x, float limit) {
  const float size = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFF);
  return size > limit ? limit : size;
}

} // namespace detail

#ifdef __CUDA_ARCH__
/// e^x within 2 + 1.2 |x| units in the last place, in two instructions; 0 instead of what is below 2^-126.
__device__ inline float quickExp(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504088896341f));
  return y;
}
/// 1 / x within 1 unit in the last place, x at least 1; 0 from 2^126 on.
__device__ inline float quickReciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif

/// e^x within 2 units in the last place, over the whole range with denormal results.
PDCRT_DEVICE inline double exp(double x) {
  return std::exp(x);
}
[[gnu::always_inline]] PDCRT_DEVICE inline float exp(float x) {
#ifdef __CUDA_ARCH__
  return ::expf(x);
#else
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  const detail::Reduced y = detail::reduced(x);
  // 2^n as a product of two powers, since n may leave the range of one exponent (-150 … 128).
  const std::int32_t half = y.n >> 1;
  return (detail::expMinusOne(y.r) + 1.0f) * detail::powerOfTwo(half) * detail::powerOfTwo(y.n - half);
#endif
}

/// 1 / (1 + e^-x). In float 0 from about -88 on; on a GPU within 4 + 1.2 |x| units in the last place.
template <class T>
[[gnu::always_inline]] PDCRT_DEVICE inline T sigmoid(T x) {
  return T(1) / (T(1) + pdcrt::exp(-x));
}
template <>
[[gnu::always_inline]] PDCRT_DEVICE inline float sigmoid(float x) {
#ifdef __CUDA_ARCH__
  return quickReciprocal(1.0f + quickExp(-x));
#else
  const detail::Reduced y = detail::reduced(-detail::limitedSize(x, 88.0f));
  const float e = (detail::expMinusOne(y.r) + 1.0f) * detail::powerOfTwo(y.n); // at most 1
  return (x < 0 ? e : 1.0f) / (1.0f + e);
#endif
}

/// Hyperbolic tangent within 3 units in the last place.
PDCRT_DEVICE inline double tanh(double x) {
  return std::tanh(x);
}
[[gnu::always_inline]] PDCRT_DEVICE inline float tanh(float x) {
#ifdef __CUDA_ARCH__
  return ::tanhf(x);
#else
  // e^2|x| - 1 = 2^n (e^r - 1) + (2^n - 1), which cancels nowhere. From 10 on the result rounds to 1.
  const float size = detail::limitedSize(x, 10.0f);
  const detail::Reduced y = detail::reduced(size + size);
  const float power = detail::powerOfTwo(y.n);
  const float e = power * detail::expMinusOne(y.r) + (power - 1.0f);
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(x) & 0x80000000;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(e / (e + 2.0f)) | sign);
#endif
}

/// Error function within 2 units in the last place.
PDCRT_DEVICE inline double erf(double x) {
  return std::erf(x);
}
[[gnu::always_inline]] PDCRT_DEVICE inline float erf(float x) {
#ifdef __CUDA_ARCH__
  return ::erff(x);
#else
  // x + x p(x^2) up to 1, from there 1 - e^-q(|x|), which from 4 on rounds to 1. Of polynomials of degree 6, p and q
  // have the least largest error of the result.
  const float square = x * x;
  float p = 7.85385769e-05f;
  p = p * square + -0.000801019252f;
  p = p * square + 0.00518832756f;
  p = p * square + -0.0268538119f;
  p = p * square + 0.112835851f;
  p = p * square + -0.376126258f;
  p = p * square + 0.128379166f;
  const float size = detail::limitedSize(x, 4.0f);
  float q = -0.000186380084f;
  q = q * size + 0.00294766679f;
  q = q * size + -0.0218380969f;
  q = q * size + 0.103106821f;
  q = q * size + 0.638144758f;
  q = q * size + 1.12708923f;
  q = q * size + 0.000341512598f;
  const detail::Reduced y = detail::reduced(-q);
  const float large = 1.0f - (detail::expMinusOne(y.r) + 1.0f) * detail::powerOfTwo(y.n);
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(x) & 0x80000000;
  return size < 1.0f ? x + x * p : std::bit_cast<float>(std::bit_cast<std::uint32_t>(large) | sign);
#endif
}

/// log(1 + e^x), without overflow.
template <class T>
PDCRT_DEVICE T softplus(T x) {
  return maximum(x, T(0)) + std::log1p(pdcrt::exp(x < 0 ? x : -x));
}

/// x · Φ(x), Φ the distribution function of the normal distribution (Hendrycks and Gimpel 2016), and its derivative.
template <class T>
[[gnu::always_inline]] PDCRT_DEVICE inline T gelu(T x) {
  return T(0.5) * x * (T(1) + pdcrt::erf(x * T(0.70710678118654752)));
}
template <class T>
[[gnu::always_inline]] PDCRT_DEVICE inline T geluDerivative(T x) {
  return T(0.5) * (T(1) + pdcrt::erf(x * T(0.70710678118654752))) +
         x * T(0.39894228040143268) * pdcrt::exp(T(-0.5) * x * x);
}

} // namespace pdcrt
