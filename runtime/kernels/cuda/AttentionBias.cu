// See AttentionBias.h. A thread makes eight neighbours, whose number divides that of the keys (Attention::takesFused).
#include "AttentionBias.h"

#include "device/cuda/Cuda.h"
#include "pdcrt/CudaWorkspace.h"

#include <type_traits>

namespace pdcrt::cuda {
namespace {

constexpr int n = 8;

/// Rows of keys of the result; the bias has one for each, or one for so many queries.
struct SpreadRows {
  std::int64_t count, packs, queries; ///< packs of a row
};

template <class T>
__global__ void spread(SpreadRows rows, const float* bias, T* to) {
  constexpr float largest = std::is_same_v<T, bfloat16> ? 0x1.FEp127f : 65504.0f;
  for (std::int64_t i = thread(); i < rows.count * rows.packs; i += threads()) {
    const std::int64_t row = i / rows.packs, pack = i % rows.packs;
    const float* const from = bias + (row / rows.queries * rows.packs + pack) * n;
    Pack<T, n> rounded;
    for (int half = 0; half < 2; ++half) {
      const auto four = *reinterpret_cast<const Pack<float, n / 2>*>(from + half * (n / 2));
      for (int k = 0; k < n / 2; ++k) {
        const float x = four[k];
        rounded[half * (n / 2) + k] = static_cast<T>(x > largest ? largest : x < -largest ? -largest : x);
      }
    }
    *reinterpret_cast<Pack<T, n>*>(to + i * n) = rounded;
  }
}

std::int64_t rowsOf(const Attention::Options& o) {
  return o.bias.dims[0] * o.bias.dims[1] * o.queries;
}

} // namespace

std::size_t spreadBiasBytes(const Attention::Options& o) {
  return o.bias.rank == 0 ? 0 : roundedUp(static_cast<std::size_t>(rowsOf(o) * o.keys) * bytesOf(o.element));
}

void spreadBias(Stream& q, const Attention::Options& o, const float* bias, void* to) {
  const SpreadRows rows = {rowsOf(o), o.keys / n, o.bias.dims[2] == 1 ? o.queries : 1};
  const auto launch = [&]<class T>(T* typed) {
    launchLoop(q, "attention, bias", spread<T>, rows.count * rows.packs, rows, bias, typed);
  };
  if (o.element == Element::bf16)
    launch(static_cast<bfloat16*>(to));
  else
    launch(static_cast<float16*>(to));
}

} // namespace pdcrt::cuda
