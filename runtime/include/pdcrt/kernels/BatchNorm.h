// Batch normalisation over all axes but the second (Ioffe and Szegedy 2015; ONNX BatchNormalization) and its gradients.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>

namespace pdcrt {

/// y = (x - mean) · inverseStd · scale + bias per channel, inverseStd = 1 / sqrt(variance + epsilon), the variance that
/// of the population (divided by the count). x, y, dy, dx are [N, C, …]; everything else is [C]. Sums are in double
/// precision. y may be x, dx may be dy.
class BatchNorm {
public:
  struct Options {
    Shape input; ///< [N, C, …], rank >= 2
    double epsilon = 1e-5;
    double momentum = 0.9; ///< ONNX's: new = old · momentum + batch · (1 - momentum)
    /// The variance that moves the running one is divided by the count - 1, as PyTorch's, unless the count is 1.
    bool unbiased = false;
    bool relu = false; ///< y = max(normalised x + residual, 0); of trainForward, again too, and its gradient only
    /// x, y and their gradients are row-major [N, C / lanes, …, lanes]: on the CPU 1 or 16, under CUDA what divides C.
    std::int64_t lanes = 1;
  };

  /// Throws std::runtime_error if the input has no channel axis, or lanes that do not divide it.
  BatchNorm(Setup& setup, const Options& options);

  /// Inference, and training with frozen statistics.
  void forward(Stream& q, View<const float> x, View<const float> scale, View<const float> bias,
               View<const float> runningMean, View<const float> runningVariance, View<float> y) const;
  /// Saves `mean` and `inverseStd` of the minibatch for the gradient. The new running statistics may be the old ones'
  /// memory, or empty when nobody wants them. `residual` is added to what is normalised, or empty.
  void trainForward(Stream& q, View<const float> x, View<const float> scale, View<const float> bias,
                    View<const float> runningMean, View<const float> runningVariance, View<const float> residual,
                    View<float> y, View<float> mean, View<float> inverseStd, View<float> newRunningMean,
                    View<float> newRunningVariance) const;
  /// y of trainForward again, with the same bits, from the `mean` and `inverseStd` that it has saved.
  void trainForwardAgain(Stream& q, View<const float> x, View<const float> scale, View<const float> bias,
                         View<const float> mean, View<const float> inverseStd, View<const float> residual,
                         View<float> y) const;
  /// Gradients of trainForward; `dresidual`, the gradient of what was added, may be empty. dx may be dy's memory,
  /// dresidual not. With Options::relu either `y` says where it let something through, trainForward's result, or (where
  /// nothing was added) `bias`: what was normalised is computed again, with the same bits, and y need not be read.
  void gradient(Stream& q, View<const float> dy, View<const float> x, View<const float> scale, View<const float> mean,
                View<const float> inverseStd, View<const float> y, View<const float> bias, View<float> dx,
                View<float> dscale, View<float> dbias, View<float> dresidual) const;
  /// Gradients of forward, where the statistics are constants. `dx`, or `dscale` and `dbias`, may be empty.
  void frozenGradient(Stream& q, View<const float> dy, View<const float> x, View<const float> scale,
                      View<const float> runningMean, View<const float> runningVariance, View<float> dx,
                      View<float> dscale, View<float> dbias) const;

private:
  std::int64_t samples_, channels_, inner_, lanes_; ///< x is [samples, channels / lanes, inner, lanes]
  double epsilon_, momentum_;
  double correction_; ///< of the variance that moves the running one
  bool relu_;
};

} // namespace pdcrt
