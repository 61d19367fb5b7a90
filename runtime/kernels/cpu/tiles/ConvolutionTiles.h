// Tiles of products that convolutions are made of, for channels and filters in blocks of 16, and the transforms of
// Winograd's algorithm: for AVX-512 and for AVX2, with the same bits. A tile of the result, some rows of 16 floats, is
// in registers while products are added to it: of a scalar of each row with 16 floats that all rows have in common. So
// many sums are in registers that two multiply-adds per cycle do not wait for each other.
#pragma once

#include "Avx2.h"
#include "ConvolutionSizes.h"

#include <cstdint>

namespace pdcrt::convolution {

/// A tile of y: neighbours in a row, one below the other here, of one or two blocks of outputs.
struct ForwardTile {
  const float *x, *w;
  /// What the products are added to: `before`, as y lies; or of all rows `start`, of one block behind the other; or 0.
  const float *before, *start;
  float* y;
  std::int64_t inputs, plane, kernelHeight, rowFloats, kernelWidth;
  bool relu;                                 ///< y is complete then, and of negative values 0 is stored
  std::int64_t outputOfW = 0, outputOfY = 0; ///< floats from one block of outputs to the next
  std::int64_t nextX = 0; ///< where, from each row of x on, what is read next is fetched; 0: nothing is
};

/// Tiles of dw: all inputs of a block, for some neighbouring taps and one or two blocks of outputs.
struct WeightTile {
  const float *x, *dy;
  float* dw;
  std::int64_t rows, columns, rowOfX, rowOfDy, step; ///< floats from one position to the next
  std::int64_t outputOfDy, outputOfDw;               ///< floats from one block of outputs to the next
  bool fresh;
  std::int64_t nextX = 0, nextDy = 0; ///< where, from here on, what is read next is fetched; 0: nothing is
};

/// A square of values, 16 floats each, and the floats from one row and column to the next.
template <class T>
struct Square {
  T* data;
  std::int64_t row, column;
};

/// Of Winograd's algorithm F(4x4, 3x3): outputs and points of a row of a square, and taps of a row of a filter.
inline constexpr int squareOutputs = 4, squarePoints = 6, squareTaps = 3;

/// What an instruction set has.
struct Tiles {
  std::int64_t rows, outputs; ///< of a tile of y, at most; blocks of the latter
  void (*forward)(std::int64_t positions, std::int64_t stride, std::int64_t outputs, const ForwardTile&); ///< 1 or 2
  void (*weights)(std::int64_t outputs, std::int64_t taps, const WeightTile&); ///< 1 or 2, 1 to 3
  // Of Winograd's algorithm F(4x4, 3x3): 6 x 6 inputs, 3 x 3 taps and 4 x 4 gradients of outputs become values at 6 x 6
  // points, and products of these 4 x 4 outputs and the gradients of 3 x 3 taps.
  void (*ofInputs)(Square<const float>, Square<float>);
  void (*ofFilter)(Square<const float>, Square<float>);
  void (*toOutputs)(Square<const float>, Square<float>);
  void (*ofOutputGradients)(Square<const float>, Square<float>);
  void (*toFilterGradient)(Square<const float>, Square<float>);
};

extern const Tiles avx2Tiles, avx512Tiles;

/// The best that this processor has, which has AVX2.
const Tiles& tiles();

/// db [outputs][16]: sums of dy [samples][outputs][plane][16], in double precision.
PDCRT_AVX2 inline void sumOverPositions(std::int64_t samples, std::int64_t outputs, std::int64_t plane, const float* dy,
                                        float* db) {
  for (std::int64_t k = 0; k < outputs; ++k) {
    double sums[block] = {};
    for (std::int64_t n = 0; n < samples; ++n)
      for (std::int64_t i = 0; i < plane; ++i)
        for (std::int64_t o = 0; o < block; ++o) sums[o] += double(dy[((n * outputs + k) * plane + i) * block + o]);
    for (std::int64_t o = 0; o < block; ++o) db[k * block + o] = static_cast<float>(sums[o]);
  }
}

/// A block of a filter, of one tap, with inputs and outputs exchanged.
PDCRT_AVX2 inline void exchangeBlock(const float* from, float* to) {
  for (std::int64_t i = 0; i < block; i += 8)
    for (std::int64_t o = 0; o < block; o += 8) avx2::exchange(from + i * block + o, block, to + o * block + i, block);
}

} // namespace pdcrt::convolution
