// Softmax cross-entropy with integer labels (ONNX SoftmaxCrossEntropyLoss, reduction mean; label smoothing as PyTorch's
// CrossEntropyLoss has it) and its gradient.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>

namespace pdcrt {

/// With p = softmax(logits) over axis 1, class weights w (all 1 where they are absent), smoothing e and C classes,
///
///   loss = Σ ( (1 - e) · w[label] · -log p[label]  +  e / C · Σ_c w[c] · -log p[c] )  /  Σ w[label]
///
/// over the labelled positions. Where the sum of their weights is 0 the loss is NaN (0 / 0, as the definition has it)
/// and the gradient 0. Sums are in double precision, in row-major order. dx may be `probabilities`.
class SoftmaxCrossEntropy {
public:
  struct Options {
    std::int64_t batch = 1, classes = 0;
    std::int64_t inner = 1; ///< logits are [batch, classes, inner], labels [batch, inner]
    bool hasIgnoreIndex = false;
    std::int64_t ignoreIndex = -100; ///< positions with this label do not count
    double labelSmoothing = 0;       ///< e, from 0 to 1
  };

  SoftmaxCrossEntropy(Setup& setup, const Options& options);

  /// `weights` has one element per class, or is empty. `loss` is a scalar; `probabilities`, of the logits' shape, is
  /// kept for the gradient and may be empty (evaluation). Labels lie in 0 … classes - 1; any other that is not ignored
  /// makes the loss NaN.
  void forward(Stream& q, View<const float> logits, View<const std::int64_t> labels, View<const float> weights,
               View<float> loss, View<float> probabilities) const;
  void forward(Stream& q, View<const float> logits, View<const std::int32_t> labels, View<const float> weights,
               View<float> loss, View<float> probabilities) const;
  /// `dloss` is a scalar.
  void inputGradient(Stream& q, View<const float> dloss, View<const std::int64_t> labels,
                     View<const float> probabilities, View<const float> weights, View<float> dlogits) const;
  void inputGradient(Stream& q, View<const float> dloss, View<const std::int32_t> labels,
                     View<const float> probabilities, View<const float> weights, View<float> dlogits) const;

private:
  Options options_;
};

} // namespace pdcrt
