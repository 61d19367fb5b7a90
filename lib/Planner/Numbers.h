// Numbers that the search compares times and loads with.
#pragma once

#include "pdc/Plan/PlannerOptions.h"

#include <cstdint>
#include <limits>

namespace pdc {

/// The time of what does not exist.
inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// What is rejected takes longer than T by more than rounding.
inline constexpr double forgiven = 1 + 1e-9;

/// Ranks of plans that are executed before they are returned, while a user waits.
inline constexpr std::int64_t mostRanksExecuted = 256;

/// Whether plans are executed to find their time. A schedule that does not drain takes what its busiest stage takes, if
/// enough is in flight; batches of very many microbatches would take seconds for each plan.
inline bool executesBatches(const PlannerOptions& options) {
  constexpr std::int64_t mostExecuted = 256;
  return options.schedule->hasBatches && (options.schedule->flushes || options.microbatches <= mostExecuted);
}

} // namespace pdc
