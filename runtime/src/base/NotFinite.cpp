#include "pdcrt/NotFinite.h"

#include <cmath>
#include <limits>
#include <utility>

namespace pdcrt {

static thread_local NotFinite first;

void lookAt(View<const float> values, std::int64_t elements, const char* what) {
  if (first.what || !values) return;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < elements; ++i) {
    if (values[i] < infinity) continue; // false for NaN
    if (first.count++ > 0) continue;
    first.what = what;
    first.element = i;
    first.value = values[i];
  }
}

std::optional<NotFinite> takeNotFinite() {
  if (!first.what) return std::nullopt;
  return std::exchange(first, {});
}

} // namespace pdcrt
