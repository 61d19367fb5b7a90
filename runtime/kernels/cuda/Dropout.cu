// See Dropout.h. The same words as on the CPU.
#include "pdcrt/kernels/Dropout.h"

#include "common/DropoutOptions.h"
#include "cuda/support/DropoutMask.h"
#include "device/cuda/Recorded.h"

namespace pdcrt {
namespace {

template <bool ofMember>
__global__ void draw(cuda::Mask m, float scale, Draw draw, const std::uint64_t* recorded, const float* x, float* y,
                     std::uint8_t* mask) {
  cuda::forEachDrawn<ofMember>(m, draw, recorded, [&](std::int64_t at, bool kept) {
    y[at] = kept ? x[at] * scale : 0.0f;
    mask[at] = kept;
  });
}

__global__ void keep(std::int64_t count, float scale, const float* x, const std::uint8_t* mask, float* y) {
  for (std::int64_t i = thread(); i < count; i += threads()) y[i] = mask[i] ? x[i] * scale : 0.0f;
}

float scaleOf(const Dropout::Options& o) {
  return static_cast<float>(1 / (1 - o.ratio));
}

} // namespace

Dropout::Dropout(Setup&, const Options& o) : options_(o) {
  checkOptions(o);
}

void Dropout::forward(Stream& q, Draw draws, View<const float> x, View<float> y, View<std::uint8_t> mask) const {
  const Options& o = options_;
  const cuda::Mask drawn(o.elements, o.op, o.ratio, {o.run, o.members, q.member()});
  launchLoop(q, "dropout", o.run > 0 ? draw<true> : draw<false>, cuda::drawersOf(drawn), drawn, scaleOf(o), draws,
             cuda::recordedMinibatch(), x.data, y.data, mask.data);
}

void Dropout::inputGradient(Stream& q, View<const float> dy, View<const std::uint8_t> mask, View<float> dx) const {
  launchLoop(q, "dropout, gradient", keep, options_.elements, options_.elements, scaleOf(options_), dy.data, mask.data,
             dx.data);
}

} // namespace pdcrt
