// Tiles of products that convolutions for AVX2 are made of, for channels and filters in blocks of 16. A tile of the
// result, up to six rows of 16 floats, is in registers while products are added to it: of a scalar of each row with 16
// floats that all rows have in common. Twelve sums in registers are what two multiply-adds per cycle need.
#pragma once

#include "Avx2.h"
#include "ConvolutionSizes.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace pdcrt::convolution {

constexpr std::int64_t tileRows = 6;

/// A tile of y: neighbours in a row, one below the other here.
struct ForwardTile {
  const float *x, *w;
  const float *before, *start; ///< what the products are added to: `before`, as y lies; or of all rows `start`; or 0
  float* y;
  std::int64_t inputs, plane, kernelHeight, rowFloats, kernelWidth;
  bool relu; ///< y is complete then, and of negative values 0 is stored
};

template <int positions, int stride>
PDCRT_AVX2 void run(const ForwardTile& tile) {
  const ForwardTile t = tile;
  // The next tile of y is far away, and mostly behind this one.
  PDCRT_EACH(p, positions) _mm_prefetch(t.y + (positions + p) * block, _MM_HINT_T0);
  __m256 sums[positions][2];
  PDCRT_EACH(p, positions)
  PDCRT_EACH(v, 2) {
    if (t.before)
      sums[p][v] = _mm256_loadu_ps(t.before + p * block + v * 8);
    else
      sums[p][v] = t.start ? _mm256_loadu_ps(t.start + v * 8) : _mm256_setzero_ps();
  }
  const float* w = t.w;
  for (std::int64_t c = 0; c < t.inputs; ++c)
    for (std::int64_t i = 0; i < t.kernelHeight; ++i) {
      const float* x = t.x + c * t.plane + i * t.rowFloats;
      for (std::int64_t j = 0; j < t.kernelWidth; ++j)
#pragma GCC unroll 8
        for (int input = 0; input < block; ++input, ++x, w += block) {
          const __m256 low = _mm256_loadu_ps(w), high = _mm256_loadu_ps(w + 8);
          PDCRT_EACH(p, positions) {
            const __m256 left = _mm256_broadcast_ss(x + p * stride * block);
            sums[p][0] = _mm256_fmadd_ps(left, low, sums[p][0]);
            sums[p][1] = _mm256_fmadd_ps(left, high, sums[p][1]);
          }
        }
    }
  const __m256 least = _mm256_set1_ps(t.relu ? 0.0f : -std::numeric_limits<float>::infinity());
  PDCRT_EACH(p, positions)
  PDCRT_EACH(v, 2) _mm256_storeu_ps(t.y + p * block + v * 8, _mm256_max_ps(least, sums[p][v])); // a NaN stays
}

template <int stride>
void runForward(std::int64_t positions, const ForwardTile& t) {
  switch (positions) {
  case 1: return run<1, stride>(t);
  case 2: return run<2, stride>(t);
  case 3: return run<3, stride>(t);
  case 4: return run<4, stride>(t);
  case 5: return run<5, stride>(t);
  default: return run<tileRows, stride>(t);
  }
}

/// A tile of dw: some inputs of some neighbouring taps, one below the other here.
struct WeightTile {
  const float *x, *dy;
  float* dw;
  std::int64_t rows, columns, rowOfX, rowOfDy, step; ///< floats from one position to the next
  bool fresh;
};

template <int taps, int inputs>
PDCRT_AVX2 void run(const WeightTile& tile) {
  const WeightTile t = tile;
  __m256 sums[taps][inputs][2];
  PDCRT_EACH(tap, taps)
  PDCRT_EACH(i, inputs)
  PDCRT_EACH(v, 2) sums[tap][i][v] = _mm256_setzero_ps();
  for (std::int64_t row = 0; row < t.rows; ++row) {
    const float *x = t.x + row * t.rowOfX, *dy = t.dy + row * t.rowOfDy;
    for (std::int64_t column = 0; column < t.columns; ++column, x += t.step, dy += block) {
      const __m256 low = _mm256_loadu_ps(dy), high = _mm256_loadu_ps(dy + 8);
      PDCRT_EACH(tap, taps)
      PDCRT_EACH(i, inputs) {
        const __m256 left = _mm256_broadcast_ss(x + tap * block + i);
        sums[tap][i][0] = _mm256_fmadd_ps(left, low, sums[tap][i][0]);
        sums[tap][i][1] = _mm256_fmadd_ps(left, high, sums[tap][i][1]);
      }
    }
  }
  PDCRT_EACH(tap, taps)
  PDCRT_EACH(i, inputs)
  PDCRT_EACH(v, 2) {
    float* const to = t.dw + (tap * block + i) * block + v * 8;
    _mm256_storeu_ps(to, t.fresh ? sums[tap][i][v] : _mm256_add_ps(_mm256_loadu_ps(to), sums[tap][i][v]));
  }
}

/// All inputs of a block, for `taps` neighbouring taps.
inline void runAllInputs(std::int64_t taps, WeightTile t) {
  const auto next = [&t](void (*runSome)(const WeightTile&), std::int64_t count) {
    runSome(t);
    t.x += count, t.dw += count * block;
  };
  switch (taps) {
  case 1: next(run<1, 6>, 6), next(run<1, 5>, 5), next(run<1, 5>, 5); break;
  case 2:
    for (int i = 0; i < 5; ++i) next(run<2, 3>, 3);
    next(run<2, 1>, 1);
    break;
  default:
    for (int i = 0; i < 8; ++i) next(run<3, 2>, 2);
  }
}

/// db [outputs][16]: sums of dy [samples][outputs][plane][16], in double precision.
PDCRT_AVX2 inline void sumOverPositions(std::int64_t samples, std::int64_t outputs, std::int64_t plane, const float* dy,
                                        float* db) {
  for (std::int64_t k = 0; k < outputs; ++k) {
    double sums[block] = {};
    for (std::int64_t n = 0; n < samples; ++n)
      for (std::int64_t i = 0; i < plane; ++i)
        for (std::int64_t o = 0; o < block; ++o) sums[o] += double(dy[((n * outputs + k) * plane + i) * block + o]);
    for (std::int64_t o = 0; o < block; ++o) db[k * block + o] = static_cast<float>(sums[o]);
  }
}

/// A block of a filter, of one tap, with inputs and outputs exchanged.
PDCRT_AVX2 inline void exchangeBlock(const float* from, float* to) {
  for (std::int64_t i = 0; i < block; i += 8)
    for (std::int64_t o = 0; o < block; o += 8) avx2::exchange(from + i * block + o, block, to + o * block + i, block);
}

} // namespace pdcrt::convolution
