// Softmax cross-entropy with integer labels (ONNX SoftmaxCrossEntropyLoss, reduction mean; label smoothing as PyTorch's
// CrossEntropyLoss has it) and its gradient.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>

namespace pdcrt {

/// Of `total` classes that a team divides, each member has `share`, in the order of the members: `count` from `first`
/// on. What is left of the share of the last members is padding.
struct OwnClasses {
  std::int64_t first = 0, count = 0;
};
constexpr OwnClasses ownClasses(std::int64_t total, std::int64_t share, std::int64_t member) {
  const std::int64_t first = share * member < total ? share * member : total;
  return {first, share < total - first ? share : total - first};
}

/// With p = softmax(logits) over axis 1, class weights w (all 1 where they are absent), smoothing e and C classes,
///
///   loss = Σ ( (1 - e) · w[label] · -log p[label]  +  e / C · Σ_c w[c] · -log p[c] )  /  Σ w[label]
///
/// over the labelled positions. Where no position counts, the loss and the gradient are 0. Sums are in double
/// precision, in row-major order. dx may be `logits`.
class SoftmaxCrossEntropy {
public:
  struct Options {
    std::int64_t batch = 1, classes = 0;
    std::int64_t inner = 1; ///< logits are [batch, classes + gap, inner], labels [batch, inner]
    bool hasIgnoreIndex = false;
    std::int64_t ignoreIndex = -100; ///< positions with this label do not count
    double labelSmoothing = 0;       ///< e, from 0 to 1
    std::int64_t gap = 0;            ///< logits behind the classes that are none; their gradient is 0
    /// inputGradient: the classes of all members of a team, where the logits are those of one of them (OwnClasses); 0:
    /// the logits are all.
    std::int64_t total = 0;
    Element element = Element::f32; ///< of the logits and their gradient; all else is of f32
  };

  SoftmaxCrossEntropy(Setup& setup, const Options& options);

  /// forward: `weights` has one element per class, or is empty. `loss` is a scalar; `statistics`, [batch, 2, inner],
  /// has what the gradient needs of each position, the largest logit and 1 / Σ e^(logit - largest), and may be empty
  /// (evaluation). Labels lie in 0 … classes - 1; any other that is not ignored makes the loss NaN.
  /// inputGradient: `dloss` is a scalar. Where the label is nearly certain, p - 1 has few digits if the logits are a
  /// part: the probabilities of all others, which have them, are elsewhere.
#define PDCRT_CROSS_ENTROPY(T, Label)                                                                                  \
  void forward(Stream& q, View<const T> logits, View<const Label> labels, View<const float> weights, View<float> loss, \
               View<float> statistics) const;                                                                          \
  void inputGradient(Stream& q, View<const float> dloss, View<const Label> labels, View<const T> logits,               \
                     View<const float> statistics, View<const float> weights, View<T> dlogits) const;
  PDCRT_CROSS_ENTROPY(float, std::int64_t)
  PDCRT_CROSS_ENTROPY(float, std::int32_t)
  // Of logits in bfloat16 and float16, for CUDA.
  PDCRT_CROSS_ENTROPY(bfloat16, std::int64_t)
  PDCRT_CROSS_ENTROPY(bfloat16, std::int32_t)
  PDCRT_CROSS_ENTROPY(float16, std::int64_t)
  PDCRT_CROSS_ENTROPY(float16, std::int32_t)
#undef PDCRT_CROSS_ENTROPY

private:
  Options options_;
};

} // namespace pdcrt
