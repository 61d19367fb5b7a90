// Rows picked by index along an axis (ONNX Gather; an embedding), for elements of any type, and the gradient of the
// table.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace pdcrt {

/// y[o, i, ·] = x[o, indices[i], ·], x being [outer, size, inner] and y [outer, count, inner]. A negative index counts
/// from the end. An index outside gives elements whose bits are all set (NaN) and has no gradient. y may not overlap x.
///
/// A member of a team may have a part of a table with `rows` rows: member m those from m · size on. The rows of others
/// give zeros, and have no gradient here.
class Gather {
public:
  struct Options {
    std::int64_t outer = 1, size = 0, inner = 1;
    std::int64_t count = 0; ///< of indices
    std::int64_t rows = 0;  ///< of the table of which x is a part; 0: x is all of it
  };

  Gather(Setup& setup, const Options& options);

  template <class T>
  void forward(Stream& q, std::type_identity_t<View<const T>> x, View<const std::int64_t> indices, View<T> y) const {
    gather(q, x.data, indices.data, y.data, sizeof(T));
  }
  template <class T>
  void forward(Stream& q, std::type_identity_t<View<const T>> x, View<const std::int32_t> indices, View<T> y) const {
    gather(q, x.data, indices.data, y.data, sizeof(T));
  }
  /// Adds the rows of dy that have the same index, always in one order; rows that no index names are 0.
  void inputGradient(Stream& q, View<const float> dy, View<const std::int64_t> indices, View<float> dx) const;
  void inputGradient(Stream& q, View<const float> dy, View<const std::int32_t> indices, View<float> dx) const;

private:
  void gather(Stream& q, const void* x, const std::int64_t* indices, void* y, std::size_t elementBytes) const;
  void gather(Stream& q, const void* x, const std::int32_t* indices, void* y, std::size_t elementBytes) const;

  Options options_;
};

} // namespace pdcrt
