// The fused attention of cuDNN: one kernel for scores, softmax and weighted sum, so that the scores are never in
// memory. It is there where the runtime was built with the headers of cudnn_frontend; no header of a vendor is included
// here.
#pragma once

#include "common/AttentionShapes.h"
#include "pdcrt/Stream.h"
#include "pdcrt/kernels/MultiHeadAttention.h"

#include <cstddef>
#include <memory>
#include <string>

namespace pdcrt::cuda {

/// Of sizes that Attention::takesFused allows. Its graphs are built when it is made; calls only put kernels into the
/// stream, and give the same bits in every run.
class FusedAttention {
public:
  /// Null, with the reason in `why`, where the build or the device does not have it. `gradient`: that is wanted too.
  /// `rows`: where operands and results lie, if heads are not apart. Kernels of one thread with the same sizes share
  /// one: to build a graph takes long.
  static std::shared_ptr<const FusedAttention>
  make(const Attention::Options& options, const MultiHeadAttention::Rows* rows, bool gradient, std::string& why);
  ~FusedAttention();

  /// What calls take of the workspace that they are given, which lies at a multiple of 256 bytes. Of inputGradient: 0
  /// without it.
  std::size_t forwardBytes() const;
  std::size_t gradientBytes() const;

  /// `statistics`, [batch, heads, queries], may be null: the logarithm of the sum of exp(score).
  void forward(Stream& q, const void* query, const void* key, const void* value, const float* bias, void* y,
               float* statistics, std::byte* workspace) const;
  /// The gradients that are not null. Without y and the statistics, both null, it computes them again.
  void inputGradient(Stream& q, const void* dy, const void* query, const void* key, const void* value,
                     const float* bias, const void* y, const float* statistics, void* dquery, void* dkey, void* dvalue,
                     std::byte* workspace) const;

private:
  struct Impl;
  explicit FusedAttention(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The same, where it was asked for: refuses other sizes, and what the device does not have.
inline std::shared_ptr<const FusedAttention> fusedFor(const Attention::Options& o, const MultiHeadAttention::Rows* rows,
                                                      bool gradient) {
  if (!Attention::takesFused(o))
    refuseAttention(o,
                    "the fused algorithm is for 16 bits and heads of 8, 16, … 128 elements, without dropout, and with "
                    "a bias for 8, 16, … keys that hides nothing; measure again: pdc-profile");
  std::string why;
  std::shared_ptr<const FusedAttention> fused = FusedAttention::make(o, rows, gradient, why);
  if (!fused) refuseAttention(o, "there is no fused algorithm here (" + why + "); measure on this device: pdc-profile");
  return fused;
}

} // namespace pdcrt::cuda
