// See AveragePool2d.h.
#include "pdcrt/kernels/AveragePool2d.h"

#include "common/Window.h"
#include "cpu/tiles/ChannelBlocks.h"
#include "device/cpu/Parts.h"

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

/// Planes of x and y, each of as many channels as lie together.
struct Planes {
  std::int64_t lanes, count, width, input, output; ///< width of x in positions, sizes in floats

  explicit Planes(const AveragePool2d::Options& o)
      : lanes(o.lanes), count(o.input.dims[0] * o.input.dims[1] / lanes), width(o.input.dims[3]),
        input(o.input.dims[2] * width * lanes), output(o.output.dims[2] * o.output.dims[3] * lanes) {}
};

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

/// Calls f(plane) for all planes, which threads share.
template <class F>
void forEachPlane(const Planes& planes, const F& f) {
  parts::runRanges(parts::countOf(planes.count, planes.count * planes.input), planes.count,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t p = begin; p < end; ++p) f(p);
                   });
}

} // namespace

AveragePool2d::AveragePool2d(Setup&, const Options& o) : options_(o) {
  checkPooling(o.input, o.output, {rowsOf(o), columnsOf(o)}, o.lanes);
}

void AveragePool2d::forward(Stream&, View<const float> x, View<float> y) const {
  const Planes planes(options_);
  forEachPlane(planes, [&](std::int64_t p) {
    const float* const plane = x.data + p * planes.input;
    forEachWindow(options_, [&](std::int64_t output, const Window& w) {
      double sums[blocks::lanes] = {};
      for (std::int64_t r = w.firstRow; r < w.lastRow; ++r)
        for (std::int64_t c = w.firstColumn; c < w.lastColumn; ++c)
          for (std::int64_t lane = 0; lane < planes.lanes; ++lane)
            sums[lane] += plane[(r * planes.width + c) * planes.lanes + lane];
      for (std::int64_t lane = 0; lane < planes.lanes; ++lane)
        y[p * planes.output + output * planes.lanes + lane] = static_cast<float>(sums[lane] * w.factor);
    });
  });
}

void AveragePool2d::inputGradient(Stream&, View<const float> dy, View<float> dx) const {
  const Planes planes(options_);
  forEachPlane(planes, [&](std::int64_t p) {
    float* const plane = dx.data + p * planes.input;
    std::fill_n(plane, planes.input, 0.0f);
    forEachWindow(options_, [&](std::int64_t output, const Window& w) {
      float shares[blocks::lanes];
      for (std::int64_t lane = 0; lane < planes.lanes; ++lane)
        shares[lane] = static_cast<float>(dy[p * planes.output + output * planes.lanes + lane] * w.factor);
      for (std::int64_t r = w.firstRow; r < w.lastRow; ++r)
        for (std::int64_t c = w.firstColumn; c < w.lastColumn; ++c)
          for (std::int64_t lane = 0; lane < planes.lanes; ++lane)
            plane[(r * planes.width + c) * planes.lanes + lane] += shares[lane];
    });
  });
}

} // namespace pdcrt
