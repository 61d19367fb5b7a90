// What convolutions in tiles read and write, with channels and filters in blocks of 16: where positions lie, and a
// gradient of the input as convolutions.
#pragma once

#include "pdcrt/kernels/Conv2d.h"

#include <cstdint>
#include <vector>

namespace pdcrt::convolution {

constexpr std::int64_t block = 16;

/// How positions lie, in floats: from one plane to the next, the first in its plane, from one row to the next, from one
/// position to the next.
struct Places {
  std::int64_t plane, first, row, position;
};

/// Channels are counted in blocks, pads are where the input is read as 0.
struct Sizes {
  std::int64_t samples, inputs, outputs, height, width, rows, columns, kernelHeight, kernelWidth, strideHeight,
      strideWidth, top, left;
  bool padded; ///< windows reach over the input's edges
  Places source, results;

  /// Of what the windows reach, pads included.
  std::int64_t paddedHeight() const { return (rows - 1) * strideHeight + kernelHeight; }
  std::int64_t paddedWidth() const { return (columns - 1) * strideWidth + kernelWidth; }
  std::int64_t taps() const { return kernelHeight * kernelWidth; }

  /// Whether windows read a copy of x, and whether results are computed apart and then copied to their places.
  bool copiesImages() const { return padded || source.position > block || source.row > width * block; }
  bool scattersResults() const { return results.position > block || results.row > columns * block; }
};

/// What is added to sums, and becomes of them when they are complete.
struct Finish {
  const float* bias = nullptr;   ///< of all channels; null: 0
  const float* added = nullptr;  ///< of each element of the result, which may lie there; null: 0
  bool relu = false;             ///< negative values become 0
  bool pooled = false;           ///< results are the maxima of windows of 2x2 of the sums
  std::int32_t* index = nullptr; ///< where, in a plane of sums, those are; null: nobody asks

  const float* biasOf(std::int64_t blockOfChannels) const { return bias ? bias + blockOfChannels * block : nullptr; }
};

/// Of forward and weight gradient. One tap with strides reads every second position: as if there were no others.
Sizes forwardSizes(const Conv2d::Options& o);

/// Without pads and taps a plane is one row.
Sizes flat(Sizes s);

/// Positions of the input that meet the same taps of the filter: from `firstTap` on, each a stride from the one before.
/// Where strides are larger than the filter, some meet none.
struct Residue {
  Sizes sizes; ///< of their gradient, which is a convolution of dy; without taps it is 0
  Dims2 firstTap;
};

/// dx is dy, with other pads, convolved with the filter turned around. With strides only every second tap meets the
/// same position: even and odd positions are convolutions of their own, with their own taps.
std::vector<Residue> residuesOf(const Conv2d::Options& o);

} // namespace pdcrt::convolution
