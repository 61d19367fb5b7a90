// Better plans near a good one, where the search has no hope to be complete.
#pragma once

#include "Search/Search.h"

namespace pdc {

/// Hill climbing from the best plan, which must be in terms of `states`: moves a cut to a neighbouring state, a replica
/// to another stage, spare devices to a stage, joins neighbours, splits a stage, divides a stage in another way; each
/// plan is evaluated by the cost model. Ends where nothing helps or the incumbent's effort is used up.
void climb(const States& states, const SplitLoads& loads, const PlannerOptions& options, const Machine& machine,
           Incumbent& incumbent);

/// Moves all cuts of a plan at once, each along the topological orders that it is a prefix of and by at most `window`
/// blocks, so that the largest bound of a stage is smallest; replicas stay. A dynamic programme over the cuts.
void shiftCuts(const CostGraph& graph, const std::vector<SolverProblem>& problems, const PlannerOptions& options,
               const Machine& machine, int window, Incumbent& incumbent);

} // namespace pdc
