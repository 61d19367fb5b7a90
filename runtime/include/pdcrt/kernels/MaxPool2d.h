// Two-dimensional maximum pooling and its gradient.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"
#include "pdcrt/kernels/Window.h"

#include <cstdint>

namespace pdcrt {

/// y is the maximum of each window over the input; padding never wins. Of equal values the first in row-major order
/// wins, NaN before everything. Plain NCHW.
class MaxPool2d {
public:
  struct Options {
    Shape input;  ///< [N, C, H, W]
    Shape output; ///< [N, C, H', W'], as the rounding mode of the model says
    Dims2 kernel = {1, 1};
    Dims2 strides = {1, 1};
    Pads2 pads = {};
    Dims2 dilations = {1, 1};
    /// Values below 0 count as 0. Where nothing is above 0 the index is -1, and no input gets a gradient.
    bool relu = false;
    /// Values are row-major [N, C / lanes, H, W, lanes]: on the CPU 1 or 16, under CUDA what divides C.
    std::int64_t lanes = 1;
  };

  /// Throws std::runtime_error if a window has no element of the input.
  MaxPool2d(Setup& setup, const Options& options);

  /// `index`, of y's shape, is where in its plane (row · W + column) the maximum was; it may be empty (evaluation).
  void forward(Stream& q, View<const float> x, View<float> y, View<std::int32_t> index) const;
  void inputGradient(Stream& q, View<const float> dy, View<const std::int32_t> index, View<float> dx) const;

private:
  Options options_;
};

} // namespace pdcrt
