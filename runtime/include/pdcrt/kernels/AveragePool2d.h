// Two-dimensional average pooling and its gradient. Global pooling is a kernel as large as the plane.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"
#include "pdcrt/kernels/Window.h"

#include <cstdint>

namespace pdcrt {

/// y is the mean of each window. Plain NCHW.
class AveragePool2d {
public:
  struct Options {
    Shape input;  ///< [N, C, H, W]
    Shape output; ///< [N, C, H', W'], as the rounding mode of the model says
    Dims2 kernel = {1, 1};
    Dims2 strides = {1, 1};
    Pads2 pads = {};
    /// Divide by the taps that lie inside the padded plane, else by those inside the plane. What rounding up adds
    /// beyond the padding never counts.
    bool countIncludePad = false;
    /// Values are row-major [N, C / lanes, H, W, lanes]: on the CPU 1 or 16, under CUDA what divides C.
    std::int64_t lanes = 1;
  };

  /// Throws std::runtime_error if a window has no element of the input.
  AveragePool2d(Setup& setup, const Options& options);

  void forward(Stream& q, View<const float> x, View<float> y) const;
  void inputGradient(Stream& q, View<const float> dy, View<float> dx) const;

private:
  Options options_;
};

} // namespace pdcrt
