// Where the k largest or smallest elements along an axis are (ONNX TopK; the routing of a mixture of experts).
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <type_traits>

namespace pdcrt {

/// indices[o, 0 … k - 1, j] are the places of the k largest (or smallest) of x[o, ·, j], the best first; of equal ones
/// the first is better. NaN counts as larger than every number.
class TopK {
public:
  struct Options {
    std::int64_t outer = 1, size = 0, inner = 1;
    std::int64_t k = 0; ///< at most `size`
    bool largest = true;
  };

  TopK(Setup& setup, const Options& options);

  /// X is const or not.
  template <class X>
  void forward(Stream& q, View<X> x, View<std::int64_t> indices) const {
    run(q, elementOf<std::remove_const_t<X>>(), x.data, indices);
  }

private:
  void run(Stream& q, Element element, const void* x, View<std::int64_t> indices) const;

  Options options_;
};

} // namespace pdcrt
