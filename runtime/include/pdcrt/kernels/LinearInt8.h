// A linear layer with frozen weights of 8 bits, and the gradient of its input.
//
// Source: T. Dettmers et al., LLM.int8() (arXiv:2208.07339): vector-wise scales, and inputs with outliers apart.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <limits>
#include <memory>

namespace pdcrt {

/// y[rows, outputs] of x[rows, inputs], w[outputs, inputs], scale[outputs], everything row-major. The weights are
///   v[k, i] = w[k, i] · scale[k], or kept[e, k] where i = keptInputs[e].
///
/// An input is an outlier where it is kept, or where some |x[j, i]| is not below alpha (NaN is not). Of the others, row
/// j is quantised (pdcrt/Int8.h): t[j] = (their largest |x[j, i]|) / 127, q[j, i] = round(x[j, i] / t[j]). Then, in
/// this order, every operation in f32:
///   c[j, k] = sum of q[j, i] · w[k, i] over the others, an integer, rounded once
///   y[j, k] = c[j, k] · (t[j] · scale[k])
///   y[j, k] = fma(x[j, i], v[k, i], y[j, k]) for each outlier, ascending
///   y[j, k] = y[j, k] + b[k]
/// That is the same bits on every processor and target. With alpha 0 nothing is quantised but the weights.
///
/// dx[rows, inputs] = dy · v: x counts as if it were not rounded. Its sums are those of the target.
///
/// No result may overlap an operand. One object serves one stream at a time.
class LinearInt8 {
public:
  struct Options {
    std::int64_t rows = 0, inputs = 0, outputs = 0;
    std::int64_t kept = 0; ///< inputs whose weights are f32
    bool bias = false;
    double alpha = 6;
  };

  static constexpr bool workspaceByMethod = true;

  /// Throws std::runtime_error, with the sizes, if the library refuses them.
  LinearInt8(Setup& setup, const Options& options);
  ~LinearInt8();
  LinearInt8(LinearInt8&&) noexcept;
  LinearInt8& operator=(LinearInt8&&) noexcept;

  /// `kept` and `keptInputs`, which ascend, are empty without Options::kept, `b` without Options::bias.
  void forward(Stream& q, View<const float> x, View<const std::int8_t> w, View<const float> scale,
               View<const float> kept, View<const std::int32_t> keptInputs, View<const float> b, View<float> y) const;
  void inputGradient(Stream& q, View<const float> dy, View<const std::int8_t> w, View<const float> scale,
                     View<const float> kept, View<const std::int32_t> keptInputs, View<float> dx) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace pdcrt
