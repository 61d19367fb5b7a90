// What WinogradConvolution computes with: values at the 36 points of squares of outputs and of filters, and how they
// come from tensors and go back. For x86-64 only.
#pragma once

#include "ChannelBlocks.h"
#include "ConvolutionTiles.h"
#include "WinogradConvolution.h"
#include "device/cpu/Sums.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace pdcrt::winograd {

using convolution::block, convolution::Finish, convolution::Square, convolution::tiles;
using Sizes = WinogradConvolution::Sizes;

constexpr std::int64_t points = convolution::squarePoints, taps = convolution::squareTaps;
constexpr std::int64_t allPoints = points * points, allTaps = taps * taps; ///< of a square
constexpr std::int64_t blockFloats = block * block;

/// Values at the points: [36][blocks of channels][count][16]. Planes are no powers of two apart, so that the 36 values
/// of a square do not meet in one set of a cache.
struct Values {
  float* data;
  std::int64_t blocks, count;

  static std::int64_t planeOf(std::int64_t blocks, std::int64_t count) { return blocks * count * block + block; }
  static std::int64_t floatsOf(std::int64_t blocks, std::int64_t count) { return allPoints * planeOf(blocks, count); }

  std::int64_t plane() const { return planeOf(blocks, count); }
  float* at(std::int64_t point, std::int64_t channels, std::int64_t i) const {
    return data + point * plane() + (channels * count + i) * block;
  }
  /// Of value `i` of some channels.
  Square<float> square(std::int64_t channels, std::int64_t i) const {
    return {at(0, channels, i), points * plane(), plane()};
  }
};

template <class T>
Square<const T> readOnly(Square<T> s) {
  return {s.data, s.row, s.column};
}

/// Where a square of outputs begins.
struct Place {
  std::int64_t sample, row, column;

  Place(const Sizes& s, std::int64_t square)
      : sample(square / (s.squareRows() * s.squareColumns())), row(square / s.squareColumns() % s.squareRows() * 4),
        column(square % s.squareColumns() * 4) {}
};

/// Whether caches do not keep so many planes from one operation to the next.
constexpr bool areFar(std::int64_t planes, std::int64_t positions) {
  return planes * positions * block > 1 << 20;
}

/// Fetches what the next square of a row of them has, to be read or written, and this one has not: between the two are
/// other channels, so that processors do not see it coming.
inline void fetchBeside(const float* patch, std::int64_t size, std::int64_t width) {
  for (std::int64_t i = 0; i < size; ++i)
    for (std::int64_t j = 0; j < 4; ++j) __builtin_prefetch(patch + (i * width + size + j) * block);
}

/// The same for what becomes of the next square of outputs: maxima in windows of 2x2, or indices.
template <class T>
void fetchMaximaBeside(const T* maxima, std::int64_t width) {
  for (std::int64_t i = 0; maxima && i < 2; ++i)
    for (std::int64_t j = 2; j < 4; ++j) __builtin_prefetch(maxima + (i * width + j) * block);
}

/// `size` x `size` values of a plane from (row, column) on: where they are or, where some lie outside, copied to `room`
/// among zeros. `fetch`: they are far away.
template <std::int64_t size>
Square<const float> patchOf(const float* plane, std::int64_t height, std::int64_t width, std::int64_t row,
                            std::int64_t column, bool fetch, float* room) {
  if (row >= 0 && column >= 0 && row + size <= height && column + size <= width) {
    const float* const patch = plane + (row * width + column) * block;
    if (fetch) fetchBeside(patch, size, width);
    return {patch, width * block, block};
  }
  static constexpr float zeros[block] = {};
  for (std::int64_t i = 0; i < size; ++i)
    for (std::int64_t j = 0; j < size; ++j) {
      const bool isInside = row + i >= 0 && row + i < height && column + j >= 0 && column + j < width;
      std::copy_n(isInside ? plane + ((row + i) * width + column + j) * block : zeros, block,
                  room + (i * size + j) * block);
    }
  return {room, size * block, block};
}

/// The inputs of a square of outputs become values at the points.
inline void transformInputs(const Sizes& s, const float* x, std::int64_t square, const Values& to, std::int64_t i) {
  const Place at(s, square);
  const bool fetch = areFar(s.samples * s.inputs, s.height * s.width);
  alignas(64) float room[points * points * block];
  for (std::int64_t c = 0; c < s.inputs; ++c) {
    const float* const plane = x + (at.sample * s.inputs + c) * s.height * s.width * block;
    const Square<const float> patch =
        patchOf<points>(plane, s.height, s.width, at.row - s.top, at.column - s.left, fetch, room);
    tiles().ofInputs(patch, to.square(c, i));
  }
}

/// So do gradients of a square of outputs.
inline void transformOutputGradients(const Sizes& s, const float* dy, std::int64_t square, const Values& to,
                                     std::int64_t i) {
  const Place at(s, square);
  const bool fetch = areFar(s.samples * s.outputs, s.rows * s.columns);
  alignas(64) float room[4 * 4 * block];
  for (std::int64_t k = 0; k < s.outputs; ++k) {
    const float* const plane = dy + (at.sample * s.outputs + k) * s.rows * s.columns * block;
    const Square<const float> patch = patchOf<4>(plane, s.rows, s.columns, at.row, at.column, fetch, room);
    tiles().ofOutputGradients(patch, to.square(k, i));
  }
}

using blocks::Floats, blocks::Ints;
constexpr std::int64_t floats = sizeof(Floats) / sizeof(float); ///< of a block, in a register

/// Values of a square of outputs [4][4][16] without the bias become some rows and columns of a plane of outputs, as
/// `finish` says.
template <bool adds>
PDCRT_AVX2 inline void finishSquare(const float* square, const float* bias, const float* added, float least,
                                    std::int64_t rows, std::int64_t columns, std::int64_t width, float* y) {
  for (std::int64_t lane = 0; lane < block; lane += floats) {
    const Floats start = bias ? *reinterpret_cast<const Floats*>(bias + lane) : Floats{}, bound = Floats{} + least;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::int64_t to = (r * width + c) * block + lane;
        Floats value = *reinterpret_cast<const Floats*>(square + (r * 4 + c) * block + lane) + start;
        if (adds) value += *reinterpret_cast<const Floats*>(added + to);
        *reinterpret_cast<Floats*>(y + to) = value < bound ? bound : value; // a NaN stays
      }
  }
}

/// The maxima of windows of 2x2 of such a square, as MaxPool2d has them, and their indices, if somebody asks: of some
/// rows and columns of windows. `first` is the index of the square's first value, `width` that of the value below.
template <bool relu>
PDCRT_AVX2 inline void poolSquare(const float* square, const float* bias, std::int64_t first, std::int64_t rows,
                                  std::int64_t columns, std::int64_t width, float* maxima, std::int32_t* index) {
  for (std::int64_t lane = 0; lane < block; lane += floats) {
    const Floats start = bias ? *reinterpret_cast<const Floats*>(bias + lane) : Floats{};
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) {
        const float* const window = square + (r * 8 + c * 2) * block + lane;
        const auto at = static_cast<std::int32_t>(first + 2 * (r * width + c));
        const std::int64_t to = (r * (width / 2) + c) * block + lane;
        Floats best = Floats{} + (relu ? 0.0f : -std::numeric_limits<float>::infinity());
        Ints place = Ints{} + (relu ? -1 : at);
        PDCRT_EACH(tap, 4) {
          const Floats value = *reinterpret_cast<const Floats*>(window + (tap / 2 * 4 + tap % 2) * block) + start;
          const Ints wins = ~(value <= best) & (best == best);
          best = wins ? value : best;
          place = wins ? Ints{} + static_cast<std::int32_t>(at + tap / 2 * width + tap % 2) : place;
        }
        *reinterpret_cast<Floats*>(maxima + to) = best;
        if (index) *reinterpret_cast<Ints*>(index + to) = place;
      }
  }
}

/// Values at the points, of `count` outputs from `first` on, become a square of outputs, or its maxima.
PDCRT_AVX2 inline void transformOutputs(const Sizes& s, std::int64_t first, std::int64_t count, const Values& from,
                                        std::int64_t i, const Finish& finish, std::int64_t square, float* y) {
  const Place at(s, square);
  const std::int64_t rows = std::min<std::int64_t>(4, s.rows - at.row),
                     columns = std::min<std::int64_t>(4, s.columns - at.column);
  const bool fetch = areFar(s.samples * s.outputs, s.rows * s.columns);
  const float least = finish.relu ? 0.0f : -std::numeric_limits<float>::infinity();
  alignas(64) float room[4 * 4 * block];
  const Square<float> inRoom = {room, 4 * block, block};
  for (std::int64_t k = first; k < first + count; ++k) {
    const std::int64_t plane = at.sample * s.outputs + k;
    const float* const bias = finish.biasOf(k);
    if (finish.pooled) {
      tiles().toOutputs(readOnly(from.square(k - first, i)), inRoom);
      const std::int64_t width = s.columns / 2,
                         to = ((plane * (s.rows / 2) + at.row / 2) * width + at.column / 2) * block;
      float* const maxima = y + to;
      std::int32_t* const index = finish.index ? finish.index + to : nullptr;
      if (fetch) fetchMaximaBeside(maxima, width), fetchMaximaBeside(index, width);
      const auto pool = finish.relu ? poolSquare<true> : poolSquare<false>;
      pool(room, bias, at.row * s.columns + at.column, rows / 2, columns / 2, s.columns, maxima, index);
      continue;
    }
    float* const to = y + ((plane * s.rows + at.row) * s.columns + at.column) * block;
    const float* const added = finish.added ? finish.added + (to - y) : nullptr;
    if (fetch) fetchBeside(to, 4, s.columns);
    if (fetch && added && added != to) fetchBeside(added, 4, s.columns);
    const bool whole = rows == 4 && columns == 4 && !bias && !added && !finish.relu;
    const Square<float> result = whole ? Square<float>{to, s.columns * block, block} : inRoom;
    tiles().toOutputs(readOnly(from.square(k - first, i)), result);
    if (whole) continue;
    const auto finishOne = added ? finishSquare<true> : finishSquare<false>;
    finishOne(room, bias, added, least, rows, columns, s.columns, to);
  }
}

/// A filter [outputs][inputs][9][16 of inputs][16 of outputs], or one that a convolution of dy reads: there inputs and
/// outputs have changed places, and taps are in the opposite order. Sizes are of that convolution.
struct Filter {
  const float* w;
  bool turned;

  /// The blocks of an output and an input at the points.
  void transform(const Sizes& s, std::int64_t output, std::int64_t input, const Values& to, std::int64_t place) const {
    const float* from = w + (turned ? input * s.outputs + output : output * s.inputs + input) * allTaps * blockFloats;
    alignas(64) float room[allTaps * blockFloats];
    if (turned) {
      for (std::int64_t tap = 0; tap < allTaps; ++tap)
        convolution::exchangeBlock(from + tap * blockFloats, room + (allTaps - 1 - tap) * blockFloats);
      from = room;
    }
    for (std::int64_t i = 0; i < block; ++i)
      tiles().ofFilter({from + i * block, taps * blockFloats, blockFloats}, to.square(place, i));
  }
};

/// Values at the points become the gradient of the blocks of an output and an input, or are added to it.
PDCRT_AVX2 inline void transformFilterGradient(const Values& du, std::int64_t place, bool fresh, float* dw) {
  for (std::int64_t i = 0; i < block; ++i) {
    alignas(64) float room[allTaps * block];
    const Square<float> result = fresh ? Square<float>{dw + i * block, taps * blockFloats, blockFloats}
                                       : Square<float>{room, taps * block, block};
    tiles().toFilterGradient(readOnly(du.square(place, i)), result);
    for (std::int64_t tap = 0; tap < allTaps && !fresh; ++tap)
      for (std::int64_t o = 0; o < block; ++o) dw[tap * blockFloats + i * block + o] += room[tap * block + o];
  }
}

} // namespace pdcrt::winograd
