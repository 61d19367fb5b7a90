// What a run cannot begin with.
#pragma once

#include "pdcrt/Status.h"

#include <string>
#include <utility>

namespace pdcrt {

/// Files, flags or programs that contradict each other.
inline Status invalid(const std::string& message, std::string help = {}) {
  return {Exit::invalid, message, std::move(help)};
}

} // namespace pdcrt
