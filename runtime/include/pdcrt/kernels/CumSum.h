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
  void forward(Stream& q, std::type_identity_t<View<const T>> x, View<T> y) const {
    run(q, elementOf<T>(), x.data, y.data);
  }

private:
  void run(Stream& q, Element element, const void* x, void* y) const;

  Options options_;
};

} // namespace pdcrt
