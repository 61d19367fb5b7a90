// See Int8Product.h. Rows of x are quantised once. Weights are packed for all inputs of a panel of columns, which the
// second-level cache holds, and meet all rows there: tiles in registers (Int8Tiles.h), then outliers, then the bias.
#include "Int8Product.h"

#include "Int8Tiles.h"
#include "device/cpu/Parts.h"
#include "device/cpu/Sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include "Avx2.h"
#endif

namespace pdcrt {

using namespace int8; // NOLINT(google-build-using-namespace): the tiles

namespace {

using Sizes = Int8Product::Sizes;
using Operands = Int8Product::Operands;

constexpr std::int64_t outliersAtOnce = 256; ///< of which a panel of weights takes 32 KiB

std::int64_t roundedTo(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Inputs whose products are added in 32 bits: all of them, or as many as fit, in whole groups.
constexpr std::int64_t longestSegment = productsIn32Bits / groupBytes * groupBytes;

/// Where everything is in the workspace, in bytes from its beginning, at whole lines of the cache.
struct Int8Places {
  std::int64_t groups, segments, panels; ///< panels of columns
  std::size_t masks, outliers, keptAt, scales, sums, integers, threads;
  std::size_t panelBytes, outlierBytes;

  Int8Places(const Sizes& s, Instructions i, int threadCount) {
    const auto lines = [](std::int64_t bytes) { return static_cast<std::size_t>(roundedTo(bytes, 64)); };
    groups = (s.inputs + perGroup(i) - 1) / perGroup(i);
    segments = (s.inputs + longestSegment - 1) / longestSegment;
    panels = (s.outputs + columnsOf(i) - 1) / columnsOf(i);
    const std::int64_t rows = roundedTo(s.rows, tallest);
    masks = 0;
    outliers = masks + lines(s.inputs * 4);
    keptAt = outliers + lines(s.inputs * 4);
    scales = keptAt + lines(s.inputs * 4);
    sums = scales + lines(rows * 4);
    integers = sums + lines(rows * segments * 4);
    threads = integers + lines(rows * groups * groupBytes);
    panelBytes = lines(groups * groupBytes * columnsOf(i));
    outlierBytes = lines(outliersAtOnce * columnsOf(i) * 4);
    end = threads + static_cast<std::size_t>(threadCount) * (panelBytes + outlierBytes);
  }
  std::size_t end;
};

/// Bits of floats: all where no row has an outlier at an input, else none.
PDCRT_VECTORIZED void findOutliers(const float* x, std::int64_t rows, std::int64_t stride, std::int64_t count,
                                   float alpha, std::uint32_t* masks) {
  for (std::int64_t i = 0; i < count; ++i) masks[i] = ~0u;
  for (std::int64_t row = 0; row < rows; ++row, x += stride)
    for (std::int64_t i = 0; i < count; ++i) masks[i] &= std::fabs(x[i]) < alpha ? ~0u : 0u;
}

PDCRT_INLINE float masked(float value, std::uint32_t mask) {
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, value) & mask);
}

/// Quantises a row but for its outliers, which become 0; returns its scale.
template <class Integer>
PDCRT_INLINE float quantizeRow(const float* x, const std::uint32_t* masks, std::int64_t count, Integer* to) {
  float max = 0;
  constexpr int lanes = 16;
  float most[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int lane = 0; lane < lanes; ++lane) {
      const float value = std::fabs(masked(x[i + lane], masks[i + lane]));
      most[lane] = value > most[lane] ? value : most[lane];
    }
  for (; i < count; ++i) max = std::max(max, std::fabs(masked(x[i], masks[i])));
  for (const float value : most) max = std::max(max, value);
  const float scale = scaleOf(max);
  if (!(scale > 0)) {
    std::fill_n(to, count, Integer(0));
    return scale;
  }
  for (std::int64_t at = 0; at < count; ++at) {
    const float rounded = __builtin_rintf(masked(x[at], masks[at]) / scale);
    const float least = rounded < -largest ? -largest : rounded;
    to[at] = static_cast<Integer>(static_cast<std::int32_t>(least > largest ? largest : least));
  }
  return scale;
}

PDCRT_VECTORIZED float quantizeTo8(const float* x, const std::uint32_t* masks, std::int64_t count, std::int8_t* to) {
  return quantizeRow(x, masks, count, to);
}
PDCRT_VECTORIZED float quantizeTo16(const float* x, const std::uint32_t* masks, std::int64_t count, std::int16_t* to) {
  return quantizeRow(x, masks, count, to);
}

PDCRT_VECTORIZED std::uint32_t sumOfIntegers(const std::int8_t* values, std::int64_t count) {
  std::uint32_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<std::uint32_t>(std::int32_t{values[i]});
  return sum;
}

/// y of integer sums, of which `tooMuch` is taken off.
PDCRT_VECTORIZED void scaleSums(const std::int32_t* sums, std::int64_t count, std::uint32_t tooMuch, float rowScale,
                                const float* scales, float* y) {
  for (std::int64_t j = 0; j < count; ++j)
    y[j] = static_cast<float>(static_cast<std::int32_t>(static_cast<std::uint32_t>(sums[j]) - tooMuch)) *
           (rowScale * scales[j]);
}

/// One call: where everything is, and its steps.
struct Int8Call {
  const Sizes& s;
  const Operands& o;
  Instructions instructions;
  Int8Places places;
  std::byte* workspace;
  std::int64_t outlierCount = 0;

  template <class T>
  T* at(std::size_t place) const {
    return reinterpret_cast<T*>(workspace + place);
  }
  std::int64_t rowBytes() const { return places.groups * groupBytes; }

  void listOutliers();
  void quantize(std::int64_t begin, std::int64_t end) const;
  void multiply(std::int64_t panel, std::byte* packed) const;
  void addAllOutliers(std::int64_t panel, float* weights) const;
  void addBias(std::int64_t panel) const;
  std::int64_t widthOf(std::int64_t panel) const {
    return std::min(columnsOf(instructions), s.outputs - panel * columnsOf(instructions));
  }
};

void Int8Call::listOutliers() {
  auto* const masks = at<std::uint32_t>(places.masks);
  auto *const outliers = at<std::int32_t>(places.outliers), *const keptAt = at<std::int32_t>(places.keptAt);
  parts::runLines(s.inputs, s.rows * s.inputs, [&](std::int64_t begin, std::int64_t end) {
    findOutliers(o.x + begin, s.rows, s.inputs, end - begin, s.alpha, masks + begin);
  });
  std::fill_n(keptAt, s.inputs, -1);
  for (std::int64_t e = 0; e < s.kept; ++e) {
    masks[o.keptInputs[e]] = 0;
    keptAt[o.keptInputs[e]] = static_cast<std::int32_t>(e);
  }
  outlierCount = 0;
  for (std::int64_t i = 0; i < s.inputs; ++i)
    if (masks[i] == 0) outliers[outlierCount++] = static_cast<std::int32_t>(i);
}

/// Rows [begin, end), with zeros behind the last input, and behind the last row.
void Int8Call::quantize(std::int64_t begin, std::int64_t end) const {
  const auto* const masks = at<std::uint32_t>(places.masks);
  auto* const scales = at<float>(places.scales);
  auto* const sums = at<std::uint32_t>(places.sums);
  for (std::int64_t row = begin; row < end; ++row) {
    std::byte* const to = at<std::byte>(places.integers) + row * rowBytes();
    std::memset(to, 0, static_cast<std::size_t>(rowBytes()));
    std::fill_n(sums + row * places.segments, places.segments, 0u);
    scales[row] = 0;
    if (row >= s.rows) continue;
    const float* const x = o.x + row * s.inputs;
    if (instructions != Instructions::vnni) {
      scales[row] = quantizeTo16(x, masks, s.inputs, reinterpret_cast<std::int16_t*>(to));
      continue;
    }
    auto* const integers = reinterpret_cast<std::int8_t*>(to);
    scales[row] = quantizeTo8(x, masks, s.inputs, integers);
    for (std::int64_t segment = 0; segment < places.segments; ++segment) {
      const std::int64_t first = segment * longestSegment;
      sums[row * places.segments + segment] =
          128 * sumOfIntegers(integers + first, std::min(longestSegment, s.inputs - first));
    }
  }
}

/// Writes the columns of a panel without outliers and bias.
void Int8Call::multiply(std::int64_t panel, std::byte* packed) const {
  const std::int64_t columns = columnsOf(instructions), width = widthOf(panel), column = panel * columns;
  const std::int64_t height = heightOf(instructions), groupsAtOnce = longestSegment / perGroup(instructions);
  const std::int64_t groups = outlierCount == s.inputs ? 0 : places.groups; // nothing is left
  if (groups > 0) packWeights(o.w + column * s.inputs, s.inputs, groups, width, instructions, packed);
  alignas(64) std::int32_t sums[tallest * mostColumns];
  std::int64_t wide[tallest * mostColumns];
  for (std::int64_t row = 0; row < s.rows; row += height) {
    const std::int64_t here = std::min(height, s.rows - row);
    const std::byte* const x = at<std::byte>(places.integers) + row * rowBytes();
    const std::uint32_t* const tooMuch = at<std::uint32_t>(places.sums) + row * places.segments;
    const float* const scales = at<float>(places.scales) + row;
    for (std::int64_t first = 0, segment = 0; segment < places.segments; first += groupsAtOnce, ++segment) {
      runTile(instructions, here,
              {.x = x + first * groupBytes,
               .w = packed + first * columns * groupBytes,
               .stride = rowBytes(),
               .groups = std::max<std::int64_t>(0, std::min(groupsAtOnce, groups - first)),
               .sums = sums});
      for (std::int64_t r = 0; r < here && places.segments > 1; ++r)
        for (std::int64_t j = 0; j < columns; ++j) {
          const auto at = static_cast<std::size_t>(r * columns + j);
          const std::uint32_t sum = static_cast<std::uint32_t>(sums[at]) - tooMuch[r * places.segments + segment];
          wide[at] = (segment > 0 ? wide[at] : 0) + static_cast<std::int32_t>(sum);
        }
    }
    for (std::int64_t r = 0; r < here; ++r) {
      float* const y = o.y + (row + r) * s.outputs + column;
      if (places.segments == 1)
        scaleSums(sums + r * columns, width, tooMuch[r], scales[r], o.scale + column, y);
      else
        for (std::int64_t j = 0; j < width; ++j)
          y[j] = static_cast<float>(wide[r * columns + j]) * (scales[r] * o.scale[column + j]);
    }
  }
}

void Int8Call::addAllOutliers(std::int64_t panel, float* weights) const {
  const std::int64_t columns = columnsOf(instructions), width = widthOf(panel), column = panel * columns;
  const auto *const outliers = at<std::int32_t>(places.outliers), *const keptAt = at<std::int32_t>(places.keptAt);
  const OutlierRows one = outlierRowsBy(instructions, true), several = outlierRowsBy(instructions, false);
  for (std::int64_t first = 0; first < outlierCount; first += outliersAtOnce) {
    const std::int64_t count = std::min(outliersAtOnce, outlierCount - first);
    for (std::int64_t j = 0; j < columns; ++j)
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t input = outliers[first + i], kept = keptAt[input], output = column + j;
        float& weight = weights[i * columns + j];
        if (j >= width)
          weight = 0;
        else if (kept >= 0)
          weight = o.kept[kept * s.outputs + output];
        else
          weight = static_cast<float>(o.w[output * s.inputs + input]) * o.scale[output];
      }
    float values[outlierRows * mostColumns] = {};
    for (std::int64_t row = 0; row < s.rows;) {
      const std::int64_t here = several && s.rows - row >= outlierRows ? outlierRows : 1;
      float* const y = o.y + row * s.outputs + column;
      for (std::int64_t r = 0; r < here; ++r) std::copy_n(y + r * s.outputs, width, values + r * columns);
      (here == 1 ? one : several)(values, o.x + row * s.inputs, s.inputs, outliers + first, count, weights);
      for (std::int64_t r = 0; r < here; ++r) std::copy_n(values + r * columns, width, y + r * s.outputs);
      row += here;
    }
  }
}

void Int8Call::addBias(std::int64_t panel) const {
  const std::int64_t column = panel * columnsOf(instructions), width = widthOf(panel);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    float* const y = o.y + row * s.outputs + column;
    for (std::int64_t j = 0; j < width; ++j) y[j] += o.bias[column + j];
  }
}

} // namespace

bool Int8Product::available(Instructions instructions) {
#if defined(__x86_64__)
  const bool hasAvx512 = avx2::available() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  switch (instructions) {
  case Instructions::vnni: return hasAvx512 && __builtin_cpu_supports("avx512vnni");
  case Instructions::avx512: return hasAvx512;
  case Instructions::avx2: return avx2::available();
  case Instructions::plain: return true;
  }
#endif
  return instructions == Instructions::plain;
}

Int8Product::Instructions Int8Product::best() {
  for (const Instructions each : {Instructions::vnni, Instructions::avx512, Instructions::avx2})
    if (available(each)) return each;
  return Instructions::plain;
}

Int8Product::Int8Product(const Sizes& sizes, Instructions instructions)
    : s_(sizes), instructions_(instructions),
      threads_(parts::countOf(Int8Places(sizes, instructions, 1).panels,
                              sizes.rows * sizes.inputs * sizes.outputs / columnsOf(instructions))) {}

std::size_t Int8Product::workspaceBytes() const {
  return Int8Places(s_, instructions_, threads_).end;
}

void Int8Product::run(std::byte* workspace, const Operands& operands) const {
  Int8Call call{s_, operands, instructions_, {s_, instructions_, threads_}, workspace};
  call.listOutliers();
  const std::int64_t rows = roundedTo(s_.rows, tallest);
  parts::runRanges(parts::countOf(rows, rows * s_.inputs), rows,
                   [&](std::int64_t begin, std::int64_t end) { call.quantize(begin, end); });
  parts::run(threads_, [&](int part) {
    std::byte* const mine = workspace + call.places.threads +
                            static_cast<std::size_t>(part) * (call.places.panelBytes + call.places.outlierBytes);
    const parts::Range range = parts::rangeOf(part, threads_, call.places.panels);
    for (std::int64_t panel = range.begin; panel < range.end; ++panel) {
      call.multiply(panel, mine);
      call.addAllOutliers(panel, reinterpret_cast<float*>(mine + call.places.panelBytes));
      if (operands.bias) call.addBias(panel);
    }
  });
}

} // namespace pdcrt
