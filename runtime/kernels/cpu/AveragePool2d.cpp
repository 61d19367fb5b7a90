// See AveragePool2d.h.
#include "pdcrt/kernels/AveragePool2d.h"

#include "Window.h"

#include <algorithm>

namespace pdcrt {
namespace {

WindowAxis rowsOf(const AveragePool2d::Options& o) {
  return {o.input.dims[2], o.kernel.height, o.strides.height, o.pads.top, 1};
}
WindowAxis columnsOf(const AveragePool2d::Options& o) {
  return {o.input.dims[3], o.kernel.width, o.strides.width, o.pads.left, 1};
}

/// The taps of the window at `position` that count: those inside, or those inside or in the padding.
std::int64_t counted(const WindowAxis& axis, std::int64_t position, bool countPads, std::int64_t padAfter) {
  if (!countPads) return axis.last(position) - axis.first(position);
  return std::min(axis.kernel, axis.size + padAfter - axis.start(position));
}

/// The part of a window that lies inside the input.
struct Window {
  std::int64_t firstRow, lastRow, firstColumn, lastColumn; ///< in the plane
  double factor;                                           ///< 1 / taps that count
};

/// Calls visit(output, window) for every output of a plane.
template <class Visit>
void forEachWindow(const AveragePool2d::Options& o, Visit visit) {
  const WindowAxis rows = rowsOf(o), columns = columnsOf(o);
  for (std::int64_t i = 0; i < o.output.dims[2]; ++i)
    for (std::int64_t j = 0; j < o.output.dims[3]; ++j) {
      const std::int64_t taps =
          counted(rows, i, o.countIncludePad, o.pads.bottom) * counted(columns, j, o.countIncludePad, o.pads.right);
      visit(i * o.output.dims[3] + j,
            Window{rows.start(i) + rows.first(i), rows.start(i) + rows.last(i), columns.start(j) + columns.first(j),
                   columns.start(j) + columns.last(j), 1.0 / static_cast<double>(taps)});
    }
}

} // namespace

AveragePool2d::AveragePool2d(Setup&, const Options& o) : options_(o) {
  checkPooling(o.input, o.output, {rowsOf(o), columnsOf(o)});
}

void AveragePool2d::forward(Stream&, View<const float> x, View<float> y) const {
  const std::int64_t planes = options_.input.dims[0] * options_.input.dims[1], width = options_.input.dims[3];
  const std::int64_t inputPlane = options_.input.dims[2] * width,
                     outputPlane = options_.output.dims[2] * options_.output.dims[3];
  for (std::int64_t p = 0; p < planes; ++p) {
    const float* const plane = x.data + p * inputPlane;
    forEachWindow(options_, [&](std::int64_t output, const Window& w) {
      double sum = 0;
      for (std::int64_t r = w.firstRow; r < w.lastRow; ++r)
        for (std::int64_t c = w.firstColumn; c < w.lastColumn; ++c) sum += plane[r * width + c];
      y[p * outputPlane + output] = static_cast<float>(sum * w.factor);
    });
  }
}

void AveragePool2d::inputGradient(Stream&, View<const float> dy, View<float> dx) const {
  std::fill_n(dx.data, options_.input.elements(), 0.0f);
  const std::int64_t planes = options_.input.dims[0] * options_.input.dims[1], width = options_.input.dims[3];
  const std::int64_t inputPlane = options_.input.dims[2] * width,
                     outputPlane = options_.output.dims[2] * options_.output.dims[3];
  for (std::int64_t p = 0; p < planes; ++p) {
    float* const plane = dx.data + p * inputPlane;
    forEachWindow(options_, [&](std::int64_t output, const Window& w) {
      const float share = static_cast<float>(dy[p * outputPlane + output] * w.factor);
      for (std::int64_t r = w.firstRow; r < w.lastRow; ++r)
        for (std::int64_t c = w.firstColumn; c < w.lastColumn; ++c) plane[r * width + c] += share;
    });
  }
}

} // namespace pdcrt
