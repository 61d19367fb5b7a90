// See WinogradConvolution.h. Filters, and inputs of some squares of 4x4 outputs at a time, are taken to the 36 points;
// there a convolution is a product of matrices for each, in tiles (ConvolutionTiles.h); its results are taken back.
#include "WinogradConvolution.h"

#if defined(__x86_64__)
#include "ConvolutionTiles.h"
#include "Parts.h"
#include "WinogradTransforms.h"

#include <algorithm>
#include <utility>

namespace pdcrt {

using namespace convolution;

namespace {

using Sizes = WinogradConvolution::Sizes;
using winograd::Square;

constexpr std::int64_t points = winograd::points * winograd::points, taps = winograd::taps * winograd::taps;
constexpr std::int64_t reach = winograd::points; ///< rows and columns of inputs that a square of outputs takes
constexpr std::int64_t blockFloats = block * block;

Sizes sizesOf(const Conv2d::Options& o) {
  const Shape y = Conv2d::outputShape(o);
  return {.samples = o.input.dims[0],
          .inputs = o.input.dims[1] / block,
          .outputs = o.filter.dims[0] / block,
          .height = o.input.dims[2],
          .width = o.input.dims[3],
          .rows = y.dims[2],
          .columns = y.dims[3],
          .top = o.pads.top,
          .left = o.pads.left};
}

/// dx is dy, with other pads, convolved with the filter turned around.
Sizes backwardSizes(const Sizes& s) {
  return {.samples = s.samples,
          .inputs = s.outputs,
          .outputs = s.inputs,
          .height = s.rows,
          .width = s.columns,
          .rows = s.height,
          .columns = s.width,
          .top = 2 - s.top,
          .left = 2 - s.left};
}

/// Values at the points: [36][blocks of channels][count][16]. Planes are no powers of two apart, so that the 36 values
/// of a square do not meet in one set of a cache.
struct Values {
  float* data;
  std::int64_t blocks, count;

  static std::int64_t planeOf(std::int64_t blocks, std::int64_t count) { return blocks * count * block + block; }
  static std::int64_t floatsOf(std::int64_t blocks, std::int64_t count) { return points * planeOf(blocks, count); }

  std::int64_t plane() const { return planeOf(blocks, count); }
  float* at(std::int64_t point, std::int64_t channels, std::int64_t i) const {
    return data + point * plane() + (channels * count + i) * block;
  }
  /// Of value `i` of some channels.
  Square<float> square(std::int64_t channels, std::int64_t i) const {
    return {at(0, channels, i), winograd::points * plane(), plane()};
  }
};

template <class T>
Square<const T> readOnly(Square<T> s) {
  return {s.data, s.row, s.column};
}

/// A filter at the points: [36][outputs][inputs][16 of inputs][16 of outputs].
Values filterAt(const Sizes& s, float* data) {
  return {data, s.outputs * s.inputs, block};
}

/// Squares of outputs that are computed at a time: their values at the points stay in a cache, and filters, which do
/// not for many channels, are read a few times only.
std::int64_t squaresAtOnce(const Sizes& s) {
  constexpr std::int64_t cacheBytes = 2 << 20;
  const std::int64_t bytes = points * (s.inputs + s.outputs) * block * static_cast<std::int64_t>(sizeof(float)),
                     fit = std::max<std::int64_t>(cacheBytes / bytes, 4 * tileRows) / tileRows * tileRows,
                     groups = (s.squares() + fit - 1) / fit, each = (s.squares() + groups - 1) / groups;
  return (each + tileRows - 1) / tileRows * tileRows;
}

/// Where a square of outputs begins.
struct Place {
  std::int64_t sample, row, column;

  Place(const Sizes& s, std::int64_t square)
      : sample(square / (s.squareRows() * s.squareColumns())), row(square / s.squareColumns() % s.squareRows() * 4),
        column(square % s.squareColumns() * 4) {}
};

/// `size` x `size` values of a plane from (row, column) on: where they are or, where some lie outside, copied to `room`
/// among zeros.
template <std::int64_t size>
Square<const float> patchOf(const float* plane, std::int64_t height, std::int64_t width, std::int64_t row,
                            std::int64_t column, float* room) {
  if (row >= 0 && column >= 0 && row + size <= height && column + size <= width)
    return {plane + (row * width + column) * block, width * block, block};
  std::fill_n(room, size * size * block, 0.0f);
  const std::int64_t first = std::max<std::int64_t>(0, -column), end = std::min(size, width - column);
  for (std::int64_t i = std::max<std::int64_t>(0, -row); i < std::min(size, height - row); ++i)
    std::copy_n(plane + ((row + i) * width + column + first) * block, (end - first) * block,
                room + (i * size + first) * block);
  return {room, size * block, block};
}

/// The inputs of a square of outputs become values at the points.
void transformInputs(const Sizes& s, const float* x, std::int64_t square, const Values& to, std::int64_t i) {
  const Place at(s, square);
  alignas(32) float room[reach * reach * block];
  for (std::int64_t c = 0; c < s.inputs; ++c) {
    const float* const plane = x + (at.sample * s.inputs + c) * s.height * s.width * block;
    const Square<const float> patch =
        patchOf<reach>(plane, s.height, s.width, at.row - s.top, at.column - s.left, room);
    winograd::apply<winograd::points, winograd::points, winograd::ofInputs>(patch, to.square(c, i));
  }
}

/// So do gradients of a square of outputs.
void transformOutputGradients(const Sizes& s, const float* dy, std::int64_t square, const Values& to, std::int64_t i) {
  const Place at(s, square);
  alignas(32) float room[4 * 4 * block];
  for (std::int64_t k = 0; k < s.outputs; ++k) {
    const float* const plane = dy + (at.sample * s.outputs + k) * s.rows * s.columns * block;
    const Square<const float> patch = patchOf<4>(plane, s.rows, s.columns, at.row, at.column, room);
    winograd::apply<winograd::outputs, winograd::points, winograd::ofOutputGradients>(patch, to.square(k, i));
  }
}

/// Values at the points become a square of outputs.
PDCRT_AVX2 void transformOutputs(const Sizes& s, const Values& from, std::int64_t i, const float* bias,
                                 std::int64_t square, float* y) {
  const Place at(s, square);
  const std::int64_t rows = std::min<std::int64_t>(4, s.rows - at.row),
                     columns = std::min<std::int64_t>(4, s.columns - at.column);
  alignas(32) float room[4 * 4 * block];
  for (std::int64_t k = 0; k < s.outputs; ++k) {
    float* const to = y + (((at.sample * s.outputs + k) * s.rows + at.row) * s.columns + at.column) * block;
    const bool whole = rows == 4 && columns == 4 && !bias;
    const Square<float> result =
        whole ? Square<float>{to, s.columns * block, block} : Square<float>{room, 4 * block, block};
    winograd::apply<winograd::points, winograd::outputs, winograd::toOutputs>(readOnly(from.square(k, i)), result);
    if (whole) continue;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < columns * block; ++j)
        to[r * s.columns * block + j] = room[r * 4 * block + j] + (bias ? bias[k * block + j % block] : 0.0f);
  }
}

/// The filter [outputs][inputs][9][16 of inputs][16 of outputs] at the points.
void transformFilter(const float* w, const Values& to, std::int64_t filter) {
  const float* const from = w + filter * taps * blockFloats;
  for (std::int64_t i = 0; i < block; ++i)
    winograd::apply<winograd::taps, winograd::points, winograd::ofFilter>(
        {from + i * block, winograd::taps * blockFloats, blockFloats}, to.square(filter, i));
}

/// The same of the filter as a convolution of dy reads it: inputs and outputs have changed places, taps are in the
/// opposite order. `s` is of that convolution.
void transformTurned(const Sizes& s, const float* w, const Values& to, std::int64_t filter) {
  const std::int64_t output = filter / s.inputs, input = filter % s.inputs;
  const float* const from = w + (input * s.outputs + output) * taps * blockFloats;
  alignas(32) float turned[taps * blockFloats];
  for (std::int64_t tap = 0; tap < taps; ++tap)
    exchangeBlock(from + tap * blockFloats, turned + (taps - 1 - tap) * blockFloats);
  for (std::int64_t i = 0; i < block; ++i)
    winograd::apply<winograd::taps, winograd::points, winograd::ofFilter>(
        {turned + i * block, winograd::taps * blockFloats, blockFloats}, to.square(filter, i));
}

/// m = v · u at all points, for `count` squares.
void multiply(const Sizes& s, std::int64_t count, const Values& v, const Values& u, const Values& m) {
  const std::int64_t tiles = (count + tileRows - 1) / tileRows;
  for (std::int64_t point = 0; point < points; ++point)
    for (std::int64_t k = 0; k < s.outputs; ++k) {
      ForwardTile t = {.x = nullptr,
                       .w = u.at(point, k * s.inputs, 0),
                       .start = nullptr,
                       .y = nullptr,
                       .inputs = s.inputs,
                       .plane = v.count * block,
                       .kernelHeight = 1,
                       .rowFloats = 0,
                       .kernelWidth = 1,
                       .fresh = true};
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const std::int64_t first = tile * count / tiles, end = (tile + 1) * count / tiles;
        t.x = v.at(point, 0, first), t.y = m.at(point, k, first);
        runForward<1>(end - first, t);
      }
    }
}

/// du = transposed v · m at one point, or added to it.
void multiplyToFilter(const Sizes& s, std::int64_t point, std::int64_t count, const Values& v, const Values& m,
                      bool fresh, const Values& du) {
  for (std::int64_t k = 0; k < s.outputs; ++k)
    for (std::int64_t c = 0; c < s.inputs; ++c)
      runAllInputs(1, {.x = v.at(point, c, 0),
                       .dy = m.at(point, k, 0),
                       .dw = du.at(point, k * s.inputs + c, 0),
                       .rows = 1,
                       .columns = count,
                       .rowOfX = 0,
                       .rowOfDy = 0,
                       .step = block,
                       .fresh = fresh});
}

std::int64_t filterFloats(const Sizes& s) {
  return Values::floatsOf(s.inputs * s.outputs, block);
}
std::int64_t valueFloats(const Sizes& s, std::int64_t squares) {
  return Values::floatsOf(s.inputs, squares) + Values::floatsOf(s.outputs, squares);
}

/// Of the filter at the points.
void convolve(const Sizes& s, int threads, const Values& u, float* room, const float* x, const float* bias, float* y) {
  const std::int64_t atOnce = squaresAtOnce(s), groups = (s.squares() + atOnce - 1) / atOnce;
  parts::run(threads, [&](int part) {
    float* const mine = room + part * valueFloats(s, atOnce);
    const Values v = {mine, s.inputs, atOnce}, m = {mine + Values::floatsOf(s.inputs, atOnce), s.outputs, atOnce};
    const parts::Range range = parts::rangeOf(part, threads, groups);
    for (std::int64_t square = range.begin * atOnce; square < std::min(range.end * atOnce, s.squares());
         square += atOnce) {
      const std::int64_t count = std::min(atOnce, s.squares() - square);
      for (std::int64_t i = 0; i < count; ++i) transformInputs(s, x, square + i, v, i);
      multiply(s, count, v, u, m);
      for (std::int64_t i = 0; i < count; ++i) transformOutputs(s, m, i, bias, square + i, y);
    }
  });
}

} // namespace

WinogradConvolution::WinogradConvolution(const Conv2d::Options& o)
    : sizes_(sizesOf(o)), backward_(backwardSizes(sizes_)) {
  threads_ = parts::countOf(std::min(sizes_.squares(), sizes_.inputs * sizes_.outputs),
                            Conv2d::outputShape(o).elements() * sizes_.inputs);
}

std::size_t WinogradConvolution::forwardWorkspace() const {
  return static_cast<std::size_t>(filterFloats(sizes_) + threads_ * valueFloats(sizes_, squaresAtOnce(sizes_))) *
         sizeof(float);
}

std::size_t WinogradConvolution::inputGradientWorkspace() const {
  return static_cast<std::size_t>(filterFloats(backward_) +
                                  threads_ * valueFloats(backward_, squaresAtOnce(backward_))) *
         sizeof(float);
}

std::size_t WinogradConvolution::weightGradientWorkspace() const {
  return static_cast<std::size_t>(filterFloats(sizes_) + valueFloats(sizes_, squaresAtOnce(sizes_))) * sizeof(float);
}

void WinogradConvolution::forward(std::byte* workspace, const float* x, const float* w, const float* b,
                                  float* y) const {
  const Values u = filterAt(sizes_, reinterpret_cast<float*>(workspace));
  parts::runRanges(threads_, u.blocks, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t filter = begin; filter < end; ++filter) transformFilter(w, u, filter);
  });
  convolve(sizes_, threads_, u, u.data + filterFloats(sizes_), x, b, y);
}

void WinogradConvolution::inputGradient(std::byte* workspace, const float* dy, const float* w, float* dx) const {
  const Values u = filterAt(backward_, reinterpret_cast<float*>(workspace));
  parts::runRanges(threads_, u.blocks, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t filter = begin; filter < end; ++filter) transformTurned(backward_, w, u, filter);
  });
  convolve(backward_, threads_, u, u.data + filterFloats(backward_), dy, nullptr, dx);
}

void WinogradConvolution::weightGradient(std::byte* workspace, const float* x, const float* dy, float* dw,
                                         float* db) const {
  const Sizes& s = sizes_;
  const std::int64_t atOnce = squaresAtOnce(s);
  const Values du = filterAt(s, reinterpret_cast<float*>(workspace)), v = {du.data + filterFloats(s), s.inputs, atOnce},
               m = {v.data + Values::floatsOf(s.inputs, atOnce), s.outputs, atOnce};
  for (std::int64_t square = 0; square < s.squares(); square += atOnce) {
    const std::int64_t count = std::min(atOnce, s.squares() - square);
    parts::runRanges(threads_, count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        transformInputs(s, x, square + i, v, i);
        transformOutputGradients(s, dy, square + i, m, i);
      }
    });
    parts::runRanges(threads_, points, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t point = begin; point < end; ++point) multiplyToFilter(s, point, count, v, m, square == 0, du);
    });
  }
  parts::runRanges(threads_, du.blocks, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t filter = begin; filter < end; ++filter)
      for (std::int64_t i = 0; i < block; ++i)
        winograd::apply<winograd::points, winograd::taps, winograd::toFilterGradient>(
            readOnly(du.square(filter, i)),
            {dw + filter * taps * blockFloats + i * block, winograd::taps * blockFloats, blockFloats});
  });
  if (db) sumOverPositions(s.samples, s.outputs, s.rows * s.columns, dy, db);
}

} // namespace pdcrt
#else
namespace pdcrt {

WinogradConvolution::WinogradConvolution(const Conv2d::Options&) : sizes_(), backward_(), threads_(1) {}
std::size_t WinogradConvolution::forwardWorkspace() const {
  return 0;
}
std::size_t WinogradConvolution::inputGradientWorkspace() const {
  return 0;
}
std::size_t WinogradConvolution::weightGradientWorkspace() const {
  return 0;
}
void WinogradConvolution::forward(std::byte*, const float*, const float*, const float*, float*) const {}
void WinogradConvolution::inputGradient(std::byte*, const float*, const float*, float*) const {}
void WinogradConvolution::weightGradient(std::byte*, const float*, const float*, float*, float*) const {}

} // namespace pdcrt
#endif
