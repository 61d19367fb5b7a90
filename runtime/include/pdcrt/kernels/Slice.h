// A regular part of a tensor (ONNX Slice), for elements of any type, and its gradient.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"
#include "pdcrt/kernels/StridedCopy.h"

#include <cstdint>
#include <type_traits>

namespace pdcrt {

/// y[i, j, …] = x[starts[0] + i · steps[0], starts[1] + j · steps[1], …]. y may not overlap x.
class Slice {
public:
  struct Options {
    Shape input;
    Shape output;
    Axes starts; ///< per axis
    Axes steps;  ///< per axis, not 0; none: all 1
  };

  /// Throws std::runtime_error if the part does not lie inside the input.
  Slice(Setup& setup, const Options& options);

  template <class T>
  void forward(Stream& q, std::type_identity_t<View<const T>> x, View<T> y) const {
    part_.run(q, x.data, y.data, sizeof(T));
  }
  /// dx is dy in the part and 0 elsewhere.
  template <class T>
  void inputGradient(Stream& q, std::type_identity_t<View<const T>> dy, View<T> dx) const {
    fill(q, dx.data, inputElements_, T(0));
    back_.run(q, dy.data, dx.data, sizeof(T));
  }

private:
  StridedCopy part_, back_;
  std::int64_t inputElements_;
};

} // namespace pdcrt
