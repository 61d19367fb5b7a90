// Cost model `pipedream-code`: what PipeDream's released optimizer computes (github.com/msr-fiddle/pipedream,
// optimizer/optimizer_graph_hierarchical.py with an activation compression ratio of 1). It differs from both papers.
//
// Activation of a node: the bytes of its tensors; of a node without one (a sink), the bytes that it saves.
//
// States are down-sets of the graph. The first holds the graph's first node only. A step from a state adds a node that
// has a direct predecessor inside, together with all of its ancestors. The last state holds every node. The cut O_I of
// a state I is the sum of the activations of its maximal elements and of every ancestor p of a maximal element a that
// has a consumer which is neither a nor an ancestor of a.
//
// A level of the cluster with M components and bandwidth B splits an interval (I, J] of states into consecutive stages
// (I, X1], (X1, X2] … (Xk, J], each on m components, Σ m = M. With C the time of the interval on one component, W its
// parameter bytes, and M' the count of the level inside (1 for the innermost):
//
//   first stage (I, X1]      (C + 4(m-1)·W/(B·m)/M')/m
//   later stage (X, Y]       max( (C + 4(m-1)·W/(B·m))/m, 2·O_X/(B·m), 2·O_Y/(B·m) unless Y is the last state )
//
// The level's time is that of the slowest stage. C is the sum of the nodes' times at the innermost level, and the
// smallest time of the level inside on all of its components at the others. Levels of one component are skipped; the
// interval of the outermost level begins before the first state. Under a memory limit S each level demands
// ceil((M - u)/m)·(activations + parameters of the stage) ≤ S, with u the components up to and including the stage's.
// S is PlannerOptions::memoryBytes; as in the source there is no limit unless one is asked for. `straight` allows m = 1
// only. Nodes of one colour share a stage, a shared parameter counts with the first of its nodes. Latencies, times of
// updates and whether a tensor has a gradient do not enter.
#pragma once

#include "pdc/Planner/Planner.h"

#include <string>

namespace pdc {

/// The plan with the smallest time. plan.stages are in pipeline order; stage.nest says for every level of more than one
/// component, outermost first, which of the level's stages it is part of and on how many components that one runs;
/// replicas is the product. The model defines no memory or traffic to break ties by: they go to fewer stages on the
/// outermost level, then to the earliest cuts, the last cut first; then the same inside. Where there are many states
/// (CodeSolver.h), among the plans that the search meets.
Expected<Plan> planPipedreamCode(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                                 Diagnostics& diags);

/// What is wrong with `plan` under the model, or nothing. Works from the definition above only.
std::string pipedreamCodeFaultOf(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                                 const Plan& plan);

/// The time of `plan` in ms per minibatch, from the definition above; infinite if the model does not allow its stages.
double pipedreamCodeTimeOf(const CostGraph& graph, const Cluster& cluster, const Plan& plan);

/// The time of one stage on all devices: data parallelism.
double pipedreamCodeDataParallelTimeOf(const CostGraph& graph, const Cluster& cluster);

} // namespace pdc
