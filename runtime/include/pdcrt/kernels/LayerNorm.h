// Layer normalisation (Ba, Kiros and Hinton 2016; ONNX LayerNormalization) and root mean square normalisation (Zhang
// and Sennrich 2019; ONNX RMSNormalization) of rows, and their gradients.
#pragma once

#include "pdcrt/AnyView.h"
#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"

#include <cstdint>

namespace pdcrt {

/// y = (x - mean) · inverse · scale + bias per row, inverse = 1 / sqrt(variance + epsilon), the variance that of the
/// population; or, with rms, y = x · inverse · scale, inverse = 1 / sqrt(mean of x² + epsilon). x, y, dy, dx are
/// [rows, size]; mean and inverse [rows]; scale, bias and their gradients [size]. scale and bias may be empty (1 and
/// 0). Sums are in double precision. y may be x, dx may be dy, or what is added to it.
///
/// For CUDA y and dy may be of 16 bits, and results that are rounded to them are given too (`low`); all else is of f32.
/// Then something else, [rows, size], may be added to x before, which may be of 16 bits too: `sum`, which may be that,
/// has what is normalised. Whatever is not wanted is empty.
class LayerNorm {
public:
  struct Options {
    std::int64_t rows = 1, size = 0;
    double epsilon = 1e-5;
  };

  LayerNorm(Setup& setup, const Options& options);

  /// `mean` and `inverse` are for the gradients; both may be empty. `low` is y, rounded.
  void forward(Stream& q, AnyConstView x, View<const float> scale, View<const float> bias, View<const float> added,
               AnyView y, View<float> mean, View<float> inverse, View<float> sum, AnyView low) const;
  /// `added`, [rows, size], is added to dx and may be empty; `low` is dx, rounded.
  void inputGradient(Stream& q, AnyConstView dy, View<const float> x, View<const float> scale, View<const float> mean,
                     View<const float> inverse, View<const float> added, View<float> dx, AnyView low) const;
  /// `dbias` may be empty.
  void weightGradient(Stream& q, AnyConstView dy, View<const float> x, View<const float> mean,
                      View<const float> inverse, View<float> dscale, View<float> dbias) const;

  void rmsForward(Stream& q, AnyConstView x, View<const float> scale, View<const float> added, AnyView y,
                  View<float> inverse, View<float> sum, AnyView low) const;
  void rmsInputGradient(Stream& q, AnyConstView dy, View<const float> x, View<const float> scale,
                        View<const float> inverse, View<const float> added, View<float> dx, AnyView low) const;
  void rmsWeightGradient(Stream& q, AnyConstView dy, View<const float> x, View<const float> inverse,
                         View<float> dscale) const;

private:
  Options options_;
};

} // namespace pdcrt
