// A sliding window on one axis: which of its taps lie inside the input.
#pragma once

#include "pdcrt/Math.h"
#include "pdcrt/Shape.h"

#include <cstdint>

namespace pdcrt {

struct WindowAxis {
  std::int64_t size, kernel, stride, pad, dilation; ///< `pad` before the first element

  /// Where tap 0 of the window at output `position` lies; negative in the padding.
  PDCRT_DEVICE std::int64_t start(std::int64_t position) const { return position * stride - pad; }
  /// Taps first … last - 1 lie inside.
  PDCRT_DEVICE std::int64_t first(std::int64_t position) const {
    const std::int64_t outside = -start(position);
    return outside <= 0 ? 0 : (outside + dilation - 1) / dilation;
  }
  PDCRT_DEVICE std::int64_t last(std::int64_t position) const {
    const std::int64_t room = size - start(position);
    return room <= 0 ? 0 : minimum(kernel, (room + dilation - 1) / dilation);
  }
};

/// Throws std::runtime_error, with the shapes, unless every window has a tap inside the input and so many channels can
/// lie together.
void checkPooling(const Shape& input, const Shape& output, const WindowAxis (&axes)[2], std::int64_t lanes);

} // namespace pdcrt
