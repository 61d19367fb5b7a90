// Softmax cross-entropy (SoftmaxCrossEntropy.h) of logits whose classes a team divides: what members compute before and
// after they tell each other.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"
#include "pdcrt/kernels/SoftmaxCrossEntropy.h"

#include <cstdint>

namespace pdcrt {

/// With share[c] = w[c] · ((1 - e) · [c is the label] + e / total), and m the largest logit of all members,
///
///   loss = Σ_c share[c] · -log p[c] = Σ_c share[c] · (m - x[c])  +  Σ_c share[c] · log Σ_c e^(x[c] - m)
///
/// for each position, over the sum of the labels' weights. Members add up their parts of these three sums.
class SoftmaxCrossEntropyParts {
public:
  struct Options {
    std::int64_t batch = 1;
    std::int64_t classes = 0; ///< of the logits of a member (OwnClasses), [batch, classes, inner]
    std::int64_t inner = 1;   ///< labels are [batch, inner]
    std::int64_t total = 0;   ///< classes of all members
    bool hasIgnoreIndex = false;
    std::int64_t ignoreIndex = -100; ///< positions with this label do not count
    double labelSmoothing = 0;       ///< e, from 0 to 1
    Element element = Element::f32;  ///< of the logits; all else is of f32
  };

  SoftmaxCrossEntropyParts(Setup& setup, const Options& options);

  /// maxima: [batch, inner], the largest of the member's logits; -infinity where it has no class. Where one is NaN it
  /// is unspecified, and the sums are NaN. sums: [batch, 3, inner], of the member's classes Σ e^(x - m), Σ share · (m -
  /// x) and Σ share; `maxima` is m, `weights` has one element per class of all members, or is empty. The last two are 0
  /// where a position does not count, and all are where m is -infinity.
#define PDCRT_CROSS_ENTROPY_PARTS(T)                                                                                   \
  void maxima(Stream& q, View<const T> logits, View<float> maxima) const;                                              \
  void sums(Stream& q, View<const T> logits, View<const std::int64_t> labels, View<const float> maxima,                \
            View<const float> weights, View<float> sums) const;                                                        \
  void sums(Stream& q, View<const T> logits, View<const std::int32_t> labels, View<const float> maxima,                \
            View<const float> weights, View<float> sums) const;
  PDCRT_CROSS_ENTROPY_PARTS(float)
  // Of logits in bfloat16 and float16, for CUDA.
  PDCRT_CROSS_ENTROPY_PARTS(bfloat16)
  PDCRT_CROSS_ENTROPY_PARTS(float16)
#undef PDCRT_CROSS_ENTROPY_PARTS

  /// Of the sums of all members: loss and statistics as SoftmaxCrossEntropy::forward has them. Where all logits are
  /// -infinity, its probabilities are NaN.
  void ofSums(Stream& q, View<const float> sums, View<const float> maxima, View<const std::int64_t> labels,
              View<const float> weights, View<float> loss, View<float> statistics) const;
  void ofSums(Stream& q, View<const float> sums, View<const float> maxima, View<const std::int32_t> labels,
              View<const float> weights, View<float> loss, View<float> statistics) const;

private:
  Options options_;
};

} // namespace pdcrt
