// See FewRows.h. Six rows by 64 columns of c are in registers at a time, by a transposed b all rows by three or four
// columns. An element of c is a sum of sums, over 32 steps or over 2048, in ascending order, wherever it lies in c.
#include "FewRows.h"

#include "device/cpu/Parts.h"
#include "device/cpu/Sums.h"

#include <algorithm>
#include <iterator>

#if defined(__x86_64__)
#include <immintrin.h>
#define PDCRT_AVX512 __attribute__((target("avx512f")))
#else
#define PDCRT_AVX512
#endif

namespace pdcrt::fewrows {

#if defined(__x86_64__)
namespace {

constexpr std::int64_t lanes = 16, tileColumns = 4 * lanes, tileRows = 6;
constexpr std::int64_t cached = 4096; ///< elements: half of a small first-level cache

/// A tile of c with `rows` rows at c, `columns` (1 to 64) columns: adds, or with `fresh` writes, Σ over `depth` steps.
/// Element (row, step) of the left factor is a[row · rowStride + step · stepStride].
struct Tile {
  const float *a, *b;
  float* c;
  std::int64_t rowStride, stepStride, bStride, cStride, depth, columns;
  bool fresh, stream;
  bool ahead; ///< asks for the next columns of b: each of its rows is a stream, more than the hardware looks ahead in
};

// Loops over registers must be unrolled from the beginning, or the registers are an array in memory.
#define PDCRT_EACH_ROW _Pragma("GCC unroll 8") for (int r = 0; r < rows; ++r)
#define PDCRT_EACH_OF_B _Pragma("GCC unroll 4") for (int j = 0; j < width; ++j)
#define PDCRT_EACH_VECTOR _Pragma("GCC unroll 4") for (int v = 0; v < 4; ++v)

template <int rows>
PDCRT_AVX512 void run(const Tile& tile) {
  const Tile t = tile;
  __mmask16 masks[4];
  PDCRT_EACH_VECTOR {
    const std::int64_t left = std::clamp<std::int64_t>(t.columns - v * lanes, 0, lanes);
    masks[v] = static_cast<__mmask16>((1u << left) - 1);
  }
  __m512 sums[rows][4];
  PDCRT_EACH_ROW
  PDCRT_EACH_VECTOR sums[r][v] = _mm512_setzero_ps();
  const float *row = t.b, *column = t.a;
  for (std::int64_t k = 0; k < t.depth; ++k, row += t.bStride, column += t.stepStride) {
    if (t.ahead) {
      PDCRT_EACH_VECTOR _mm_prefetch(row + tileColumns + v * lanes, _MM_HINT_T0);
    }
    __m512 right[4];
    PDCRT_EACH_VECTOR right[v] = _mm512_maskz_loadu_ps(masks[v], row + v * lanes);
    PDCRT_EACH_ROW {
      const __m512 left = _mm512_set1_ps(column[r * t.rowStride]);
      PDCRT_EACH_VECTOR sums[r][v] = _mm512_fmadd_ps(left, right[v], sums[r][v]);
    }
  }
  if (!t.fresh) {
    PDCRT_EACH_ROW
    PDCRT_EACH_VECTOR sums[r][v] =
        _mm512_add_ps(_mm512_maskz_loadu_ps(masks[v], t.c + r * t.cStride + v * lanes), sums[r][v]);
  }
  if (t.stream && t.columns == tileColumns) {
    PDCRT_EACH_ROW
    PDCRT_EACH_VECTOR _mm512_stream_ps(t.c + r * t.cStride + v * lanes, sums[r][v]);
  } else {
    PDCRT_EACH_ROW
    PDCRT_EACH_VECTOR _mm512_mask_storeu_ps(t.c + r * t.cStride + v * lanes, masks[v], sums[r][v]);
  }
}

void run(std::int64_t rows, const Tile& t) {
  switch (rows) {
  case 1: return run<1>(t);
  case 2: return run<2>(t);
  case 3: return run<3>(t);
  case 4: return run<4>(t);
  case 5: return run<5>(t);
  default: return run<tileRows>(t);
  }
}

/// Rows of b whose products with all rows of a are in registers.
constexpr int rowsAtOnce(int rows) {
  return rows <= 4 ? 4 : 3;
}

PDCRT_AVX512 float sumOf(__m512 vector) {
  alignas(64) float values[lanes];
  _mm512_store_ps(values, vector);
  for (std::int64_t half = lanes / 2; half > 0; half /= 2)
    for (std::int64_t i = 0; i < half; ++i) values[i] += values[i + half];
  return values[0];
}

/// Adds to sums[row of a][row of b] the products over `depth` columns of `rows` rows of a and some of b.
template <int rows>
PDCRT_AVX512 void addProducts(const float* a, std::int64_t aStride, const float* const (&b)[rowsAtOnce(rows)],
                              std::int64_t depth, float (&sums)[rows][rowsAtOnce(rows)]) {
  constexpr int width = rowsAtOnce(rows);
  constexpr std::int64_t ahead = 32 * lanes; // b comes from memory
  __m512 products[rows][width];
  PDCRT_EACH_ROW
  PDCRT_EACH_OF_B products[r][j] = _mm512_setzero_ps();
  for (std::int64_t k = 0; k < depth; k += lanes) {
    const auto mask = static_cast<__mmask16>(depth - k >= lanes ? 0xFFFF : (1u << (depth - k)) - 1);
    __m512 right[width];
    PDCRT_EACH_OF_B {
      _mm_prefetch(b[j] + k + ahead, _MM_HINT_T0);
      right[j] = _mm512_maskz_loadu_ps(mask, b[j] + k);
    }
    PDCRT_EACH_ROW {
      const __m512 left = _mm512_maskz_loadu_ps(mask, a + r * aStride + k);
      PDCRT_EACH_OF_B products[r][j] = _mm512_fmadd_ps(left, right[j], products[r][j]);
    }
  }
  PDCRT_EACH_ROW
  PDCRT_EACH_OF_B sums[r][j] += sumOf(products[r][j]);
}

template <int rows>
void multiplyByRows(std::int64_t begin, std::int64_t end, std::int64_t k, std::int64_t n, const float* a,
                    const float* b, const float* bias, float* c) {
  constexpr int width = rowsAtOnce(rows);
  constexpr std::int64_t run = 2048; // columns whose products are added before they join a sum, for accuracy
  for (std::int64_t first = begin; first < end; first += width) {
    float sums[rows][width] = {};
    for (std::int64_t k0 = 0; k0 < k; k0 += run) {
      const float* right[width];
      PDCRT_EACH_OF_B right[j] = b + std::min(first + j, end - 1) * k + k0; // the last one again beyond the end
      addProducts<rows>(a + k0, k, right, std::min(run, k - k0), sums);
    }
    PDCRT_EACH_ROW
    for (std::int64_t j = first; j < std::min(first + width, end); ++j)
      c[r * n + j] = bias ? sums[r][j - first] + bias[j] : sums[r][j - first];
  }
}

} // namespace

bool available() {
  return __builtin_cpu_supports("avx512f");
}

void multiplyByTransposed(std::int64_t m, std::int64_t k, std::int64_t n, const float* a, const float* b,
                          const float* bias, float* c) {
  constexpr decltype(&multiplyByRows<1>) byRows[] = {multiplyByRows<1>, multiplyByRows<2>, multiplyByRows<3>,
                                                     multiplyByRows<4>, multiplyByRows<5>, multiplyByRows<6>,
                                                     multiplyByRows<7>, multiplyByRows<8>};
  static_assert(std::size(byRows) == mostRows);
  constexpr std::int64_t tile = 12; // whole ones of any width
  const std::int64_t tiles = (n + tile - 1) / tile;
  parts::runRanges(parts::countOf(tiles, k * n), tiles, [&](std::int64_t begin, std::int64_t end) {
    byRows[m - 1](begin * tile, std::min(end * tile, n), k, n, a, b, bias, c);
  });
}

void multiply(std::int64_t m, std::int64_t k, std::int64_t n, const float* a, std::int64_t aStride, const float* b,
              float* c, bool adds) {
  const auto columns = [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k0 = 0; k0 < k; k0 += steps)
      for (std::int64_t j = begin; j < end; j += tileColumns)
        for (std::int64_t i = 0; i < m; i += tileRows)
          run(std::min(tileRows, m - i), {.a = a + i * aStride + k0,
                                          .b = b + k0 * n + j,
                                          .c = c + i * n + j,
                                          .rowStride = aStride,
                                          .stepStride = 1,
                                          .bStride = n,
                                          .cStride = n,
                                          .depth = std::min(steps, k - k0),
                                          .columns = std::min(tileColumns, n - j),
                                          .fresh = k0 == 0 && !adds,
                                          .stream = false,
                                          .ahead = i == 0});
  };
  const std::int64_t tiles = (n + tileColumns - 1) / tileColumns;
  parts::runRanges(parts::countOf(tiles, k * n), tiles, [&](std::int64_t begin, std::int64_t end) {
    columns(begin * tileColumns, std::min(end * tileColumns, n));
  });
}

void multiplyTransposed(std::int64_t m, std::int64_t k, std::int64_t n, const float* a, std::int64_t aStride,
                        const float* b, float* c, bool past) {
  if (!available()) return portableMultiplyTransposed(m, k, n, a, aStride, b, c);
  // Columns of b that stay in the first-level cache.
  const std::int64_t chunk = std::clamp<std::int64_t>(cached / (k * tileColumns), 1, 4) * tileColumns;
  const bool stream = past && reinterpret_cast<std::uintptr_t>(c) % 64 == 0 && n % lanes == 0;
  const auto rows = [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t j0 = 0; j0 < n; j0 += chunk)
      for (std::int64_t i = begin; i < end; i += tileRows)
        for (std::int64_t j = j0; j < std::min(j0 + chunk, n); j += tileColumns)
          run(std::min(tileRows, m - i), {.a = a + i,
                                          .b = b + j,
                                          .c = c + i * n + j,
                                          .rowStride = 1,
                                          .stepStride = aStride,
                                          .bStride = n,
                                          .cStride = n,
                                          .depth = k,
                                          .columns = std::min(tileColumns, n - j),
                                          .fresh = true,
                                          .stream = stream,
                                          .ahead = false});
    if (stream) _mm_sfence();
  };
  const std::int64_t tiles = (m + tileRows - 1) / tileRows;
  parts::runRanges(parts::countOf(tiles, m * n), tiles,
                   [&](std::int64_t begin, std::int64_t end) { rows(begin * tileRows, std::min(end * tileRows, m)); });
}
#else
bool available() {
  return false;
}
void multiply(std::int64_t, std::int64_t, std::int64_t, const float*, std::int64_t, const float*, float*, bool) {}
void multiplyTransposed(std::int64_t m, std::int64_t k, std::int64_t n, const float* a, std::int64_t aStride,
                        const float* b, float* c, bool) {
  portableMultiplyTransposed(m, k, n, a, aStride, b, c);
}
void multiplyByTransposed(std::int64_t, std::int64_t, std::int64_t, const float*, const float*, const float*, float*) {}
#endif

namespace {

/// Rows begin … end - 1 of c: writes the sum of `depth` rows of b, or with `adds` adds it.
template <int depth, bool adds = false>
PDCRT_INLINE void addUpRows(std::int64_t begin, std::int64_t end, std::int64_t n, const float* a, std::int64_t aStride,
                            const float* b, float* c) {
  constexpr std::int64_t chunk = 512; // columns of b that stay in the first-level cache
  for (std::int64_t j0 = 0; j0 < n; j0 += chunk) {
    const std::int64_t columns = std::min(chunk, n - j0);
    for (std::int64_t i = begin; i < end; ++i) {
      const float *const left = a + i, *const right = b + j0;
      float* const row = c + i * n + j0;
#pragma GCC ivdep
      for (std::int64_t j = 0; j < columns; ++j) {
        float sum = adds ? row[j] + left[0] * right[j] : left[0] * right[j];
        PDCRT_EACH(step, depth - 1) sum += left[(step + 1) * aStride] * right[(step + 1) * n + j];
        row[j] = sum;
      }
    }
  }
}

PDCRT_INLINE void addUpFirst(std::int64_t depth, std::int64_t begin, std::int64_t end, std::int64_t n, const float* a,
                             std::int64_t aStride, const float* b, float* c) {
  switch (depth) {
  case 1: return addUpRows<1>(begin, end, n, a, aStride, b, c);
  case 2: return addUpRows<2>(begin, end, n, a, aStride, b, c);
  case 3: return addUpRows<3>(begin, end, n, a, aStride, b, c);
  case 4: return addUpRows<4>(begin, end, n, a, aStride, b, c);
  case 5: return addUpRows<5>(begin, end, n, a, aStride, b, c);
  case 6: return addUpRows<6>(begin, end, n, a, aStride, b, c);
  case 7: return addUpRows<7>(begin, end, n, a, aStride, b, c);
  default: return addUpRows<8>(begin, end, n, a, aStride, b, c);
  }
}

PDCRT_VECTORIZED void addUpRows(std::int64_t depth, std::int64_t begin, std::int64_t end, std::int64_t n,
                                const float* a, std::int64_t aStride, const float* b, float* c) {
  constexpr std::int64_t most = 8;
  const std::int64_t first = (depth - 1) % most + 1;
  addUpFirst(first, begin, end, n, a, aStride, b, c);
  for (std::int64_t step = first; step < depth; step += most)
    addUpRows<most, true>(begin, end, n, a + step * aStride, aStride, b + step * n, c);
}

} // namespace

void portableMultiplyTransposed(std::int64_t m, std::int64_t k, std::int64_t n, const float* a, std::int64_t aStride,
                                const float* b, float* c) {
  parts::runRanges(parts::countOf(m, m * n), m,
                   [&](std::int64_t begin, std::int64_t end) { addUpRows(k, begin, end, n, a, aStride, b, c); });
}

} // namespace pdcrt::fewrows
