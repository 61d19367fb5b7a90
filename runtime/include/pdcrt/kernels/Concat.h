// Concatenation along an axis, for elements of any type.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"
#include "pdcrt/kernels/StridedCopy.h"

#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <vector>

namespace pdcrt {

/// Operand i is [outer, inner[i]] and y [outer, sum of inner]: the axes before the concatenated one are merged to
/// `outer`, it and those after it to `inner`. y may not overlap an operand. The gradients are slices.
class Concat {
public:
  struct Options {
    std::int64_t outer = 1;
    std::vector<std::int64_t> inner; ///< per operand
  };

  Concat(Setup& setup, const Options& options);

  /// As many operands as Options::inner has entries: `concat.forward(q, {a, b, c}, y)`.
  template <class T>
  void forward(Stream& q, std::initializer_list<std::type_identity_t<View<const T>>> operands, View<T> y) const {
    const StridedCopy* copy = copies_.data();
    for (View<const T> x : operands) (copy++)->run(q, x.data, y.data, sizeof(T));
  }

private:
  std::vector<StridedCopy> copies_; ///< per operand
};

} // namespace pdcrt
