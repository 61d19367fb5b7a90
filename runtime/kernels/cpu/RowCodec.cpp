// See RowCodec.h. The bits of magnitudes are compared as integers, in which NaN comes after infinity. A sum with
// 1.5 · 2^23 is rounded to the integer that its lowest bits then are.
#include "pdcrt/kernels/RowCodec.h"

#include "device/cpu/Parts.h"
#include "device/cpu/Sums.h"

#include <algorithm>
#include <bit>

namespace pdcrt {
namespace {

PDCRT_VECTORIZED void largestOfColumns(std::int64_t columns, const std::int32_t* row, std::int32_t* largest) {
  for (std::int64_t j = 0; j < columns; ++j) largest[j] = std::max(largest[j], row[j] & RowCodec::magnitude);
}

/// Without the columns where `mask` is 0; it is -1 elsewhere.
PDCRT_VECTORIZED std::int32_t largestOfRow(std::int64_t columns, const std::int32_t* row, const std::int32_t* mask) {
  std::int32_t largest = 0;
  for (std::int64_t j = 0; j < columns; ++j) largest = std::max(largest, row[j] & mask[j] & RowCodec::magnitude);
  return largest;
}

PDCRT_VECTORIZED void roundRow(std::int64_t columns, const std::int32_t* row, const std::int32_t* mask, float factor,
                               std::uint8_t* to) {
  for (std::int64_t j = 0; j < columns; ++j) {
    const float x = std::bit_cast<float>(row[j] & mask[j]);
    to[j] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(x * factor + 0x1.8p23f));
  }
}

PDCRT_VECTORIZED void scaleRow(std::int64_t columns, const std::int8_t* row, float scale, float* to) {
  for (std::int64_t j = 0; j < columns; ++j) to[j] = static_cast<float>(row[j]) * scale;
}

/// Writes the numbers of the columns that stay, and a mask without them over their largest magnitudes.
void chooseColumns(const RowCodec::Options& o, std::int32_t* largest, std::int32_t* places) {
  const auto least = std::bit_cast<std::int32_t>(static_cast<float>(o.alpha));
  for (std::int64_t k = 0; k < o.kept; ++k) {
    const std::int64_t best = std::max_element(largest, largest + o.columns) - largest;
    const bool stays = o.columns > 0 && largest[best] >= least;
    places[k] = stays ? static_cast<std::int32_t>(best) : -1;
    if (stays) largest[best] = -1;
  }
  for (std::int64_t j = 0; j < o.columns; ++j) largest[j] = largest[j] == -1 ? 0 : -1;
}

/// Rows are read again while they are in the cache.
template <class F>
void forEachRow(const RowCodec::Options& o, const F& f) {
  parts::runRanges(parts::countOf(o.rows, o.rows * o.columns), o.rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i);
  });
}

} // namespace

RowCodec::RowCodec(Setup& setup, const Options& options) : options_(options) {
  setup.needWorkspace(static_cast<std::size_t>(options.columns) * sizeof(std::int32_t));
}

void RowCodec::encode(Stream& q, View<const float> x, View<std::uint8_t> y) const {
  const Options& o = options_;
  const Layout layout(o);
  const auto* const bits = reinterpret_cast<const std::int32_t*>(x.data);
  auto* const mask = reinterpret_cast<std::int32_t*>(q.workspace());
  auto* const scales = reinterpret_cast<float*>(y.data);
  auto* const places = reinterpret_cast<std::int32_t*>(y.data + layout.places);
  auto* const outliers = reinterpret_cast<float*>(y.data + layout.outliers);
  std::fill_n(mask, o.columns, 0);
  if (o.kept > 0)
    parts::runLines(o.columns, o.rows * o.columns, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = 0; i < o.rows; ++i)
        largestOfColumns(end - begin, bits + i * o.columns + begin, mask + begin);
    });
  chooseColumns(o, mask, places);
  forEachRow(o, [&](std::int64_t i) {
    const std::int32_t* const row = bits + i * o.columns;
    const std::int32_t largest = largestOfRow(o.columns, row, mask);
    scales[i] = scaleOf(largest);
    std::uint8_t* const integers = y.data + layout.integers + i * o.columns;
    if (const float factor = factorOf(largest); factor != 0)
      roundRow(o.columns, row, mask, factor, integers);
    else
      std::fill_n(integers, o.columns, std::uint8_t{0});
    for (std::int64_t k = 0; k < o.kept; ++k)
      outliers[i * o.kept + k] = places[k] < 0 ? 0 : std::bit_cast<float>(row[places[k]]);
  });
}

void RowCodec::decode(Stream&, View<const std::uint8_t> x, View<float> y) const {
  const Options& o = options_;
  const Layout layout(o);
  const auto* const scales = reinterpret_cast<const float*>(x.data);
  const auto* const places = reinterpret_cast<const std::int32_t*>(x.data + layout.places);
  const auto* const outliers = reinterpret_cast<const float*>(x.data + layout.outliers);
  const auto* const integers = reinterpret_cast<const std::int8_t*>(x.data + layout.integers);
  forEachRow(o, [&](std::int64_t i) {
    float* const row = y.data + i * o.columns;
    scaleRow(o.columns, integers + i * o.columns, scales[i], row);
    for (std::int64_t k = 0; k < o.kept; ++k)
      if (places[k] >= 0) row[places[k]] = outliers[i * o.kept + k];
  });
}

} // namespace pdcrt
