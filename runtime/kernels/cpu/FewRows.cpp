// See FewRows.h. Six rows by 64 columns of c are in registers at a time. An element of c is a sum of sums over 32
// steps, in ascending order, wherever it lies in c.
#include "FewRows.h"

#include "Parts.h"

#include <algorithm>

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
#define PDCRT_EACH_ROW _Pragma("GCC unroll 6") for (int r = 0; r < rows; ++r)
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

} // namespace

bool available() {
  return __builtin_cpu_supports("avx512f");
}

void multiply(std::int64_t m, std::int64_t k, std::int64_t n, const float* a, const float* b, float* c) {
  constexpr std::int64_t steps = 32; // rows of b at once
  const auto columns = [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k0 = 0; k0 < k; k0 += steps)
      for (std::int64_t j = begin; j < end; j += tileColumns)
        for (std::int64_t i = 0; i < m; i += tileRows)
          run(std::min(tileRows, m - i), {.a = a + i * k + k0,
                                          .b = b + k0 * n + j,
                                          .c = c + i * n + j,
                                          .rowStride = k,
                                          .stepStride = 1,
                                          .bStride = n,
                                          .cStride = n,
                                          .depth = std::min(steps, k - k0),
                                          .columns = std::min(tileColumns, n - j),
                                          .fresh = k0 == 0,
                                          .stream = false,
                                          .ahead = i == 0});
  };
  const std::int64_t tiles = (n + tileColumns - 1) / tileColumns;
  parts::runRanges(parts::countOf(tiles, k * n), tiles, [&](std::int64_t begin, std::int64_t end) {
    columns(begin * tileColumns, std::min(end * tileColumns, n));
  });
}

void multiplyTransposed(std::int64_t m, std::int64_t k, std::int64_t n, const float* a, const float* b, float* c) {
  constexpr std::int64_t chunk = 4 * tileColumns; // columns of b that stay in the first-level cache
  const bool aligned = reinterpret_cast<std::uintptr_t>(c) % 64 == 0 && n % lanes == 0;
  const auto rows = [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t j0 = 0; j0 < n; j0 += chunk)
      for (std::int64_t i = begin; i < end; i += tileRows)
        for (std::int64_t j = j0; j < std::min(j0 + chunk, n); j += tileColumns)
          run(std::min(tileRows, m - i), {.a = a + i,
                                          .b = b + j,
                                          .c = c + i * n + j,
                                          .rowStride = 1,
                                          .stepStride = m,
                                          .bStride = n,
                                          .cStride = n,
                                          .depth = k,
                                          .columns = std::min(tileColumns, n - j),
                                          .fresh = true,
                                          .stream = aligned,
                                          .ahead = false});
    _mm_sfence();
  };
  const std::int64_t tiles = (m + tileRows - 1) / tileRows;
  parts::runRanges(parts::countOf(tiles, m * n), tiles,
                   [&](std::int64_t begin, std::int64_t end) { rows(begin * tileRows, std::min(end * tileRows, m)); });
}
#else
bool available() {
  return false;
}
void multiply(std::int64_t, std::int64_t, std::int64_t, const float*, const float*, float*) {}
void multiplyTransposed(std::int64_t, std::int64_t, std::int64_t, const float*, const float*, float*) {}
#endif

} // namespace pdcrt::fewrows
