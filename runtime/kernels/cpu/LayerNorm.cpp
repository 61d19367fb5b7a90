// See LayerNorm.h. A row stays in the cache, so each of its sums is a loop of its own over it. The variance is the mean
// square of x - mean, which does not cancel.
#include "pdcrt/kernels/LayerNorm.h"

#include "device/cpu/Parts.h"
#include "device/cpu/Sums.h"

#include <algorithm>
#include <cmath>

namespace pdcrt {
namespace {

PDCRT_VECTORIZED double mean(std::int64_t size, const float* x) {
  return sumOf(size, [x](std::int64_t i) { return x[i]; }) / static_cast<double>(size);
}

PDCRT_VECTORIZED double meanSquare(std::int64_t size, const float* x, double mean) {
  return sumOf(size, [x, mean](std::int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / static_cast<double>(size);
}

PDCRT_VECTORIZED void normalise(std::int64_t size, const float* x, float mean, float inverse, const float* scale,
                                const float* bias, float* y) {
  for (std::int64_t i = 0; i < size; ++i) y[i] = (x[i] - mean) * inverse;
  if (scale)
    for (std::int64_t i = 0; i < size; ++i) y[i] *= scale[i];
  if (bias)
    for (std::int64_t i = 0; i < size; ++i) y[i] += bias[i];
}

/// dx = (g - shift - (x - mean) · slope) · inverse + added with g = dy · scale, where `shift`, the mean of g, is 0 when
/// the mean of x was not taken off.
template <class Gradient>
PDCRT_INLINE void differentiate(std::int64_t size, const Gradient& g, const float* x, bool centred, float mean,
                                float inverse, const float* added, float* dx) {
  const double count = static_cast<double>(size);
  const double sum = centred ? sumOf(size, g) : 0;
  const double products = sumOf(size, [&g, x, mean](std::int64_t i) { return double(g(i)) * (x[i] - mean); });
  const float shift = static_cast<float>(sum / count);
  const float slope = static_cast<float>(products / count * inverse * inverse);
  if (added)
    for (std::int64_t i = 0; i < size; ++i) dx[i] = (g(i) - shift - (x[i] - mean) * slope) * inverse + added[i];
  else
    for (std::int64_t i = 0; i < size; ++i) dx[i] = (g(i) - shift - (x[i] - mean) * slope) * inverse;
}
PDCRT_VECTORIZED void differentiate(std::int64_t size, const float* dy, const float* x, const float* scale,
                                    bool centred, float mean, float inverse, const float* added, float* dx) {
  if (scale)
    differentiate(
        size, [dy, scale](std::int64_t i) { return dy[i] * scale[i]; }, x, centred, mean, inverse, added, dx);
  else
    differentiate(
        size, [dy](std::int64_t i) { return dy[i]; }, x, centred, mean, inverse, added, dx);
}
/// What is not there has no rows.
const float* rowOf(View<const float> view, std::int64_t begin) {
  return view ? view.data + begin : nullptr;
}

/// Of x, or of its sum with `added`, which `sums` then has.
const float* rowToNormalise(std::int64_t size, std::int64_t begin, View<const float> x, View<const float> added,
                            View<float> sums) {
  for (std::int64_t i = begin; sums && i < begin + size; ++i) sums[i] = added ? x[i] + added[i] : x[i];
  return (sums ? View<const float>(sums) : x).data + begin;
}

/// On CPUs nothing is rounded.
void copyRow(std::int64_t size, std::int64_t begin, View<const float> from, View<float> to) {
  if (to) std::copy_n(from.data + begin, size, to.data + begin);
}

/// Adds a row's part to the sums over rows.
PDCRT_VECTORIZED void accumulate(std::int64_t size, const float* dy, const float* x, float mean, float inverse,
                                 double* scale, double* bias) {
  for (std::int64_t i = 0; i < size; ++i) scale[i] += double(dy[i]) * ((x[i] - mean) * inverse);
  for (std::int64_t i = 0; i < size; ++i) bias[i] += dy[i];
}

/// Calls f(row) for all rows, which threads share.
template <class F>
void forEachRow(const LayerNorm::Options& o, const F& f) {
  parts::runRanges(parts::countOf(o.rows, o.rows * o.size), o.rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) f(r);
  });
}

} // namespace

LayerNorm::LayerNorm(Setup& setup, const Options& o) : options_(o) {
  setup.needWorkspace(2 * static_cast<std::size_t>(o.size) * sizeof(double)); // the sums of weightGradient
}

void LayerNorm::forward(Stream&, AnyConstView x, View<const float> scale, View<const float> bias,
                        View<const float> added, AnyView y, View<float> means, View<float> inverses, View<float> sums,
                        AnyView low) const {
  const std::int64_t size = options_.size;
  forEachRow(options_, [&](std::int64_t r) {
    const float* const row = rowToNormalise(size, r * size, x.as<float>(), added, sums);
    const double average = mean(size, row), inverse = 1 / std::sqrt(meanSquare(size, row, average) + options_.epsilon);
    if (means) means[r] = static_cast<float>(average);
    if (inverses) inverses[r] = static_cast<float>(inverse);
    normalise(size, row, static_cast<float>(average), static_cast<float>(inverse), scale.data, bias.data,
              y.as<float>().data + r * size);
    copyRow(size, r * size, y.as<float>(), low.as<float>());
  });
}

void LayerNorm::inputGradient(Stream&, AnyConstView dy, View<const float> x, View<const float> scale,
                              View<const float> means, View<const float> inverses, View<const float> added,
                              View<float> dx, AnyView low) const {
  const std::int64_t size = options_.size;
  forEachRow(options_, [&](std::int64_t r) {
    differentiate(size, dy.as<float>().data + r * size, x.data + r * size, scale.data, true, means[r], inverses[r],
                  rowOf(added, r * size), dx.data + r * size);
    copyRow(size, r * size, dx, low.as<float>());
  });
}

void LayerNorm::weightGradient(Stream& q, AnyConstView dy, View<const float> x, View<const float> means,
                               View<const float> inverses, View<float> dscale, View<float> dbias) const {
  const std::int64_t size = options_.size;
  double* const scale = reinterpret_cast<double*>(q.workspace());
  double* const bias = scale + size;
  parts::runLines(size, options_.rows * size, [&](std::int64_t begin, std::int64_t end) {
    std::fill(scale + begin, scale + end, 0.0);
    std::fill(bias + begin, bias + end, 0.0);
    for (std::int64_t r = 0; r < options_.rows; ++r) {
      const std::int64_t at = r * size + begin;
      accumulate(end - begin, dy.as<float>().data + at, x.data + at, means ? means[r] : 0, inverses[r], scale + begin,
                 bias + begin);
    }
    for (std::int64_t i = begin; i < end; ++i) dscale[i] = static_cast<float>(scale[i]);
    for (std::int64_t i = begin; dbias && i < end; ++i) dbias[i] = static_cast<float>(bias[i]);
  });
}

void LayerNorm::rmsForward(Stream&, AnyConstView x, View<const float> scale, View<const float> added, AnyView y,
                           View<float> inverses, View<float> sums, AnyView low) const {
  const std::int64_t size = options_.size;
  forEachRow(options_, [&](std::int64_t r) {
    const float* const row = rowToNormalise(size, r * size, x.as<float>(), added, sums);
    const double inverse = 1 / std::sqrt(meanSquare(size, row, 0) + options_.epsilon);
    if (inverses) inverses[r] = static_cast<float>(inverse);
    normalise(size, row, 0, static_cast<float>(inverse), scale.data, nullptr, y.as<float>().data + r * size);
    copyRow(size, r * size, y.as<float>(), low.as<float>());
  });
}

void LayerNorm::rmsInputGradient(Stream&, AnyConstView dy, View<const float> x, View<const float> scale,
                                 View<const float> inverses, View<const float> added, View<float> dx,
                                 AnyView low) const {
  const std::int64_t size = options_.size;
  forEachRow(options_, [&](std::int64_t r) {
    differentiate(size, dy.as<float>().data + r * size, x.data + r * size, scale.data, false, 0, inverses[r],
                  rowOf(added, r * size), dx.data + r * size);
    copyRow(size, r * size, dx, low.as<float>());
  });
}

void LayerNorm::rmsWeightGradient(Stream& q, AnyConstView dy, View<const float> x, View<const float> inverses,
                                  View<float> dscale) const {
  weightGradient(q, dy, x, {}, inverses, dscale, {});
}

} // namespace pdcrt
