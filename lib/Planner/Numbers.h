// Numbers that the search compares times and loads with.
#pragma once

#include <limits>

namespace pdc {

/// The time of what does not exist.
inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// What is rejected takes longer than T by more than rounding.
inline constexpr double forgiven = 1 + 1e-9;

} // namespace pdc
