// Rows put into a copy of a tensor, by index (ONNX ScatterND and, with rows of one element, ScatterElements).
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <type_traits>

namespace pdcrt {

/// How an element that is put meets the one that is there.
enum class Combination : std::uint8_t { replace, add, multiply, max, min };

/// y = x, then y[indices[i], ·] is combined with updates[i, ·], for i in order; x and y are [size, inner], the updates
/// [count, inner]. A negative index counts from the end; an index outside changes nothing. Integers wrap around. y may
/// not overlap its operands.
class Scatter {
public:
  struct Options {
    std::int64_t size = 0, inner = 1;
    std::int64_t count = 0; ///< of indices
    Combination kind = Combination::replace;
  };

  Scatter(Setup& setup, const Options& options);

  template <class T>
  void forward(Stream& q, std::type_identity_t<View<const T>> x, View<const std::int64_t> indices,
               std::type_identity_t<View<const T>> updates, View<T> y) const {
    run(q, elementOf<T>(), x.data, indices.data, updates.data, y.data);
  }

private:
  void run(Stream& q, Element element, const void* x, const std::int64_t* indices, const void* updates, void* y) const;

  Options options_;
};

} // namespace pdcrt
