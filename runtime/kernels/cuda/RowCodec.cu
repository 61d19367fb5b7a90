// See RowCodec.h. One thread per column finds its largest magnitude, one block chooses the columns that stay, and then
// one block per row rounds it.
#include "pdcrt/kernels/RowCodec.h"

#include "device/cuda/Cuda.h"

#include <bit>
#include <cstddef>

namespace pdcrt {
namespace {

__device__ std::int32_t magnitudeOf(float x) {
  return std::bit_cast<std::int32_t>(x) & RowCodec::magnitude;
}

__global__ void largestOfColumns(RowCodec::Options o, const float* x, std::int32_t* largest) {
  for (std::int64_t j = thread(); j < o.columns; j += threads()) {
    std::int32_t most = 0;
    for (std::int64_t i = 0; i < o.rows; ++i) most = maximum(most, magnitudeOf(x[i * o.columns + j]));
    largest[j] = most;
  }
}

/// A column's place is the number of those that are better.
__global__ void chooseColumns(RowCodec::Options o, const std::int32_t* largest, std::int32_t* mask,
                              std::int32_t* places) {
  const std::int32_t least = std::bit_cast<std::int32_t>(static_cast<float>(o.alpha));
  for (std::int64_t j = thread(); j < o.columns; j += threads()) {
    std::int64_t better = largest[j] < least ? o.kept : 0;
    for (std::int64_t other = 0; other < o.columns && better < o.kept; ++other)
      better += largest[other] > largest[j] || (largest[other] == largest[j] && other < j);
    mask[j] = better < o.kept ? 0 : -1;
    if (better < o.kept) places[better] = static_cast<std::int32_t>(j);
  }
}

__global__ void noPlaces(std::int64_t kept, std::int32_t* places) {
  for (std::int64_t k = thread(); k < kept; k += threads()) places[k] = -1;
}

__global__ void encodeRows(RowCodec::Options o, RowCodec::Layout layout, const float* x, const std::int32_t* mask,
                           std::uint8_t* y) {
  const auto* const places = reinterpret_cast<const std::int32_t*>(y + layout.places);
  auto* const outliers = reinterpret_cast<float*>(y + layout.outliers);
  for (std::int64_t i = blockIdx.x; i < o.rows; i += gridDim.x) {
    const float* const row = x + i * o.columns;
    std::int32_t largest = 0;
    for (std::int64_t j = threadIdx.x; j < o.columns; j += blockDim.x)
      largest = maximum(largest, magnitudeOf(row[j]) & mask[j]);
    largest = cuda::blockCombine(largest, 0, cuda::Larger());
    const float factor = RowCodec::factorOf(largest);
    if (threadIdx.x == 0) reinterpret_cast<float*>(y)[i] = RowCodec::scaleOf(largest);
    for (std::int64_t j = threadIdx.x; j < o.columns; j += blockDim.x)
      y[layout.integers + static_cast<std::size_t>(i * o.columns + j)] =
          mask[j] != 0 && factor != 0 ? static_cast<std::uint8_t>(static_cast<int>(rintf(row[j] * factor))) : 0;
    for (std::int64_t k = threadIdx.x; k < o.kept; k += blockDim.x)
      outliers[i * o.kept + k] = places[k] < 0 ? 0 : row[places[k]];
  }
}

__global__ void decodeRows(RowCodec::Options o, RowCodec::Layout layout, const std::uint8_t* x, float* y) {
  const auto* const scales = reinterpret_cast<const float*>(x);
  const auto* const places = reinterpret_cast<const std::int32_t*>(x + layout.places);
  const auto* const outliers = reinterpret_cast<const float*>(x + layout.outliers);
  const auto* const integers = reinterpret_cast<const std::int8_t*>(x + layout.integers);
  for (std::int64_t at = thread(); at < o.rows * o.columns; at += threads()) {
    const std::int64_t i = at / o.columns;
    float value = static_cast<float>(integers[at]) * scales[i];
    for (std::int64_t k = 0; k < o.kept; ++k)
      if (places[k] == at % o.columns) value = outliers[i * o.kept + k];
    y[at] = value;
  }
}

} // namespace

RowCodec::RowCodec(Setup& setup, const Options& options) : options_(options) {
  setup.needWorkspace(2 * static_cast<std::size_t>(options.columns) * sizeof(std::int32_t));
}

void RowCodec::encode(Stream& q, View<const float> x, View<std::uint8_t> y) const {
  const Options& o = options_;
  const Layout layout(o);
  auto* const largest = reinterpret_cast<std::int32_t*>(q.workspace());
  auto* const mask = largest + o.columns;
  auto* const places = reinterpret_cast<std::int32_t*>(y.data + layout.places);
  launchLoop(q, "largest of columns", largestOfColumns, o.columns, o, x.data, largest);
  launchLoop(q, "no outliers", noPlaces, o.kept, o.kept, places);
  launchLoop(q, "columns with outliers", chooseColumns, o.columns, o, static_cast<const std::int32_t*>(largest), mask,
             places);
  cuda::launchBlocks(q, "encode rows", encodeRows, o.rows, o, layout, x.data, static_cast<const std::int32_t*>(mask),
                     y.data);
}

void RowCodec::decode(Stream& q, View<const std::uint8_t> x, View<float> y) const {
  launchLoop(q, "decode rows", decodeRows, options_.rows * options_.columns, options_, Layout(options_), x.data,
             y.data);
}

} // namespace pdcrt
