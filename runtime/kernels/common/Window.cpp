// See Window.h in this folder.
#include "Window.h"

#include "Shapes.h"

#include <stdexcept>

namespace pdcrt {

void checkPooling(const Shape& input, const Shape& output, const WindowAxis (&axes)[2], std::int64_t lanes) {
  const auto refuse = [&](const std::string& why) {
    throw std::runtime_error("pooling of " + toString(input) + " to " + toString(output) + ": " + why);
  };
  if (input.rank != 4 || output.rank != 4) refuse("both need 4 dimensions");
  if (input.dims[0] != output.dims[0] || input.dims[1] != output.dims[1]) refuse("samples or channels differ");
  if (!lanesFit(lanes, input.dims[1])) refuse("lanes must be 1, or 16 where they divide the channels");
  for (int i = 0; i < 2; ++i) {
    const WindowAxis& axis = axes[i];
    if (axis.kernel < 1 || axis.stride < 1 || axis.dilation < 1)
      refuse("kernel, strides and dilations must be positive");
    for (std::int64_t position = 0; position < output.dims[2 + i]; ++position)
      if (axis.first(position) >= axis.last(position))
        refuse("window " + std::to_string(position) + " of axis " + std::to_string(2 + i) + " lies in the padding");
  }
}

} // namespace pdcrt
