// Numbers of schedules and messages are signed, places in containers are not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pdcrt {

/// i as a place in a container; i ≥ 0.
constexpr std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

} // namespace pdcrt
