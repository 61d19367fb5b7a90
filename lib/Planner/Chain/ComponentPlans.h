// Plans of long chains on clusters of several levels, made of stages that fill whole components.
//
// With n nodes there are n²/2 intervals, which is too many for the search, but few of them fit into one component for a
// given time T, and the links between components are what is scarce. So all cuts are tried where they matter, on
// borders of components, and inside a component stages fill its parts:
//
//   hosts(0, i)  the ends j for which the interval [i, j) can be one stage on one device
//   hosts(k, i)  those for which one component of level k can host [i, j): as one stage on all of its devices, or as a
//                chain of intervals that its parts host, the fewest parts first; in both cases what enters and leaves
//                [i, j) passes over the component's link in time T
//
// The whole chain then needs the fewest components of the outermost level, or one stage on several of them. T is
// bisected. What is left over of a component goes to the stage with the most computation per replica.
//
// These are plans, not bounds: T counts neither latencies of transfers nor loops exactly. Every plan is evaluated by
// the cost model, which alone decides.
//
// Complexity of one T: O(n·l_k·d) on each level, l_k the nodes that fit into a component of the level, d the ends that
// one of its parts hosts; counted in steps and given up where there are too many.
#pragma once

#include "Search/Search.h"

namespace pdc {

/// Offers such plans to `incumbent`, with times of at least `lowMs`, for a chain on equal devices and several levels.
void planComponents(const SolverProblem& problem, const PlannerOptions& options, const Machine& machine, double lowMs,
                    Incumbent& incumbent);

} // namespace pdc
