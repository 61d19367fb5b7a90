// Dimensions of a value.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace pdcrt {

inline constexpr int maxRank = 8;

/// Dimensions of a value, slowest first. A scalar has none.
struct Shape {
  int rank = 0;
  std::int64_t dims[maxRank] = {};

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> list) {
    for (std::int64_t dim : list)
      if (rank < maxRank) dims[rank++] = dim;
  }
  constexpr std::int64_t elements() const {
    std::int64_t product = 1;
    for (int i = 0; i < rank; ++i) product *= dims[i];
    return product;
  }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

} // namespace pdcrt
