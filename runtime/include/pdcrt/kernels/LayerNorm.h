// Layer normalisation (Ba, Kiros and Hinton 2016; ONNX LayerNormalization) and root mean square normalisation (Zhang
// and Sennrich 2019; ONNX RMSNormalization) of rows, and their gradients.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>

namespace pdcrt {

/// y = (x - mean) · inverse · scale + bias per row, inverse = 1 / sqrt(variance + epsilon), the variance that of the
/// population; or, with rms, y = x · inverse · scale, inverse = 1 / sqrt(mean of x² + epsilon). x, y, dy, dx are
/// [rows, size]; mean and inverse [rows]; scale, bias and their gradients [size]. scale and bias may be empty (1 and
/// 0). Sums are in double precision. y may be x, dx may be dy, or what is added to it.
class LayerNorm {
public:
  struct Options {
    std::int64_t rows = 1, size = 0;
    double epsilon = 1e-5;
    Element element = Element::f32; ///< of y and dy; all else is of f32
  };

  LayerNorm(Setup& setup, const Options& options);

  /// `mean` and `inverse` are for the gradients; both may be empty.
  void forward(Stream& q, View<const float> x, View<const float> scale, View<const float> bias, View<float> y,
               View<float> mean, View<float> inverse) const;
  /// `added`, [rows, size], is added to dx and may be empty; so may `low`, for dx in the type of dy.
  void inputGradient(Stream& q, View<const float> dy, View<const float> x, View<const float> scale,
                     View<const float> mean, View<const float> inverse, View<const float> added, View<float> dx,
                     View<float> low) const;
  /// `dbias` may be empty.
  void weightGradient(Stream& q, View<const float> dy, View<const float> x, View<const float> mean,
                      View<const float> inverse, View<float> dscale, View<float> dbias) const;

  void rmsForward(Stream& q, View<const float> x, View<const float> scale, View<float> y, View<float> inverse) const;
  void rmsInputGradient(Stream& q, View<const float> dy, View<const float> x, View<const float> scale,
                        View<const float> inverse, View<const float> added, View<float> dx, View<float> low) const;
  void rmsWeightGradient(Stream& q, View<const float> dy, View<const float> x, View<const float> inverse,
                         View<float> dscale) const;

  // With y and dy in bfloat16 and float16, for CUDA.
#define PDCRT_LAYER_NORM(T)                                                                                            \
  void forward(Stream& q, View<const float> x, View<const float> scale, View<const float> bias, View<T> y,             \
               View<float> mean, View<float> inverse) const;                                                           \
  void inputGradient(Stream& q, View<const T> dy, View<const float> x, View<const float> scale,                        \
                     View<const float> mean, View<const float> inverse, View<const float> added, View<float> dx,       \
                     View<T> low) const;                                                                               \
  void weightGradient(Stream& q, View<const T> dy, View<const float> x, View<const float> mean,                        \
                      View<const float> inverse, View<float> dscale, View<float> dbias) const;                         \
  void rmsForward(Stream& q, View<const float> x, View<const float> scale, View<T> y, View<float> inverse) const;      \
  void rmsInputGradient(Stream& q, View<const T> dy, View<const float> x, View<const float> scale,                     \
                        View<const float> inverse, View<const float> added, View<float> dx, View<T> low) const;        \
  void rmsWeightGradient(Stream& q, View<const T> dy, View<const float> x, View<const float> inverse,                  \
                         View<float> dscale) const;
  PDCRT_LAYER_NORM(bfloat16)
  PDCRT_LAYER_NORM(float16)
#undef PDCRT_LAYER_NORM

private:
  Options options_;
};

} // namespace pdcrt
