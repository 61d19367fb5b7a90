// The transforms of Winograd's algorithm F(4x4, 3x3), for 16 channels at a time. A row of four outputs is the product
// of two polynomials, seen from its transposed side: values are taken at the points 0, ±5/8, ±3/2 and infinity. Of the
// pairs that are multiples of 1/8 these round least.
#pragma once

#include "Avx2.h"

#include <cstdint>

namespace pdcrt::winograd {

constexpr int outputs = 4, taps = 3, points = 6; ///< of a row

constexpr float p = 0.625f, q = 1.5f, p2 = p * p, q2 = q * q, p3 = p * p2, q3 = q * q2;
/// What a filter's value at a point is multiplied by: the inverse of the product of its distances from the others.
constexpr float scale0 = 1 / (p2 * q2), scaleP = 1 / (2 * p2 * (p2 - q2)), scaleQ = 1 / (2 * q2 * (q2 - p2));

PDCRT_AVX2 inline __m256 times(float factor, __m256 x) {
  return _mm256_mul_ps(_mm256_set1_ps(factor), x);
}
/// factor * x + y
PDCRT_AVX2 inline __m256 plus(float factor, __m256 x, __m256 y) {
  return _mm256_fmadd_ps(_mm256_set1_ps(factor), x, y);
}

/// Six inputs of four outputs.
PDCRT_AVX2 inline void ofInputs(const __m256 (&d)[points], __m256 (&to)[points]) {
  to[0] = plus(p2 * q2, d[0], plus(-(p2 + q2), d[2], d[4]));
  const __m256 evenP = plus(-q2, d[2], d[4]), oddP = times(p, plus(-q2, d[1], d[3]));
  const __m256 evenQ = plus(-p2, d[2], d[4]), oddQ = times(q, plus(-p2, d[1], d[3]));
  to[1] = _mm256_add_ps(evenP, oddP);
  to[2] = _mm256_sub_ps(evenP, oddP);
  to[3] = _mm256_add_ps(evenQ, oddQ);
  to[4] = _mm256_sub_ps(evenQ, oddQ);
  to[5] = plus(p2 * q2, d[1], plus(-(p2 + q2), d[3], d[5]));
}

PDCRT_AVX2 inline void ofFilter(const __m256 (&g)[taps], __m256 (&to)[points]) {
  const __m256 evenP = plus(p2, g[2], g[0]), oddP = times(p, g[1]);
  const __m256 evenQ = plus(q2, g[2], g[0]), oddQ = times(q, g[1]);
  to[0] = times(scale0, g[0]);
  to[1] = times(scaleP, _mm256_add_ps(evenP, oddP));
  to[2] = times(scaleP, _mm256_sub_ps(evenP, oddP));
  to[3] = times(scaleQ, _mm256_add_ps(evenQ, oddQ));
  to[4] = times(scaleQ, _mm256_sub_ps(evenQ, oddQ));
  to[5] = g[2];
}

/// Products at the points become outputs.
PDCRT_AVX2 inline void toOutputs(const __m256 (&m)[points], __m256 (&y)[outputs]) {
  const __m256 evenP = _mm256_add_ps(m[1], m[2]), oddP = _mm256_sub_ps(m[1], m[2]);
  const __m256 evenQ = _mm256_add_ps(m[3], m[4]), oddQ = _mm256_sub_ps(m[3], m[4]);
  y[0] = _mm256_add_ps(m[0], _mm256_add_ps(evenP, evenQ));
  y[1] = plus(q, oddQ, times(p, oddP));
  y[2] = plus(q2, evenQ, times(p2, evenP));
  y[3] = plus(q3, oddQ, plus(p3, oddP, m[5]));
}

/// Gradients go through what is transposed: those of outputs become those of the products,
PDCRT_AVX2 inline void ofOutputGradients(const __m256 (&dy)[outputs], __m256 (&to)[points]) {
  const __m256 evenP = plus(p2, dy[2], dy[0]), oddP = plus(p3, dy[3], times(p, dy[1]));
  const __m256 evenQ = plus(q2, dy[2], dy[0]), oddQ = plus(q3, dy[3], times(q, dy[1]));
  to[0] = dy[0];
  to[1] = _mm256_add_ps(evenP, oddP);
  to[2] = _mm256_sub_ps(evenP, oddP);
  to[3] = _mm256_add_ps(evenQ, oddQ);
  to[4] = _mm256_sub_ps(evenQ, oddQ);
  to[5] = dy[3];
}

/// and those of the filter at the points those of the filter.
PDCRT_AVX2 inline void toFilterGradient(const __m256 (&u)[points], __m256 (&dg)[taps]) {
  const __m256 evenP = times(scaleP, _mm256_add_ps(u[1], u[2])), oddP = times(scaleP, _mm256_sub_ps(u[1], u[2]));
  const __m256 evenQ = times(scaleQ, _mm256_add_ps(u[3], u[4])), oddQ = times(scaleQ, _mm256_sub_ps(u[3], u[4]));
  dg[0] = plus(scale0, u[0], _mm256_add_ps(evenP, evenQ));
  dg[1] = plus(q, oddQ, times(p, oddP));
  dg[2] = plus(q2, evenQ, plus(p2, evenP, u[5]));
}

/// A square of values, 16 floats each, and the floats from one row and column to the next.
template <class T>
struct Square {
  T* data;
  std::int64_t row, column;
};

/// Applies a transform to all columns, then to all rows.
template <int from, int to, void (*transform)(const __m256 (&)[from], __m256 (&)[to])>
PDCRT_AVX2 inline void apply(Square<const float> source, Square<float> result) {
  for (int half = 0; half < 16; half += 8) {
    __m256 between[to][from];
    for (int j = 0; j < from; ++j) {
      __m256 in[from], out[to];
      PDCRT_EACH(i, from) in[i] = _mm256_loadu_ps(source.data + i * source.row + j * source.column + half);
      transform(in, out);
      PDCRT_EACH(i, to) between[i][j] = out[i];
    }
    for (int i = 0; i < to; ++i) {
      __m256 out[to];
      transform(between[i], out);
      PDCRT_EACH(j, to) _mm256_storeu_ps(result.data + i * result.row + j * result.column + half, out[j]);
    }
  }
}

} // namespace pdcrt::winograd
