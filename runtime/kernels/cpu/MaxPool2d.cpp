// See MaxPool2d.h.
#include "pdcrt/kernels/MaxPool2d.h"

#include "common/Window.h"
#include "cpu/tiles/ChannelBlocks.h"
#include "device/cpu/Parts.h"
#include "device/cpu/Sums.h"
#include "pdcrt/Math.h"

#include <algorithm>
#include <limits>

namespace pdcrt {
namespace {

WindowAxis rowsOf(const MaxPool2d::Options& o) {
  return {o.input.dims[2], o.kernel.height, o.strides.height, o.pads.top, o.dilations.height};
}
WindowAxis columnsOf(const MaxPool2d::Options& o) {
  return {o.input.dims[3], o.kernel.width, o.strides.width, o.pads.left, o.dilations.width};
}

/// Calls tap(input column of output 0, first output, last output) for each column of the window: outputs whose tap lies
/// in the input.
template <class Tap>
PDCRT_INLINE void forEachColumn(const WindowAxis& columns, std::int64_t width, Tap tap) {
  for (std::int64_t s = 0; s < columns.kernel; ++s) {
    const std::int64_t begin = s * columns.dilation - columns.pad; // at output 0
    const std::int64_t first = begin >= 0 ? 0 : (-begin + columns.stride - 1) / columns.stride;
    const std::int64_t room = columns.size - begin;
    tap(begin, first, room <= 0 ? 0 : std::min(width, (room + columns.stride - 1) / columns.stride));
  }
}

/// What a maximum is before the window is looked at.
constexpr float beginOf(bool relu) {
  return relu ? 0.0f : -std::numeric_limits<float>::infinity();
}

/// Output row `i` of a plane and where its maxima are. Tap by tap over the whole row, which becomes vector code.
PDCRT_VECTORIZED void poolRow(bool relu, const float* plane, const WindowAxis& rows, const WindowAxis& columns,
                              std::int64_t i, std::int64_t width, float* __restrict y, std::int32_t* __restrict index) {
  // Something smaller than, or equal to, the first value of each window.
  const std::int64_t top = rows.start(i) + rows.first(i) * rows.dilation;
  for (std::int64_t j = 0; j < width; ++j) {
    y[j] = beginOf(relu);
    const std::int64_t first = top * columns.size + columns.start(j) + columns.first(j) * columns.dilation;
    index[j] = relu ? -1 : static_cast<std::int32_t>(first);
  }
  for (std::int64_t r = rows.first(i); r < rows.last(i); ++r)
    forEachColumn(columns, width, [&](std::int64_t begin, std::int64_t first, std::int64_t last) {
      const std::int64_t at = (rows.start(i) + r * rows.dilation) * columns.size + begin;
      for (std::int64_t j = first; j < last; ++j) {
        const float value = plane[at + j * columns.stride], best = y[j];
        const bool wins = value > best || (value != value && best == best);
        y[j] = wins ? value : best;
        index[j] = wins ? static_cast<std::int32_t>(at + j * columns.stride) : index[j];
      }
    });
}

PDCRT_VECTORIZED void poolRow(bool relu, const float* plane, const WindowAxis& rows, const WindowAxis& columns,
                              std::int64_t i, std::int64_t width, float* __restrict y) {
  std::fill_n(y, width, beginOf(relu));
  for (std::int64_t r = rows.first(i); r < rows.last(i); ++r)
    forEachColumn(columns, width, [&](std::int64_t begin, std::int64_t first, std::int64_t last) {
      const float* const row = plane + (rows.start(i) + r * rows.dilation) * columns.size + begin;
      for (std::int64_t j = first; j < last; ++j) y[j] = maximum(y[j], row[j * columns.stride]);
    });
}

/// Fetches what the window below has and this one, whose last value is at (row, column), has not: processors do not see
/// in time that a plane is read a window at a time.
PDCRT_INLINE void fetchBelow(const float* plane, const WindowAxis& rows, const WindowAxis& columns, std::int64_t row,
                             std::int64_t column) {
  for (std::int64_t r = 0; r < std::min(rows.stride, rows.kernel); ++r)
    for (std::int64_t s = 0; s < std::min(columns.stride, columns.kernel); ++s)
      __builtin_prefetch(plane + ((row + rows.stride - r) * columns.size + column - s) * blocks::lanes);
}

/// poolRow for the 16 channels of a block, output by output.
PDCRT_VECTORIZED void poolBlocks(bool relu, const float* plane, const WindowAxis& rows, const WindowAxis& columns,
                                 std::int64_t i, std::int64_t width, float* y, std::int32_t* index) {
  using blocks::lanes, blocks::Floats, blocks::Ints;
  constexpr int floats = sizeof(Floats) / sizeof(float), pieces = lanes / floats;
  const std::int64_t top = rows.start(i), firstRow = rows.first(i), lastRow = rows.last(i);
  for (std::int64_t j = 0; j < width; ++j) {
    const std::int64_t left = columns.start(j), firstColumn = columns.first(j), lastColumn = columns.last(j);
    const auto first = relu ? -1
                            : static_cast<std::int32_t>((top + firstRow * rows.dilation) * columns.size + left +
                                                        firstColumn * columns.dilation);
    fetchBelow(plane, rows, columns, top + (rows.kernel - 1) * rows.dilation,
               left + (columns.kernel - 1) * columns.dilation);
    Floats best[pieces] = {};
    Ints place[pieces] = {};
    PDCRT_EACH(k, pieces) {
      best[k] += beginOf(relu);
      place[k] += first;
    }
    for (std::int64_t r = firstRow; r < lastRow; ++r)
      for (std::int64_t s = firstColumn; s < lastColumn; ++s) {
        const std::int64_t at = (top + r * rows.dilation) * columns.size + left + s * columns.dilation;
        const Ints here = Ints{} + static_cast<std::int32_t>(at);
        PDCRT_EACH(k, pieces) {
          const Floats value = *reinterpret_cast<const Floats*>(plane + at * lanes + k * floats), old = best[k];
          const Ints wins = ~(value <= old) & (old == old);
          best[k] = wins ? value : old;
          place[k] = wins ? here : place[k];
        }
      }
    PDCRT_EACH(k, pieces) {
      const std::int64_t here = j * lanes + k * floats;
      *reinterpret_cast<Floats*>(y + here) = best[k];
      if (index) *reinterpret_cast<Ints*>(index + here) = place[k];
    }
  }
}

/// Whether windows lie side by side inside the input, so that each of its values is in one of them at most.
bool areSideBySide(const MaxPool2d::Options& o) {
  return o.strides == o.kernel && o.pads == Pads2{} && o.dilations == Dims2{1, 1} &&
         o.output.dims[2] * o.kernel.height <= o.input.dims[2] && o.output.dims[3] * o.kernel.width <= o.input.dims[3];
}

/// dx of a block of 16 channels for windows side by side, each value of it written once.
PDCRT_VECTORIZED void unpoolBlocks(const WindowAxis& rows, const WindowAxis& columns, std::int64_t outputRows,
                                   std::int64_t width, const float* dy, const std::int32_t* index, float* dx) {
  using blocks::lanes, blocks::Floats, blocks::Ints;
  constexpr int floats = sizeof(Floats) / sizeof(float), pieces = lanes / floats;
  const std::int64_t rest = (columns.size - width * columns.kernel) * lanes;
  for (std::int64_t i = 0; i < outputRows; ++i) {
    for (std::int64_t j = 0; j < width; ++j, dy += lanes, index += lanes)
      for (std::int64_t r = 0; r < rows.kernel; ++r)
        for (std::int64_t s = 0; s < columns.kernel; ++s) {
          const std::int64_t at = (i * rows.kernel + r) * columns.size + j * columns.kernel + s;
          const Ints here = Ints{} + static_cast<std::int32_t>(at);
          PDCRT_EACH(k, pieces) {
            const Floats gradient = *reinterpret_cast<const Floats*>(dy + k * floats);
            const Ints place = *reinterpret_cast<const Ints*>(index + k * floats);
            *reinterpret_cast<Floats*>(dx + at * lanes + k * floats) = place == here ? gradient : Floats{};
          }
        }
    for (std::int64_t r = 0; r < rows.kernel; ++r)
      std::fill_n(dx + ((i * rows.kernel + r + 1) * columns.size) * lanes - rest, rest, 0.0f);
  }
  const std::int64_t done = outputRows * rows.kernel;
  std::fill_n(dx + done * columns.size * lanes, (rows.size - done) * columns.size * lanes, 0.0f);
}

/// Calls f(plane) for each channel, or block of channels, of each sample; threads share them.
template <class F>
void forEachPlane(const MaxPool2d::Options& o, const F& f) {
  const std::int64_t planes = o.input.dims[0] * o.input.dims[1] / o.lanes;
  parts::runRanges(parts::countOf(planes, o.input.elements()), planes, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) f(p);
  });
}

} // namespace

MaxPool2d::MaxPool2d(Setup&, const Options& o) : options_(o) {
  checkPooling(o.input, o.output, {rowsOf(o), columnsOf(o)}, o.lanes);
}

void MaxPool2d::forward(Stream&, View<const float> x, View<float> y, View<std::int32_t> index) const {
  const WindowAxis rows = rowsOf(options_), columns = columnsOf(options_);
  const std::int64_t lanes = options_.lanes, outputRows = options_.output.dims[2], width = options_.output.dims[3];
  forEachPlane(options_, [&](std::int64_t p) {
    for (std::int64_t i = 0; i < outputRows; ++i) {
      const float* const plane = x.data + p * rows.size * columns.size * lanes;
      const std::int64_t output = (p * outputRows + i) * width * lanes;
      if (lanes > 1)
        poolBlocks(options_.relu, plane, rows, columns, i, width, y.data + output,
                   index ? index.data + output : nullptr);
      else if (index)
        poolRow(options_.relu, plane, rows, columns, i, width, y.data + output, index.data + output);
      else
        poolRow(options_.relu, plane, rows, columns, i, width, y.data + output);
    }
  });
}

void MaxPool2d::inputGradient(Stream&, View<const float> dy, View<const std::int32_t> index, View<float> dx) const {
  const std::int64_t lanes = options_.lanes, inputPlane = options_.input.dims[2] * options_.input.dims[3],
                     outputPlane = options_.output.dims[2] * options_.output.dims[3];
  const bool once = lanes > 1 && areSideBySide(options_);
  forEachPlane(options_, [&](std::int64_t p) {
    float* const plane = dx.data + p * inputPlane * lanes;
    if (once)
      return unpoolBlocks(rowsOf(options_), columnsOf(options_), options_.output.dims[2], options_.output.dims[3],
                          dy.data + p * outputPlane * lanes, index.data + p * outputPlane * lanes, plane);
    std::fill_n(plane, inputPlane * lanes, 0.0f);
    for (std::int64_t i = p * outputPlane; i < (p + 1) * outputPlane; ++i)
      for (std::int64_t lane = 0; lane < lanes; ++lane)
        if (const std::int64_t at = index[i * lanes + lane]; at >= 0) plane[at * lanes + lane] += dy[i * lanes + lane];
  });
}

} // namespace pdcrt
