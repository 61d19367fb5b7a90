// Softmax cross-entropy with integer labels (ONNX SoftmaxCrossEntropyLoss, reduction mean) and its gradient.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>

namespace pdcrt {

/// loss = mean over the labelled positions of -log softmax(logits)[label], classes on axis 1 of the logits. With no
/// labelled position the loss is NaN (0 / 0, as the definition has it) and the gradient 0. Sums are in double
/// precision, in row-major order. dx may be `probabilities`.
class SoftmaxCrossEntropy {
public:
  struct Options {
    std::int64_t batch = 1, classes = 0;
    std::int64_t inner = 1; ///< logits are [batch, classes, inner], labels [batch, inner]
    bool hasIgnoreIndex = false;
    std::int64_t ignoreIndex = -100; ///< positions with this label do not count
  };

  SoftmaxCrossEntropy(Setup& setup, const Options& options);

  /// `loss` is a scalar; `probabilities`, of the logits' shape, is kept for the gradient and may be empty (evaluation).
  /// Labels lie in 0 … classes - 1; any other that is not ignored makes the loss NaN.
  void forward(Stream& q, View<const float> logits, View<const std::int64_t> labels, View<float> loss,
               View<float> probabilities) const;
  void forward(Stream& q, View<const float> logits, View<const std::int32_t> labels, View<float> loss,
               View<float> probabilities) const;
  /// `dloss` is a scalar.
  void inputGradient(Stream& q, View<const float> dloss, View<const std::int64_t> labels,
                     View<const float> probabilities, View<float> dlogits) const;
  void inputGradient(Stream& q, View<const float> dloss, View<const std::int32_t> labels,
                     View<const float> probabilities, View<float> dlogits) const;

private:
  Options options_;
};

} // namespace pdcrt
