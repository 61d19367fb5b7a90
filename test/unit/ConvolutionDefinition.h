// The definition of a convolution, for tests of its kernels.
#pragma once

#include "pdcrt/kernels/Conv2d.h"

#include <cstdint>

namespace pdcrt {

/// Calls visit(x, w, y) with the linear indices of every product of the convolution.
template <class Visit>
void forEachProduct(const Conv2d::Options& o, Visit visit) {
  const Shape y = Conv2d::outputShape(o);
  const std::int64_t perGroup = o.filter.dims[0] / o.groups, channels = o.filter.dims[1], height = o.input.dims[2],
                     width = o.input.dims[3];
  std::int64_t output = 0;
  for (std::int64_t n = 0; n < y.dims[0]; ++n)
    for (std::int64_t k = 0; k < y.dims[1]; ++k)
      for (std::int64_t i = 0; i < y.dims[2]; ++i)
        for (std::int64_t j = 0; j < y.dims[3]; ++j, ++output)
          for (std::int64_t c = 0; c < channels; ++c)
            for (std::int64_t r = 0; r < o.filter.dims[2]; ++r)
              for (std::int64_t s = 0; s < o.filter.dims[3]; ++s) {
                const std::int64_t row = i * o.strides.height - o.pads.top + r * o.dilations.height;
                const std::int64_t column = j * o.strides.width - o.pads.left + s * o.dilations.width;
                if (row < 0 || row >= height || column < 0 || column >= width) continue;
                const std::int64_t channel = k / perGroup * channels + c;
                visit(((n * o.input.dims[1] + channel) * height + row) * width + column,
                      ((k * channels + c) * o.filter.dims[2] + r) * o.filter.dims[3] + s, output);
              }
}

/// The channel of element `i` of a tensor of `shape`.
inline std::int64_t channelOf(const Shape& shape, std::int64_t i) {
  return i / (shape.dims[2] * shape.dims[3]) % shape.dims[1];
}

} // namespace pdcrt
