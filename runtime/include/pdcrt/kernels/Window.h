// How a window slides over the two spatial axes: option types that convolution and pooling share.
#pragma once

#include <cstdint>

namespace pdcrt {

/// One number per spatial axis.
struct Dims2 {
  std::int64_t height = 1, width = 1;
  friend constexpr bool operator==(const Dims2&, const Dims2&) = default;
};

/// Rows and columns that are added around a plane.
struct Pads2 {
  std::int64_t top = 0, left = 0, bottom = 0, right = 0;
  friend constexpr bool operator==(const Pads2&, const Pads2&) = default;
};

} // namespace pdcrt
