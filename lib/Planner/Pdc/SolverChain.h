// Plans of long chains on clusters of several levels, made of stages that fill whole components.
//
// A chain here is a graph with one topological order: every down-set is a prefix, a stage is an interval of nodes, and
// skips are tensors with further users. With n nodes there are n²/2 intervals, which is too many for the search, but
// few of them fit into one component for a given time T, and the links between components are what is scarce. So all
// cuts are tried where they matter, on borders of components, and inside a component stages fill its parts:
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

#include "Pdc/SolverSearch.h"

namespace pdc {

/// Offers such plans to `incumbent`, with times of at least `lowMs`. Does nothing unless the graph is a chain, the
/// devices are equal, the cluster has several levels, and the schedule is 1f1b with replicas free to choose.
void planChain(const SolverProblem& problem, const PlannerOptions& options, const Machine& machine, double lowMs,
               Incumbent& incumbent);

/// A time that no plan of a chain can beat, because minibatches in flight must fit into memory; 0 where nothing is
/// known. In O(n).
///
/// The loop from stage s to the last one holds the computation of s and of all that is behind it, and
/// (w_s + 1)·R_s minibatches are on it at most: T·(w_s + 1)·R_s ≥ behind(s). Each of the w_s + 1 takes at least the
/// weights (where they are stashed) and what is saved of the stage's nodes (without recomputation), slot(s) bytes. So
/// (w_s + 1)·slot(s) ≤ M, and T·R_s ≥ behind(s)·slot(s) / M ≥ Σ_{v in s} behind(v)·slot(v) / M. Only the last stage
/// has no such loop: there T·R ≥ work, and one minibatch must fit. Summed over the stages, for the first node a of the
/// last one, among those from which it fits:
///
///   T·N ≥ min over a of  Σ_{v < a} behind(v)·slot(v) / M  +  work from a on
double chainMemoryBound(const SolverProblem& problem, const PlannerOptions& options, const Machine& machine);

} // namespace pdc
