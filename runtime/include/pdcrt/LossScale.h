// The dynamic loss scale of training in f16: as large as gradients can be without overflow.
#pragma once

#include <cstdint>

namespace pdcrt {

/// Starts large; a step whose gradients are not finite is skipped and halves the scale, `interval` finite steps in a
/// row double it. The policy of PyTorch's GradScaler. Powers of two, so that dividing it out is exact.
struct DynamicLossScale {
  double scale = 65536;
  std::int64_t interval = 2000; ///< 0: the scale stays as it is
  std::int64_t finiteSteps = 0; ///< since the last change

  /// Says how the step went; whether its update is made.
  bool step(bool finite) {
    if (interval == 0) return finite;
    if (!finite) {
      scale /= 2;
      finiteSteps = 0;
    } else if (++finiteSteps == interval) {
      scale *= 2;
      finiteSteps = 0;
    }
    return finite;
  }
};

} // namespace pdcrt
