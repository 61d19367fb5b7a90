// See MaxPool2d.h.
#include "pdcrt/kernels/MaxPool2d.h"

#include "Window.h"

#include <algorithm>

namespace pdcrt {
namespace {

WindowAxis rowsOf(const MaxPool2d::Options& o) {
  return {o.input.dims[2], o.kernel.height, o.strides.height, o.pads.top, o.dilations.height};
}
WindowAxis columnsOf(const MaxPool2d::Options& o) {
  return {o.input.dims[3], o.kernel.width, o.strides.width, o.pads.left, o.dilations.width};
}

} // namespace

MaxPool2d::MaxPool2d(Setup&, const Options& o) : options_(o) {
  checkPooling(o.input, o.output, {rowsOf(o), columnsOf(o)});
}

void MaxPool2d::forward(Stream&, View<const float> x, View<float> y, View<std::int32_t> index) const {
  const WindowAxis rows = rowsOf(options_), columns = columnsOf(options_);
  const std::int64_t planes = options_.input.dims[0] * options_.input.dims[1];
  std::int64_t output = 0;
  for (std::int64_t p = 0; p < planes; ++p) {
    const float* const plane = x.data + p * rows.size * columns.size;
    for (std::int64_t i = 0; i < options_.output.dims[2]; ++i) {
      const std::int64_t firstRow = rows.first(i), lastRow = rows.last(i);
      for (std::int64_t j = 0; j < options_.output.dims[3]; ++j, ++output) {
        const std::int64_t firstColumn = columns.first(j), lastColumn = columns.last(j);
        std::int64_t best = -1;
        for (std::int64_t r = firstRow; r < lastRow; ++r)
          for (std::int64_t c = firstColumn; c < lastColumn; ++c) {
            const std::int64_t at =
                (rows.start(i) + r * rows.dilation) * columns.size + columns.start(j) + c * columns.dilation;
            const float value = plane[at];
            if (best < 0 || value > plane[best] || (value != value && plane[best] == plane[best]))
              best = at;
          }
        y[output] = plane[best];
        if (index)
          index[output] = static_cast<std::int32_t>(best);
      }
    }
  }
}

void MaxPool2d::inputGradient(Stream&, View<const float> dy, View<const std::int32_t> index, View<float> dx) const {
  std::fill_n(dx.data, options_.input.elements(), 0.0f);
  const std::int64_t planes = options_.input.dims[0] * options_.input.dims[1];
  const std::int64_t inputPlane = options_.input.dims[2] * options_.input.dims[3],
                     outputPlane = options_.output.dims[2] * options_.output.dims[3];
  for (std::int64_t p = 0; p < planes; ++p)
    for (std::int64_t i = p * outputPlane; i < (p + 1) * outputPlane; ++i)
      dx[p * inputPlane + index[i]] += dy[i];
}

} // namespace pdcrt
