// Cost model `piper`, straight from its definition (Tarnawski et al., "Piper: Multidimensional Planner for DNN
// Parallelization", NeurIPS 2021, and the program released with it). Shares only records with the solver.
//
// A plan is a chain of stages; stage i has data-parallel degree d, tensor-parallel degree t, and for each of its nodes
// v one of the node's choices for t, with time p(v), parameters w(v), memory a(v)·y + b(v), and the bytes sync(v, e)
// that the choice adds to edge e when that is cut. With B the bandwidth and N the microbatches of a batch:
//
//   TPS(i)    = ( edgeBytes/d + Σ_v 4(d-1)·w(v)/(d·N) ) / B + Σ_v p(v) / d
//   edgeBytes = Σ 2·( bytes(e) + sync(v, e) ) over the nodes v of the stage and their edges e from or to other stages,
//               sync = syncForward of the edge's head, syncBackward of its tail, each in the head's or tail's own stage
//   memory(i) = Σ_v a(v)·y + b(v) <= M,   y = ceil( Σ d of this and all later stages / d )
//   Σ d·t <= k,   Σ d <= N,   every d divides N (as the released program demands)
//
// Edges go from a stage to itself or to a later one. The objective is the largest TPS.
#pragma once

#include "pdc/Plan/Plan.h"
#include "pdc/Published/Piper.h"

#include <string>
#include <vector>

namespace pdc {

struct PiperStageCost {
  double compute = 0;     ///< Σ p, the file's unit of time, not divided by d
  double edgeBytes = 0;   ///< not divided by d
  double resyncBytes = 0; ///< Σ 4(d-1)·w/(d·N)
  double tps = 0;
  double memoryBytes = 0;
  std::int64_t inFlight = 0; ///< y
};

/// Of every stage of a plan whose stages name existing nodes, degrees and choices (see piperPlanErrors).
std::vector<PiperStageCost> piperStageCosts(const PiperProblem& problem, const Plan& plan);

/// The largest TPS of the plan's stages; infinite if piperPlanErrors finds anything but a wrong `timeMs`.
double piperTimeOf(const PiperProblem& problem, const Plan& plan);

/// What is wrong with a plan: nodes missing or in two stages, edges that go backwards, degrees or choices that do not
/// exist, too many devices or replicas, memory over problem.memoryBytes, or a `timeMs` that is not the definition's
/// (relative 1e-12). Empty if nothing is.
std::string piperPlanErrors(const PiperProblem& problem, const Plan& plan);

} // namespace pdc
