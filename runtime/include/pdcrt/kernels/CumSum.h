// Running sums along an axis (ONNX CumSum).
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <type_traits>

namespace pdcrt {

/// y[o, i, j] is the sum of x[o, 0 … i, j]; without x[o, i, j] if exclusive; of i … size - 1 if reverse. Floats are
/// summed in double precision, integers wrap around. y may not overlap x.
class CumSum {
public:
  struct Options {
    std::int64_t outer = 1, size = 0, inner = 1;
    bool exclusive = false, reverse = false;
  };

  CumSum(Setup&, const Options& options) : options_(options) {}

  template <class T>
  void forward(Stream&, std::type_identity_t<View<const T>> x, View<T> y) const {
    using Sum = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;
    const Options& o = options_;
    for (std::int64_t outer = 0; outer < o.outer; ++outer)
      for (std::int64_t inner = 0; inner < o.inner; ++inner) {
        Sum sum = 0;
        for (std::int64_t step = 0; step < o.size; ++step) {
          const std::int64_t i = (outer * o.size + (o.reverse ? o.size - 1 - step : step)) * o.inner + inner;
          const Sum before = sum;
          sum += static_cast<Sum>(x[i]);
          y[i] = static_cast<T>(o.exclusive ? before : sum);
        }
      }
  }

private:
  Options options_;
};

} // namespace pdcrt
