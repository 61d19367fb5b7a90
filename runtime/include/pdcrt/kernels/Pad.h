// Padding with a constant (ONNX Pad, mode constant), for elements of any type, and its gradient.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"
#include "pdcrt/kernels/StridedCopy.h"

#include <cstdint>
#include <type_traits>

namespace pdcrt {

/// y is x with `before` and `after` elements of `value` added on each axis. y may not overlap x.
class Pad {
public:
  struct Options {
    Shape input;
    Axes before, after; ///< per axis, not negative
    double value = 0;
  };

  /// Throws std::runtime_error if the paddings do not fit the input's rank or are negative.
  Pad(Setup& setup, const Options& options);

  template <class T>
  void forward(Stream& q, std::type_identity_t<View<const T>> x, View<T> y) const {
    fill(q, y.data, paddedElements_, static_cast<T>(value_));
    inside_.run(q, x.data, y.data, sizeof(T));
  }
  /// dx is the part of dy that x occupies.
  template <class T>
  void inputGradient(Stream& q, std::type_identity_t<View<const T>> dy, View<T> dx) const {
    back_.run(q, dy.data, dx.data, sizeof(T));
  }

private:
  StridedCopy inside_, back_;
  std::int64_t paddedElements_;
  double value_;
};

} // namespace pdcrt
