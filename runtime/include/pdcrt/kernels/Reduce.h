// Sum, mean, maximum or minimum over a set of axes.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <vector>

namespace pdcrt {

enum class Reduction : std::uint8_t { sum, mean, max, min };

/// y is x reduced over `axes`; whether those axes stay with size 1 makes no difference to the bytes. Sums are in double
/// precision, in a fixed order. NaN wins every maximum and minimum. y may not overlap x.
class Reduce {
public:
  struct Options {
    Shape input;
    std::vector<std::int64_t> axes; ///< distinct, 0 … rank - 1; none: y = x
    Reduction kind = Reduction::sum;
  };

  /// Throws std::runtime_error if an axis is not one of the input's.
  Reduce(Setup& setup, const Options& options);

  void forward(Stream& q, View<const float> x, View<float> y) const;

private:
  Reduction kind_;
  Shape kept_, reduced_;                                                  ///< neighbours of one sort are merged
  std::int64_t keptStrides_[maxRank] = {}, reducedStrides_[maxRank] = {}; ///< in x, in elements
};

} // namespace pdcrt
