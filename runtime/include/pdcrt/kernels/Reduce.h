// Sum, mean, maximum, minimum or product over a set of axes.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace pdcrt {

enum class Reduction : std::uint8_t { sum, mean, max, min, product };

/// y is x reduced over `axes`; whether those axes stay with size 1 makes no difference to the bytes. Sums are in double
/// precision, in a fixed order, and so are products; those of integers wrap around. NaN wins every maximum and minimum.
/// Of no elements, a maximum is the least number of its type and a minimum the largest. y may not overlap x.
class Reduce {
public:
  struct Options {
    Shape input;
    Axes axes; ///< distinct, 0 … rank - 1; none: y = x
    Reduction kind = Reduction::sum;
  };

  /// Throws std::runtime_error if an axis is not one of the input's.
  Reduce(Setup& setup, const Options& options);

  void forward(Stream& q, View<const float> x, View<float> y) const;
  /// Of double and every integer, without vector code: shape arithmetic, indices and masks. For CUDA also of bfloat16
  /// and float16.
  template <class T>
  void forward(Stream& q, std::type_identity_t<View<const T>> x, View<T> y) const;
  // Sums alone, for CUDA.
  void forward(Stream& q, View<const bfloat16> x, View<float> y) const;
  void forward(Stream& q, View<const float16> x, View<float> y) const;

private:
  static std::size_t workspaceBytes(const Options& options); ///< on the target

  Reduction kind_;
  Shape kept_, reduced_;                                                  ///< neighbours of one sort are merged
  std::int64_t keptStrides_[maxRank] = {}, reducedStrides_[maxRank] = {}; ///< in x, in elements
};

} // namespace pdcrt
