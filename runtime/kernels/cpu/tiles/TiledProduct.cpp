// See TiledProduct.h. Tiles of c, up to six rows by 16 columns, are in registers while products are added to them, as
// in TiledConvolution.cpp. Both operands are copied so that a tile reads them in order: some steps of b in panels of 16
// columns, of which one at a time is in the first-level cache, and of a in stripes of six rows, of which as many as the
// second-level cache holds meet each panel. (K. Goto, R. van de Geijn: Anatomy of High-Performance Matrix
// Multiplication, ACM TOMS 34(3), 2008.)
#include "TiledProduct.h"

#if defined(__x86_64__)
#include "Avx2.h"
#include "device/cpu/Parts.h"

#include <algorithm>
#include <cstring>

namespace pdcrt {

namespace {

using Options = TiledProduct::Options;

constexpr std::int64_t columns = 16, rows = 6;
constexpr std::int64_t stepsAtOnce = 256;      ///< a panel of b takes 16 KiB then
constexpr std::int64_t rowsAtOnce = 16 * rows; ///< 96 KiB of a
constexpr std::int64_t panelsAtOnce = 4;       ///< that are copied together

std::int64_t panelsOf(const Options& o) {
  return (o.n + columns - 1) / columns;
}

PDCRT_AVX2 void copyColumns(const float* from, float* to) {
  const __m256 low = _mm256_loadu_ps(from), high = _mm256_loadu_ps(from + 8);
  _mm256_storeu_ps(to, low);
  _mm256_storeu_ps(to + 8, high);
}

/// Steps that are added up before the next ones.
struct Steps {
  std::int64_t first, count;
};

/// 16 columns of b from `column` on, each step's together; 0 behind the last column.
PDCRT_AVX2 void packPanel(const Options& o, const float* b, Steps s, std::int64_t column, float* to) {
  const auto [first, steps] = s;
  const std::int64_t width = std::min(columns, o.n - column);
  std::int64_t done = 0;
  if (o.transposeB && width == columns)
    for (; done + 8 <= steps; done += 8)
      for (std::int64_t half = 0; half < columns; half += 8)
        avx2::exchange(b + (column + half) * o.k + first + done, o.k, to + done * columns + half, columns);
  const std::int64_t stepStride = o.transposeB ? 1 : o.n, columnStride = o.transposeB ? o.k : 1;
  for (; done < steps; ++done) {
    const float* const from = b + (first + done) * stepStride + column * columnStride;
    float* const step = to + done * columns;
    if (!o.transposeB && width == columns)
      copyColumns(from, step);
    else
      for (std::int64_t j = 0; j < columns; ++j) step[j] = j < width ? from[j * columnStride] : 0.0f;
  }
}

/// Panels [begin, end), one after the other. Of b as it is, several at a time: a step of one panel is one cache line,
/// far from the next step's.
PDCRT_AVX2 void packPanels(const Options& o, const float* b, Steps s, std::int64_t begin, std::int64_t end, float* to) {
  const std::int64_t size = s.count * columns;
  std::int64_t p = begin;
  for (; !o.transposeB && p + panelsAtOnce <= end && (p + panelsAtOnce) * columns <= o.n; p += panelsAtOnce)
    for (std::int64_t step = 0; step < s.count; ++step) {
      const float* const from = b + (s.first + step) * o.n + p * columns;
      float* const first = to + (p - begin) * size + step * columns;
      PDCRT_EACH(i, panelsAtOnce) copyColumns(from + i * columns, first + i * size);
    }
  for (; p < end; ++p) packPanel(o, b, s, p * columns, to + (p - begin) * size);
}

constexpr std::int64_t spill = 8 - rows; ///< floats behind the last stripe that packing writes

/// Six rows of a, each step's together; instead of those behind `height` the last one again.
PDCRT_AVX2 void packRows(const float* from, std::int64_t rowStride, std::int64_t height, std::int64_t steps,
                         float* to) {
  const auto row = [=](std::int64_t r) { return from + std::min(r, height - 1) * rowStride; };
  std::int64_t step = 0;
  for (; step + 8 <= steps; step += 8) {
    __m256 values[8];
    PDCRT_EACH(r, rows) values[r] = _mm256_loadu_ps(row(r) + step);
    PDCRT_EACH(r, spill) values[rows + r] = values[r];
    avx2::exchange(values);
    // What a store writes too much the next one, or the next stripe, replaces.
    PDCRT_EACH(s, 8) _mm256_storeu_ps(to + (step + s) * rows, values[s]);
  }
  for (; step < steps; ++step)
    for (std::int64_t r = 0; r < rows; ++r) to[step * rows + r] = row(r)[step];
}

/// The same of `count` rows that are given as columns, in stripes. Some steps of all stripes at a time: what a cache
/// line holds of other stripes is used before the line is gone.
void packColumns(const float* from, std::int64_t stepStride, std::int64_t count, std::int64_t steps, float* to) {
  constexpr std::int64_t stepsTogether = 8;
  for (std::int64_t first = 0; first < steps; first += stepsTogether)
    for (std::int64_t r = 0; r < count; r += rows) {
      const std::int64_t height = std::min(rows, count - r), last = std::min(first + stepsTogether, steps);
      // The next ones lie in other pages, which no hardware looks ahead into.
      for (std::int64_t next = last; next < std::min(last + stepsTogether, steps); ++next)
        _mm_prefetch(from + next * stepStride + r, _MM_HINT_T0);
      for (std::int64_t step = first; step < last; ++step) {
        const float* const values = from + step * stepStride + r;
        float* const stripe = to + r * steps + step * rows;
        if (height == rows)
          std::memcpy(stripe, values, rows * sizeof(float));
        else
          std::copy_n(values, height, stripe);
      }
    }
}

/// `count` rows of a from `row` on, in stripes of six, each step's together. Rows behind the last are left out.
void packStripes(const Options& o, const float* a, Steps s, std::int64_t row, std::int64_t count, float* to) {
  if (o.transposeA) return packColumns(a + s.first * o.m + row, o.m, count, s.count, to);
  for (std::int64_t r = 0; r < count; r += rows)
    packRows(a + (row + r) * o.k + s.first, o.k, std::min(rows, count - r), s.count, to + r * s.count);
}

struct Tile {
  const float *a, *b, *bias; ///< of the bias 16 floats, or null
  float* c;
  std::int64_t steps, cStride;
  bool fresh; ///< c is written, not added to
};

template <int height>
PDCRT_AVX2 void run(const Tile& tile) {
  const Tile t = tile;
  // Where the sums go is far away, and one store waits for the other there.
  PDCRT_EACH(r, height) _mm_prefetch(t.c + r * t.cStride, _MM_HINT_T0);
  __m256 sums[height][2];
  PDCRT_EACH(r, height)
  PDCRT_EACH(v, 2) sums[r][v] = _mm256_setzero_ps();
  const float *a = t.a, *b = t.b;
  for (std::int64_t step = 0; step < t.steps; ++step, a += rows, b += columns) {
    const __m256 low = _mm256_loadu_ps(b), high = _mm256_loadu_ps(b + 8);
    PDCRT_EACH(r, height) {
      const __m256 left = _mm256_broadcast_ss(a + r);
      sums[r][0] = _mm256_fmadd_ps(left, low, sums[r][0]);
      sums[r][1] = _mm256_fmadd_ps(left, high, sums[r][1]);
    }
  }
  PDCRT_EACH(r, height)
  PDCRT_EACH(v, 2) {
    float* const to = t.c + r * t.cStride + v * 8;
    if (!t.fresh)
      sums[r][v] = _mm256_add_ps(_mm256_loadu_ps(to), sums[r][v]);
    else if (t.bias)
      sums[r][v] = _mm256_add_ps(_mm256_loadu_ps(t.bias + v * 8), sums[r][v]);
    _mm256_storeu_ps(to, sums[r][v]);
  }
}

void runTile(std::int64_t height, const Tile& t) {
  switch (height) {
  case 1: return run<1>(t);
  case 2: return run<2>(t);
  case 3: return run<3>(t);
  case 4: return run<4>(t);
  case 5: return run<5>(t);
  default: return run<rows>(t);
  }
}

/// A tile with fewer than 16 columns is computed elsewhere.
void runNarrow(std::int64_t height, std::int64_t width, Tile t) {
  float values[rows * columns] = {}, bias[columns] = {};
  float* const c = t.c;
  const std::int64_t stride = t.cStride;
  for (std::int64_t r = 0; r < height && !t.fresh; ++r) std::copy_n(c + r * stride, width, values + r * columns);
  if (t.bias) t.bias = std::copy_n(t.bias, width, bias) - width;
  t.c = values, t.cStride = columns;
  runTile(height, t);
  for (std::int64_t r = 0; r < height; ++r) std::copy_n(values + r * columns, width, c + r * stride);
}

/// Bytes, up to whole cache lines.
std::size_t bytesOf(std::int64_t floats) {
  return static_cast<std::size_t>((floats + 15) / 16 * 16) * sizeof(float);
}

/// Where a thread's copies are.
struct Room {
  std::size_t panels, stripes; ///< bytes

  Room(const Options& o, int threads) {
    const std::int64_t steps = std::min(o.k, stepsAtOnce), some = (panelsOf(o) + threads - 1) / threads;
    // Rows that are all there at once need a panel only once.
    panels = bytesOf((o.m <= rowsAtOnce ? 1 : some) * steps * columns);
    stripes = bytesOf(std::min((o.m + rows - 1) / rows * rows, rowsAtOnce) * steps + spill);
  }
};

/// Computes the columns of some panels, where panelOf(steps, panel, first row) is a panel of b.
template <class PanelOf>
void multiply(const Options& o, parts::Range panels, float* stripes, const float* a, const float* bias, float* c,
              const PanelOf& panelOf) {
  for (std::int64_t k = 0; k < o.k; k += stepsAtOnce) {
    const Steps steps = {k, std::min(stepsAtOnce, o.k - k)};
    for (std::int64_t row = 0; row < o.m; row += rowsAtOnce) {
      const std::int64_t count = std::min(rowsAtOnce, o.m - row);
      packStripes(o, a, steps, row, count, stripes);
      for (std::int64_t p = panels.begin; p < panels.end; ++p) {
        const float* const panel = panelOf(steps, p, row);
        const std::int64_t column = p * columns, width = std::min(columns, o.n - column);
        for (std::int64_t r = 0; r < count; r += rows) {
          const Tile tile = {.a = stripes + r * steps.count,
                             .b = panel,
                             .bias = bias ? bias + column : nullptr,
                             .c = c + (row + r) * o.n + column,
                             .steps = steps.count,
                             .cStride = o.n,
                             .fresh = k == 0 && !o.adds};
          const std::int64_t height = std::min(rows, count - r);
          width == columns ? runTile(height, tile) : runNarrow(height, width, tile);
        }
      }
    }
  }
}

} // namespace

bool TiledProduct::preferred(const Options& o) {
  return avx2::preferred() && o.n >= columns && o.m >= 2 && o.m * o.k * o.n >= 1 << 15;
}

TiledProduct::TiledProduct(const Options& o)
    : o_(o), threads_(parts::countOf(panelsOf(o), o.m * o.k * o.n / columns)) {}

std::size_t TiledProduct::workspaceBytes() const {
  const Room room(o_, threads_);
  return static_cast<std::size_t>(threads_) * (room.panels + room.stripes);
}

void TiledProduct::run(std::byte* workspace, const float* a, const float* b, const float* bias, float* c) const {
  const Options& o = o_;
  const Room room(o, threads_);
  parts::run(threads_, [&](int part) {
    std::byte* const mine = workspace + static_cast<std::size_t>(part) * (room.panels + room.stripes);
    float* const panels = reinterpret_cast<float*>(mine);
    const parts::Range range = parts::rangeOf(part, threads_, panelsOf(o));
    multiply(o, range, reinterpret_cast<float*>(mine + room.panels), a, bias, c,
             [&](const Steps& steps, std::int64_t p, std::int64_t row) {
               const bool keeps = o.m > rowsAtOnce;
               const std::int64_t place = p - range.begin, together = keeps ? panelsAtOnce : 1;
               float* const panel = panels + (keeps ? place * steps.count * columns : 0);
               if (row == 0 && place % together == 0)
                 packPanels(o, b, steps, p, std::min(p + together, range.end), panel);
               return panel;
             });
  });
}

std::size_t TiledProduct::packedBytes() const {
  return bytesOf(panelsOf(o_) * o_.k * columns);
}

void TiledProduct::pack(const float* b, float* packed) const {
  const std::int64_t panels = panelsOf(o_);
  parts::runRanges(parts::countOf(panels, o_.k * o_.n), panels, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = 0; k < o_.k; k += stepsAtOnce) {
      const Steps steps = {k, std::min(stepsAtOnce, o_.k - k)};
      packPanels(o_, b, steps, begin, end, packed + (k * panels + begin * steps.count) * columns);
    }
  });
}

std::size_t TiledProduct::workspaceBytesPacked() const {
  return static_cast<std::size_t>(threads_) * Room(o_, threads_).stripes;
}

void TiledProduct::runPacked(std::byte* workspace, const float* a, const float* packed, float* c) const {
  const std::int64_t panels = panelsOf(o_);
  parts::run(threads_, [&](int part) {
    float* const stripes =
        reinterpret_cast<float*>(workspace + static_cast<std::size_t>(part) * Room(o_, threads_).stripes);
    multiply(o_, parts::rangeOf(part, threads_, panels), stripes, a, nullptr, c,
             [&](const Steps& steps, std::int64_t p, std::int64_t) {
               return packed + (steps.first * panels + p * steps.count) * columns;
             });
  });
}

} // namespace pdcrt
#else
namespace pdcrt {

bool TiledProduct::preferred(const Options&) {
  return false;
}
TiledProduct::TiledProduct(const Options& o) : o_(o) {}
std::size_t TiledProduct::workspaceBytes() const {
  return 0;
}
void TiledProduct::run(std::byte*, const float*, const float*, const float*, float*) const {}
std::size_t TiledProduct::packedBytes() const {
  return 0;
}
void TiledProduct::pack(const float*, float*) const {}
std::size_t TiledProduct::workspaceBytesPacked() const {
  return 0;
}
void TiledProduct::runPacked(std::byte*, const float*, const float*, float*) const {}

} // namespace pdcrt
#endif
