// Padding with a constant (ONNX Pad, mode constant), for elements of any type, and its gradient.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace pdcrt {

/// y is x with `before` and `after` elements of `value` added on each axis. y may not overlap x.
class Pad {
public:
  struct Options {
    Shape input;
    std::vector<std::int64_t> before, after; ///< per axis, not negative
    double value = 0;
  };

  /// Throws std::runtime_error if the paddings do not fit the input's rank or are negative.
  Pad(Setup& setup, const Options& options);

  template <class T>
  void forward(Stream&, std::type_identity_t<View<const T>> x, View<T> y) const {
    const T value = static_cast<T>(value_);
    fill(&value, y.data, sizeof(T));
    copy(x.data, y.data, sizeof(T), /*intoPadded=*/true);
  }
  /// dx is the part of dy that x occupies.
  template <class T>
  void inputGradient(Stream&, std::type_identity_t<View<const T>> dy, View<T> dx) const {
    copy(dy.data, dx.data, sizeof(T), /*intoPadded=*/false);
  }

private:
  void fill(const void* value, void* y, std::size_t elementBytes) const;
  void copy(const void* from, void* to, std::size_t elementBytes, bool intoPadded) const;

  Shape input_;
  std::int64_t paddedElements_ = 1;
  std::int64_t begin_ = 0;             ///< of x in y, in elements
  std::int64_t strides_[maxRank] = {}; ///< of x's axes in y, in elements
  double value_;
};

} // namespace pdcrt
