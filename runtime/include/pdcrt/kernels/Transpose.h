// Permutation of axes, for elements of any type.
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

/// Axis i of y is axis permutation[i] of x. y may not overlap x. The gradient is the transposition back.
class Transpose {
public:
  struct Options {
    Shape input;
    std::vector<std::int64_t> permutation;
  };

  /// Throws std::runtime_error if `permutation` is none of the input's axes.
  Transpose(Setup& setup, const Options& options);

  template <class T>
  void forward(Stream&, std::type_identity_t<View<const T>> x, View<T> y) const {
    copy(x.data, y.data, sizeof(T));
  }

private:
  void copy(const void* x, void* y, std::size_t elementBytes) const;

  Shape output_;                            ///< after merging axes that stay together
  std::int64_t inputStrides_[maxRank] = {}; ///< of output_'s axes in x, in elements
};

} // namespace pdcrt
