// What programs that are compiled with --debug-nan call after each kernel: the first tensor of a phase that has a NaN
// or +inf is remembered until the phase is over, when the run ends and names it. -inf is what masks are made of, and no
// trouble until something makes a NaN of it.
#pragma once

#include "pdcrt/View.h"

#include <cstdint>
#include <optional>

namespace pdcrt {

struct NotFinite {
  const char* what = nullptr; ///< ONNX node and type of the tensor
  std::int64_t element = 0;   ///< the first that is bad, as it lies in memory
  std::int64_t count = 0;     ///< of bad ones
  float value = 0;
};

/// Looks at `elements` values; by the thread that runs the phase. Only the first tensor that is bad is remembered.
void lookAt(View<const float> values, std::int64_t elements, const char* what);
inline void lookAt(View<float> values, std::int64_t elements, const char* what) {
  lookAt(View<const float>(values), elements, what);
}

/// What this thread remembers, which is forgotten.
std::optional<NotFinite> takeNotFinite();

} // namespace pdcrt
