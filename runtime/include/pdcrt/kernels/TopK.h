// Where the k largest or smallest elements along an axis are (ONNX TopK; the routing of a mixture of experts).
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
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

  TopK(Setup& setup, const Options& options) : options_(options) {
    setup.needWorkspace(static_cast<std::size_t>(options.size) * sizeof(std::int64_t));
  }

  /// X is const or not.
  template <class X>
  void forward(Stream& q, View<X> x, View<std::int64_t> indices) const {
    using T = std::remove_const_t<X>;
    const Options& o = options_;
    auto* const order = reinterpret_cast<std::int64_t*>(q.workspace());
    for (std::int64_t outer = 0; outer < o.outer; ++outer)
      for (std::int64_t inner = 0; inner < o.inner; ++inner) {
        const T* const column = x.data + outer * o.size * o.inner + inner;
        std::iota(order, order + o.size, std::int64_t{0});
        std::partial_sort(order, order + o.k, order + o.size, [&](std::int64_t a, std::int64_t b) {
          const T first = column[a * o.inner], second = column[b * o.inner];
          if (larger(first, second)) return o.largest;
          if (larger(second, first)) return !o.largest;
          return a < b;
        });
        for (std::int64_t i = 0; i < o.k; ++i) indices[(outer * o.k + i) * o.inner + inner] = order[i];
      }
  }

private:
  template <class T>
  static bool larger(T a, T b) {
    return a > b || (a != a && b == b);
  }

  Options options_;
};

} // namespace pdcrt
