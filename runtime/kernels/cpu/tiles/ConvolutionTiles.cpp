// See ConvolutionTiles.h.
#include "ConvolutionTiles.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <limits>

namespace pdcrt::convolution {

namespace {

constexpr int outputs = squareOutputs, taps = squareTaps, points = squarePoints;

constexpr float p = 0.625f, q = 1.5f, p2 = p * p, q2 = q * q, p3 = p * p2, q3 = q * q2;
/// What a filter's value at a point is multiplied by: the inverse of the product of its distances from the others.
constexpr float scale0 = 1 / (p2 * q2), scaleP = 1 / (2 * p2 * (p2 - q2)), scaleQ = 1 / (2 * q2 * (q2 - p2));

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
using Vector = __m256;
constexpr int width = 8, pieces = block / width, tileRows = 6, tileOutputs = 1, weightSums = 6;

PDCRT_INLINE Vector load(const float* x) {
  return _mm256_loadu_ps(x);
}
PDCRT_INLINE void store(float* x, Vector value) {
  _mm256_storeu_ps(x, value);
}
PDCRT_INLINE Vector all(float x) {
  return _mm256_set1_ps(x);
}
PDCRT_INLINE Vector plus(Vector a, Vector b) {
  return _mm256_add_ps(a, b);
}
PDCRT_INLINE Vector minus(Vector a, Vector b) {
  return _mm256_sub_ps(a, b);
}
PDCRT_INLINE Vector multiply(Vector a, Vector b) {
  return _mm256_mul_ps(a, b);
}
PDCRT_INLINE Vector multiplyAdd(Vector a, Vector b, Vector c) {
  return _mm256_fmadd_ps(a, b, c);
}
PDCRT_INLINE Vector larger(Vector a, Vector b) {
  return _mm256_max_ps(a, b);
}

#include "ConvolutionTileCode.h"
} // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f")
namespace avx512 {
using Vector = __m512;
constexpr int width = 16, pieces = block / width, tileRows = 14, tileOutputs = 2, weightSums = 24;

PDCRT_INLINE Vector load(const float* x) {
  return _mm512_loadu_ps(x);
}
PDCRT_INLINE void store(float* x, Vector value) {
  _mm512_storeu_ps(x, value);
}
PDCRT_INLINE Vector all(float x) {
  return _mm512_set1_ps(x);
}
PDCRT_INLINE Vector plus(Vector a, Vector b) {
  return _mm512_add_ps(a, b);
}
PDCRT_INLINE Vector minus(Vector a, Vector b) {
  return _mm512_sub_ps(a, b);
}
PDCRT_INLINE Vector multiply(Vector a, Vector b) {
  return _mm512_mul_ps(a, b);
}
PDCRT_INLINE Vector multiplyAdd(Vector a, Vector b, Vector c) {
  return _mm512_fmadd_ps(a, b, c);
}
PDCRT_INLINE Vector larger(Vector a, Vector b) {
  return a > b ? a : b; // g++ 12 warns of _mm512_max_ps
}

#include "ConvolutionTileCode.h"
} // namespace avx512
#pragma GCC pop_options

} // namespace

const Tiles avx2Tiles = avx2::tiles, avx512Tiles = avx512::tiles;

const Tiles& tiles() {
  static const Tiles& best = __builtin_cpu_supports("avx512f") ? avx512Tiles : avx2Tiles;
  return best;
}

} // namespace pdcrt::convolution
#endif
