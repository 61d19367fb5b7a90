// See Dropout.h. The same words as on the CPU: a thread draws one Philox block, which is for four elements.
#include "pdcrt/kernels/Dropout.h"

#include "device/cuda/Cuda.h"
#include "device/cuda/Recorded.h"
#include "pdcrt/Random.h"

#include <cmath>

namespace pdcrt {
namespace {

struct Sizes {
  std::int64_t count;
  std::uint64_t threshold;
  std::uint32_t op;
  float scale;
};

/// `recorded`: where the number of the minibatch is, in a recording that is launched for several; null: in `draw`.
__global__ void draw(Sizes s, Draw draw, const std::uint64_t* recorded, const float* x, float* y, std::uint8_t* mask) {
  const std::uint64_t minibatch = recorded ? *recorded : draw.minibatch;
  for (std::int64_t block = thread(); block * 4 < s.count; block += threads()) {
    const PhiloxBlock words = philox(philoxCounter(static_cast<std::uint32_t>(block), s.op, minibatch), draw.seed);
    for (std::int64_t i = 0; i < 4 && block * 4 + i < s.count; ++i) {
      const std::int64_t at = block * 4 + i;
      const bool kept = words[static_cast<std::size_t>(i)] >= s.threshold;
      y[at] = kept ? x[at] * s.scale : 0.0f;
      mask[at] = kept;
    }
  }
}

__global__ void keep(Sizes s, const float* x, const std::uint8_t* mask, float* y) {
  for (std::int64_t i = thread(); i < s.count; i += threads()) y[i] = mask[i] ? x[i] * s.scale : 0.0f;
}

Sizes sizesOf(const Dropout::Options& o) {
  return {o.elements, static_cast<std::uint64_t>(std::llround(o.ratio * 4294967296.0)), o.op,
          static_cast<float>(1 / (1 - o.ratio))};
}

} // namespace

Dropout::Dropout(Setup&, const Options& o) : options_(o) {
  if (!(o.ratio >= 0 && o.ratio < 1))
    throw std::runtime_error("dropout: ratio " + std::to_string(o.ratio) + " is not in [0, 1)");
  if (o.elements / 4 > std::int64_t{0xFFFFFFFF})
    throw std::runtime_error("dropout of " + std::to_string(o.elements) + " elements: at most 2^34");
}

void Dropout::forward(Stream& q, Draw draws, View<const float> x, View<float> y, View<std::uint8_t> mask) const {
  launchLoop(q, "dropout", draw, (options_.elements + 3) / 4, sizesOf(options_), draws, cuda::recordedMinibatch(),
             x.data, y.data, mask.data);
}

void Dropout::inputGradient(Stream& q, View<const float> dy, View<const std::uint8_t> mask, View<float> dx) const {
  launchLoop(q, "dropout, gradient", keep, options_.elements, sizesOf(options_), dy.data, mask.data, dx.data);
}

} // namespace pdcrt
