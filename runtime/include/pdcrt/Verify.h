// The verifier: whether a schedule works for runs of every length.
#pragma once

#include "pdcrt/Machine.h"

#include <cstdint>

namespace pdcrt {

/// Shows that runs of every length work: those shorter than the warm-up, and every drain. Not by executing them all:
///
/// 1. A run of T minibatches is the endless run without some of its actions, and what is left waits for nothing else
///    than before: both ends of a transfer, all parts of an all-reduce, and everything before them in their lanes are
///    left out together, and what a rank does stays in order. So a circle of waits in the run of T is one in every
///    longer run and in the endless one, and so is a broken rule (buffers, versions, order) of a rank.
/// 2. Without a deadlock the endless run, if no forward of a minibatch >= c may start, comes to one definite halt,
///    whatever the order of execution. When the halts for c and for c + P are the same but for P minibatches, all later
///    ones are too, and the endless run never stops.
///
/// So it executes the endless run, a period P = periodMinibatches() at a time, until two halts agree; checks the rules
/// of each rank for as long; and executes an evaluation. On failure it returns the shortest run that fails.
///
/// `proven` says whether the halts agreed within `mostActions`; where not, because replica counts have a large common
/// multiple, what was executed (CheckResult::minibatches) has passed, and nothing more is known.
CheckResult checkEveryDrain(const Schedule& schedule, std::int64_t mostActions = 100'000'000);

} // namespace pdcrt
