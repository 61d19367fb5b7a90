// See AveragePool2d.h, and Pooling.h for what a thread does.
#include "pdcrt/kernels/AveragePool2d.h"

#include "Pooling.h"
#include "Shapes.h"

#include <stdexcept>

namespace pdcrt {
namespace {

struct Sizes : cuda::PoolingSizes {
  bool countPads;
  std::int64_t padBelow, padRight;
};

/// The taps of the window at `position` that count: those inside, or those inside or in the padding.
__device__ std::int64_t counted(const WindowAxis& axis, std::int64_t position, bool countPads, std::int64_t padAfter) {
  if (!countPads) return axis.last(position) - axis.first(position);
  const std::int64_t room = axis.size + padAfter - axis.start(position);
  return room < axis.kernel ? room : axis.kernel;
}
__device__ double factorOf(const Sizes& s, std::int64_t row, std::int64_t column) {
  return 1.0 / static_cast<double>(counted(s.rows, row, s.countPads, s.padBelow) *
                                   counted(s.columns, column, s.countPads, s.padRight));
}

__global__ void pool(Sizes s, const float* x, float* y) {
  for (std::int64_t i = thread(); i < s.planes * s.outputRows * s.outputColumns; i += threads()) {
    const auto [of, row, column] = s.ofOutput(i);
    const float* const plane = x + of * s.rows.size * s.columns.size;
    const std::int64_t top = s.rows.start(row), left = s.columns.start(column);
    double sum = 0;
    for (std::int64_t r = s.rows.first(row); r < s.rows.last(row); ++r)
      for (std::int64_t c = s.columns.first(column); c < s.columns.last(column); ++c)
        sum += plane[(top + r) * s.columns.size + left + c];
    y[i] = static_cast<float>(sum * factorOf(s, row, column));
  }
}

__global__ void unpool(Sizes s, const float* dy, float* dx) {
  for (std::int64_t i = thread(); i < s.planes * s.rows.size * s.columns.size; i += threads()) {
    const auto [plane, row, column] = s.ofInput(i);
    const auto rows = s.rowsFrom(row), columns = s.columnsFrom(column);
    float sum = 0;
    for (std::int64_t r = rows.first; r <= rows.last; ++r)
      for (std::int64_t c = columns.first; c <= columns.last; ++c)
        sum += static_cast<float>(dy[(plane * s.outputRows + r) * s.outputColumns + c] * factorOf(s, r, c));
    dx[i] = sum;
  }
}

Sizes sizesOf(const AveragePool2d::Options& o) {
  return {{o,
           {o.input.dims[2], o.kernel.height, o.strides.height, o.pads.top, 1},
           {o.input.dims[3], o.kernel.width, o.strides.width, o.pads.left, 1}},
          o.countIncludePad,
          o.pads.bottom,
          o.pads.right};
}

} // namespace

AveragePool2d::AveragePool2d(Setup&, const Options& o) : options_(o) {
  const Sizes s = sizesOf(o);
  checkPooling(o.input, o.output, {s.rows, s.columns}, o.lanes);
  if (o.lanes != 1)
    throw std::runtime_error("pooling of " + toString(o.input) + ": blocks of channels are for the CPU");
}

void AveragePool2d::forward(Stream& q, View<const float> x, View<float> y) const {
  launchLoop(q, "average pooling", pool, options_.output.elements(), sizesOf(options_), x.data, y.data);
}

void AveragePool2d::inputGradient(Stream& q, View<const float> dy, View<float> dx) const {
  launchLoop(q, "average pooling, gradient", unpool, options_.input.elements(), sizesOf(options_), dy.data, dx.data);
}

} // namespace pdcrt
