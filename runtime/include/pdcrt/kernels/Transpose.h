// Permutation of axes, for elements of any type.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"
#include "pdcrt/kernels/StridedCopy.h"

#include <cstdint>
#include <type_traits>

namespace pdcrt {

/// Axis i of y is axis permutation[i] of x. y may not overlap x. The gradient is the transposition back.
class Transpose {
public:
  struct Options {
    Shape input;
    Axes permutation;
  };

  /// Throws std::runtime_error if `permutation` is none of the input's axes.
  Transpose(Setup& setup, const Options& options);

  template <class T>
  void forward(Stream& q, std::type_identity_t<View<const T>> x, View<T> y) const {
    copy_.run(q, x.data, y.data, sizeof(T));
  }

private:
  StridedCopy copy_;
};

} // namespace pdcrt
