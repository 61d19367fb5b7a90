// See MaxPool2d.h, and Pooling.h for what a thread does.
#include "pdcrt/kernels/MaxPool2d.h"

#include "Pooling.h"
#include "Shapes.h"

#include <limits>
#include <stdexcept>

namespace pdcrt {
namespace {

using Sizes = cuda::PoolingSizes;

__global__ void pool(Sizes s, const float* x, float* y, std::int32_t* index) {
  for (std::int64_t i = thread(); i < s.planes * s.outputRows * s.outputColumns; i += threads()) {
    const auto [of, row, column] = s.ofOutput(i);
    const float* const plane = x + of * s.rows.size * s.columns.size;
    const std::int64_t top = s.rows.start(row), left = s.columns.start(column);
    const std::int64_t firstColumn = s.columns.first(column), lastColumn = s.columns.last(column);
    // Something smaller than, or equal to, the first value of the window.
    float best = -std::numeric_limits<float>::infinity();
    std::int64_t at =
        (top + s.rows.first(row) * s.rows.dilation) * s.columns.size + left + firstColumn * s.columns.dilation;
    for (std::int64_t r = s.rows.first(row); r < s.rows.last(row); ++r)
      for (std::int64_t c = firstColumn; c < lastColumn; ++c) {
        const std::int64_t here = (top + r * s.rows.dilation) * s.columns.size + left + c * s.columns.dilation;
        const float value = plane[here];
        if (value > best || (value != value && best == best)) {
          best = value;
          at = here;
        }
      }
    y[i] = best;
    if (index) index[i] = static_cast<std::int32_t>(at);
  }
}

__global__ void unpool(Sizes s, const float* dy, const std::int32_t* index, float* dx) {
  for (std::int64_t i = thread(); i < s.planes * s.rows.size * s.columns.size; i += threads()) {
    const auto [plane, row, column] = s.ofInput(i);
    const std::int64_t here = row * s.columns.size + column;
    const auto rows = s.rowsFrom(row), columns = s.columnsFrom(column);
    float sum = 0;
    for (std::int64_t r = rows.first; r <= rows.last; ++r)
      for (std::int64_t c = columns.first; c <= columns.last; ++c) {
        const std::int64_t output = (plane * s.outputRows + r) * s.outputColumns + c;
        if (index[output] == here) sum += dy[output];
      }
    dx[i] = sum;
  }
}

Sizes sizesOf(const MaxPool2d::Options& o) {
  return {o,
          {o.input.dims[2], o.kernel.height, o.strides.height, o.pads.top, o.dilations.height},
          {o.input.dims[3], o.kernel.width, o.strides.width, o.pads.left, o.dilations.width}};
}

} // namespace

MaxPool2d::MaxPool2d(Setup&, const Options& o) : options_(o) {
  const Sizes s = sizesOf(o);
  checkPooling(o.input, o.output, {s.rows, s.columns}, o.lanes);
  if (o.lanes != 1)
    throw std::runtime_error("pooling of " + toString(o.input) + ": blocks of channels are for the CPU");
}

void MaxPool2d::forward(Stream& q, View<const float> x, View<float> y, View<std::int32_t> index) const {
  launchLoop(q, "max pooling", pool, options_.output.elements(), sizesOf(options_), x.data, y.data, index.data);
}

void MaxPool2d::inputGradient(Stream& q, View<const float> dy, View<const std::int32_t> index, View<float> dx) const {
  launchLoop(q, "max pooling, gradient", unpool, options_.input.elements(), sizesOf(options_), dy.data, index.data,
             dx.data);
}

} // namespace pdcrt
