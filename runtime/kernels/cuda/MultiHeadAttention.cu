// See MultiHeadAttention.h. The fused algorithm reads and writes rows; where products are faster, or there is no fused
// one, heads are copied apart.
#include "pdcrt/kernels/MultiHeadAttention.h"

#include "FusedAttention.h"
#include "common/HeadCopies.h"
#include "cuda/support/Product.h"
#include "cuda/trial/AttentionTimes.h"

#include <optional>

namespace pdcrt {
using Algorithm = Attention::Algorithm;

struct MultiHeadAttention::Impl {
  Options options;
  std::shared_ptr<const cuda::FusedAttention> fused;
  bool fusedForward = false, fusedGradient = false;
  HeadCopies copies;
  std::optional<Attention> attention; ///< what is not fused

  void makeFused(std::size_t workspace);
  template <class T>
  void runForward(Stream& q, const Heads<const T>& in, View<const float> bias, T* y, View<float> largest,
                  View<float> inverse) const;
  template <class T>
  void runGradient(Stream& q, const Heads<const T>& in, View<const float> bias, const T* y, View<const float> largest,
                   View<const float> inverse, const Heads<T>& results) const;
};

/// Refuses what the device does not have, or not in the workspace that was planned.
void MultiHeadAttention::Impl::makeFused(std::size_t workspace) {
  const Attention::Options o = attentionOf(options);
  const Rows rows(options);
  fused = cuda::fusedFor(o, &rows, fusedGradient);
  const std::size_t needed =
      std::max(fusedForward ? fused->forwardBytes() : 0, fusedGradient ? fused->gradientBytes() : 0);
  if (needed + cuda::workspaceAlignment > workspace)
    refuseAttention(o, "the fused algorithm needs " + std::to_string(needed) +
                           " bytes of workspace on this device, the " + "program was planned with " +
                           std::to_string(workspace) + "; measure on it: pdc-profile");
}

MultiHeadAttention::MultiHeadAttention(Setup& setup, const Options& asked) : impl_(std::make_unique<Impl>()) {
  checkSizes(asked);
  const std::size_t workspace = cuda::workspaceOf(asked);
  setup.needWorkspace(workspace);
  impl_->options = asked;
  Attention::Algorithms& algorithms = impl_->options.algorithms;
  if (setup.times() && algorithms == Attention::Algorithms{})
    algorithms = cuda::fastest(attentionOf(asked), *setup.times());
  impl_->fusedForward = algorithms.forward == Algorithm::fused;
  impl_->fusedGradient = algorithms.inputGradient == Algorithm::fused;
  if (impl_->fusedForward || impl_->fusedGradient) impl_->makeFused(workspace);
  if (impl_->fusedForward && impl_->fusedGradient) return;
  Attention::Options apart = attentionOf(asked);
  apart.algorithms = {.forward = Algorithm::plain, .inputGradient = Algorithm::plain};
  impl_->copies = HeadCopies(asked);
  Setup own;
  impl_->attention.emplace(own, apart);
}

MultiHeadAttention::~MultiHeadAttention() = default;
MultiHeadAttention::MultiHeadAttention(MultiHeadAttention&&) noexcept = default;
MultiHeadAttention& MultiHeadAttention::operator=(MultiHeadAttention&&) noexcept = default;

template <class T>
void MultiHeadAttention::Impl::runForward(Stream& q, const Heads<const T>& in, View<const float> bias, T* y,
                                          View<float> largest, View<float> inverse) const {
  Stream aligned = cuda::withAlignedWorkspace(q);
  if (!fusedForward) return copies.forward<T>(aligned, *attention, in, bias, y, largest, inverse);
  fused->forward(q, in.query, in.key, in.value, bias.data, y, largest.data, aligned.workspace());
  // What is in `largest` is the logarithm of the sum, as in Attention: then the other number is 1.
  if (inverse) fill(q, inverse.data, options.batch * options.heads * options.queries, 1.0f);
}

/// The fused gradient reads what forward left, if that was fused, too: else its numbers are others.
template <class T>
void MultiHeadAttention::Impl::runGradient(Stream& q, const Heads<const T>& in, View<const float> bias, const T* y,
                                           View<const float> largest, View<const float> inverse,
                                           const Heads<T>& results) const {
  Stream aligned = cuda::withAlignedWorkspace(q);
  if (!fusedGradient) return copies.inputGradient<T>(aligned, *attention, in, bias, largest, inverse, results);
  const bool given = fusedForward && y && largest;
  fused->inputGradient(q, in.y, in.query, in.key, in.value, bias.data, given ? y : nullptr,
                       given ? largest.data : nullptr, results.query, results.key, results.value, aligned.workspace());
}

template <class T>
void MultiHeadAttention::forward(Stream& q, OperandView<T> query, OperandView<T> key, OperandView<T> value,
                                 View<const float> bias, View<T> y, View<float> largest, View<float> inverse) const {
  const auto in = headsOf<const T>(impl_->options, query.data, key.data, value.data, nullptr);
  impl_->runForward(q, in, bias, y.data, largest, inverse);
}
void MultiHeadAttention::forward(Stream& q, View<const float> query, View<const float> key, View<const float> value,
                                 View<const float> bias, View<float> y, View<float> largest,
                                 View<float> inverse) const {
  forward<float>(q, query, key, value, bias, y, largest, inverse);
}

template <class T>
void MultiHeadAttention::inputGradient(Stream& q, OperandView<T> dy, OperandView<T> query, OperandView<T> key,
                                       OperandView<T> value, View<const float> bias, OperandView<T> y,
                                       View<const float> largest, View<const float> inverse, View<T> dquery,
                                       View<T> dkey, View<T> dvalue) const {
  const auto in = headsOf<const T>(impl_->options, query.data, key.data, value.data, dy.data);
  const auto results = headsOf<T>(impl_->options, dquery.data, dkey.data, dvalue.data, nullptr);
  impl_->runGradient(q, in, bias, y.data, largest, inverse, results);
}
void MultiHeadAttention::inputGradient(Stream& q, View<const float> dy, View<const float> query, View<const float> key,
                                       View<const float> value, View<const float> bias, View<const float> y,
                                       View<const float> largest, View<const float> inverse, View<float> dquery,
                                       View<float> dkey, View<float> dvalue) const {
  inputGradient<float>(q, dy, query, key, value, bias, y, largest, inverse, dquery, dkey, dvalue);
}

#define PDCRT_MULTI_HEAD_ATTENTION(T)                                                                                  \
  template void MultiHeadAttention::forward(Stream&, View<const T>, View<const T>, View<const T>, View<const float>,   \
                                            View<T>, View<float>, View<float>) const;                                  \
  template void MultiHeadAttention::inputGradient(Stream&, View<const T>, View<const T>, View<const T>, View<const T>, \
                                                  View<const float>, View<const T>, View<const float>,                 \
                                                  View<const float>, View<T>, View<T>, View<T>) const;
PDCRT_MULTI_HEAD_ATTENTION(bfloat16)
PDCRT_MULTI_HEAD_ATTENTION(float16)
#undef PDCRT_MULTI_HEAD_ATTENTION

} // namespace pdcrt
