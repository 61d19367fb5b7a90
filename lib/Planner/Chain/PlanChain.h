// Plans and bounds of chains too long for the search.
#pragma once

#include "Search/Search.h"

namespace pdc {

/// Raises `lowMs`, a lower bound, and offers plans to `incumbent`, which must have one, until they are within 0.1 % of
/// each other or a number of steps is used up. Does nothing unless the graph is a chain, the devices are equal, and
/// the schedule is 1f1b with replicas and warm-up free to choose.
void planChain(const SolverProblem& problem, const PlannerOptions& options, const Machine& machine, double& lowMs,
               Incumbent& incumbent);

} // namespace pdc
