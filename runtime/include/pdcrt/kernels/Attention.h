// Scaled dot products, their softmax and the weighted sum of values (Vaswani et al. 2017), as one kernel.
//
// The scores of all queries and keys are never in memory at once: on the CPU a block of queries at a time is, and the
// gradient computes them again (as Dao et al. 2022), from two numbers per query that the forward pass keeps.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stage.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <memory>
#include <string>

namespace pdcrt {

/// y[b, h, i] = Σ_j p[b, h, i, j] · v[b, g, j], p = softmax over j of (scale · q[b, h, i] · k[b, g, j] + bias[b, h, i,
/// j]), g = h / (heads / groups). q: [batch, heads, queries, size], k: [batch, groups, keys, size], v: [batch, groups,
/// keys, valueSize], y: [batch, heads, queries, valueSize]. One object serves one stream at a time.
class Attention {
public:
  static constexpr float hidden = -1e30f;

  /// Plain: products, and a loop over rows; under CUDA the scores of all rows lie in the workspace. Fused: cuDNN's one
  /// kernel, which has them nowhere in memory; where the runtime was built with it (kernels/cuda/FusedAttention.h).
  enum class Algorithm { automatic, plain, fused };
  static constexpr const char* algorithmNames[] = {"automatic", "plain", "fused"};
  /// How each result is computed. Automatic: plain.
  struct Algorithms {
    Algorithm forward = Algorithm::automatic;
    Algorithm inputGradient = Algorithm::automatic;
    std::int64_t workspace = 0; ///< bytes that the fused ones took where they were measured
    friend bool operator==(const Algorithms&, const Algorithms&) = default;
  };

  struct Options {
    std::int64_t batch = 1, heads = 1, groups = 1, queries = 1, keys = 1, size = 1, valueSize = 1;
    double scale = 1;
    bool causal = false;  ///< query i sees no key after i + keys - queries, which is at least 0
    Shape bias = {};      ///< [batch or 1, heads or 1, queries or 1, keys]; rank 0: there is none
    bool hides = false;   ///< a bias of at most `hidden` is there instead of a score: no gradient goes to that
    double ratio = 0;     ///< of the weights that dropout puts to 0, the others are scaled up
    std::uint32_t op = 0; ///< keys the random numbers, as Dropout's
    std::int64_t run = 0, members = 1; ///< as Dropout's: of the weights, where a member of a team has a part of them
    /// Of queries, keys, values, results and their gradients. Bias, scores, their softmax and sums are of f32.
    Element element = Element::f32;
    Algorithms algorithms = {};
  };

  /// Whether the fused algorithm may compute it: 16 bits, heads of 8, 16, … 128 elements, no dropout; a bias for 8, 16,
  /// … keys that hides nothing.
  static bool takesFused(const Options& options);
  /// What profiles call a kernel with these sizes: "Attention{.batch = 8, …}", as in a program, without what changes
  /// no time.
  static std::string profileName(const Options& options);

  /// Throws std::runtime_error if sizes are not positive or do not fit.
  Attention(Setup& setup, const Options& options);
  ~Attention();
  Attention(Attention&&) noexcept;
  Attention& operator=(Attention&&) noexcept;

  /// Of each query, [batch, heads, queries]: the largest score and the inverse of the sum of exp(score - largest); or
  /// the logarithm of the sum of exp(score), and 1, which say the same. Both may be null views.
  void forward(Stream& q, View<const float> query, View<const float> key, View<const float> value,
               View<const float> bias, View<float> y, View<float> largest, View<float> inverse) const;
  /// With dropout between softmax and values: element i of p draws as element i of Dropout does. The mask, of p's
  /// shape, is kept for the gradient.
  void forwardDropped(Stream& q, Draw draw, View<const float> query, View<const float> key, View<const float> value,
                      View<const float> bias, View<float> y, View<float> largest, View<float> inverse,
                      View<std::uint8_t> mask) const;
  /// The gradients that are not null views. `mask` is null without dropout.
  void inputGradient(Stream& q, View<const float> dy, View<const float> query, View<const float> key,
                     View<const float> value, View<const float> bias, View<const float> largest,
                     View<const float> inverse, View<const std::uint8_t> mask, View<float> dquery, View<float> dkey,
                     View<float> dvalue) const;
  // In bfloat16 and float16, for CUDA.
  template <class T>
  void forward(Stream& q, OperandView<T> query, OperandView<T> key, OperandView<T> value, View<const float> bias,
               View<T> y, View<float> largest, View<float> inverse) const;
  template <class T>
  void forwardDropped(Stream& q, Draw draw, OperandView<T> query, OperandView<T> key, OperandView<T> value,
                      View<const float> bias, View<T> y, View<float> largest, View<float> inverse,
                      View<std::uint8_t> mask) const;
  template <class T>
  void inputGradient(Stream& q, OperandView<T> dy, OperandView<T> query, OperandView<T> key, OperandView<T> value,
                     View<const float> bias, View<const float> largest, View<const float> inverse,
                     View<const std::uint8_t> mask, View<T> dquery, View<T> dkey, View<T> dvalue) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace pdcrt
