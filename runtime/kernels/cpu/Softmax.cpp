// See Softmax.h.
#include "pdcrt/kernels/Softmax.h"

#include "device/cpu/Parts.h"
#include "device/cpu/Sums.h"
#include "pdcrt/Math.h"

#include <cmath>

namespace pdcrt {
namespace {

// A NaN in a row is in all of its exponentials' sum, whatever the maximum is.

PDCRT_VECTORIZED void softmaxRow(std::int64_t count, const float* x, float* y) {
  const float max = maxOf(count, x);
  for (std::int64_t i = 0; i < count; ++i) y[i] = pdcrt::exp(x[i] - max);
  const float factor = static_cast<float>(1 / sumOf(count, [y](std::int64_t i) { return y[i]; }));
  for (std::int64_t i = 0; i < count; ++i) y[i] *= factor;
}

PDCRT_VECTORIZED void logSoftmaxRow(std::int64_t count, const float* x, float* y) {
  const float max = maxOf(count, x);
  const double sum = sumOf(count, [x, max](std::int64_t i) { return pdcrt::exp(x[i] - max); });
  const float logSum = static_cast<float>(std::log(sum));
  for (std::int64_t i = 0; i < count; ++i) y[i] = (x[i] - max) - logSum;
}

PDCRT_VECTORIZED void softmaxGradientRow(std::int64_t count, const float* dy, const float* y, float* dx) {
  const float sum = static_cast<float>(sumOf(count, [dy, y](std::int64_t i) { return double(dy[i]) * y[i]; }));
  for (std::int64_t i = 0; i < count; ++i) dx[i] = (dy[i] - sum) * y[i];
}

PDCRT_VECTORIZED void logSoftmaxGradientRow(std::int64_t count, const float* dy, const float* y, float* dx) {
  const float sum = static_cast<float>(sumOf(count, [dy](std::int64_t i) { return dy[i]; }));
  for (std::int64_t i = 0; i < count; ++i) dx[i] = dy[i] - pdcrt::exp(y[i]) * sum;
}

/// Calls f(offset of a row) for all rows, which threads share.
template <class F>
void forEachRow(const Softmax::Options& o, const F& f) {
  parts::runRanges(parts::countOf(o.rows, o.rows * o.classes), o.rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) f(r * o.classes);
  });
}

} // namespace

Softmax::Softmax(Setup&, const Options& o) : options_(o) {}

void Softmax::forward(Stream&, View<const float> x, View<float> y) const {
  const auto row = options_.logarithm ? logSoftmaxRow : softmaxRow;
  forEachRow(options_, [&](std::int64_t at) { row(options_.classes, x.data + at, y.data + at); });
}

void Softmax::inputGradient(Stream&, View<const float> dy, View<const float> y, View<float> dx) const {
  const auto row = options_.logarithm ? logSoftmaxGradientRow : softmaxGradientRow;
  forEachRow(options_, [&](std::int64_t at) { row(options_.classes, dy.data + at, y.data + at, dx.data + at); });
}

} // namespace pdcrt
