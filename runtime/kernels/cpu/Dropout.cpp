// See Dropout.h.
#include "pdcrt/kernels/Dropout.h"

#include "Sums.h"
#include "pdcrt/Random.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace pdcrt {
namespace {

/// mask[i] = 1 where word i of the stream is at least `threshold`.
PDCRT_VECTORIZED void drawMask(std::int64_t count, std::uint32_t op, Draw draw, std::uint64_t threshold,
                               std::uint8_t* mask) {
  for (std::int64_t begin = 0; begin < count; begin += 4) {
    const PhiloxBlock block =
        philox(philoxCounter(static_cast<std::uint32_t>(begin / 4), op, draw.minibatch), draw.seed);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(4, count - begin); ++i)
      mask[begin + i] = block[static_cast<std::size_t>(i)] >= threshold;
  }
}

PDCRT_VECTORIZED void keep(std::int64_t count, const float* x, const std::uint8_t* mask, float scale, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = mask[i] ? x[i] * scale : 0.0f;
}

float scaleOf(const Dropout::Options& o) {
  return static_cast<float>(1 / (1 - o.ratio));
}

} // namespace

Dropout::Dropout(Setup&, const Options& o) : options_(o) {
  if (!(o.ratio >= 0 && o.ratio < 1))
    throw std::runtime_error("dropout: ratio " + std::to_string(o.ratio) + " is not in [0, 1)");
  if (o.elements / 4 > std::int64_t{0xFFFFFFFF})
    throw std::runtime_error("dropout of " + std::to_string(o.elements) + " elements: at most 2^34");
}

void Dropout::forward(Stream&, Draw draw, View<const float> x, View<float> y, View<std::uint8_t> mask) const {
  const auto threshold = static_cast<std::uint64_t>(std::llround(options_.ratio * 4294967296.0));
  drawMask(options_.elements, options_.op, draw, threshold, mask.data);
  keep(options_.elements, x.data, mask.data, scaleOf(options_), y.data);
}

void Dropout::inputGradient(Stream&, View<const float> dy, View<const std::uint8_t> mask, View<float> dx) const {
  keep(options_.elements, dy.data, mask.data, scaleOf(options_), dx.data);
}

} // namespace pdcrt
