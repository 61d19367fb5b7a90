// Numpy's broadcast of a tensor to a larger shape (ONNX Expand), for elements of any type.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"
#include "pdcrt/kernels/StridedCopy.h"

#include <type_traits>

namespace pdcrt {

/// y repeats x along the axes that x lacks (aligned at the last) or has with size 1. y may not overlap x. The gradient
/// is a sum over those axes (Reduce).
class Broadcast {
public:
  struct Options {
    Shape input;
    Shape output;
  };

  /// Throws std::runtime_error if the input does not broadcast to the output.
  Broadcast(Setup& setup, const Options& options);

  template <class T>
  void forward(Stream& q, std::type_identity_t<View<const T>> x, View<T> y) const {
    copy_.run(q, x.data, y.data, sizeof(T));
  }

private:
  StridedCopy copy_;
};

} // namespace pdcrt
