// The options of convolutions, on every target.
#pragma once

#include "pdcrt/kernels/Conv2d.h"

#include <string>

namespace pdcrt {

/// Throws std::runtime_error, with both shapes.
[[noreturn]] void refuseConvolution(const Conv2d::Options& options, const std::string& why);

/// Throws if shapes do not fit each other, or Winograd's algorithm is asked for where it cannot compute.
void checkConvolution(const Conv2d::Options& options);

} // namespace pdcrt
