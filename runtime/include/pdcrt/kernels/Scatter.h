// Rows put into a copy of a tensor, by index (ONNX ScatterND and, with rows of one element, ScatterElements).
#pragma once

#include "pdcrt/Math.h"
#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <cstring>
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

  Scatter(Setup&, const Options& options) : options_(options) {}

  template <class T>
  void forward(Stream&, std::type_identity_t<View<const T>> x, View<const std::int64_t> indices,
               std::type_identity_t<View<const T>> updates, View<T> y) const {
    const Options& o = options_;
    if (o.size * o.inner > 0) std::memcpy(y.data, x.data, static_cast<std::size_t>(o.size * o.inner) * sizeof(T));
    for (std::int64_t i = 0; i < o.count; ++i) {
      const std::int64_t row = indices[i] < 0 ? indices[i] + o.size : indices[i];
      if (row < 0 || row >= o.size) continue;
      for (std::int64_t j = 0; j < o.inner; ++j) combine(y[row * o.inner + j], updates[i * o.inner + j]);
    }
  }

private:
  template <class T>
  void combine(T& to, T from) const {
    using Wide = std::conditional_t<std::is_floating_point_v<T>, T, std::uint64_t>;
    switch (options_.kind) {
    case Combination::replace: to = from; return;
    case Combination::add: to = static_cast<T>(static_cast<Wide>(to) + static_cast<Wide>(from)); return;
    case Combination::multiply: to = static_cast<T>(static_cast<Wide>(to) * static_cast<Wide>(from)); return;
    case Combination::max: to = maximum(to, from); return;
    case Combination::min: to = minimum(to, from); return;
    }
  }

  Options options_;
};

} // namespace pdcrt
