// Lower bounds of the time of every plan of a long chain.
//
// FewestLeaves relaxes the problem for a fixed time T: need(j) is a number of leaves that every plan as fast as T takes
// for the places before j, if it cuts there,
//
//   need(0) = 0,   need(j) = min over i < j of end(i, j, need(i))
//
// where end(i, j, o) is the first leaf behind the stage [i, j) if it may begin at any leaf from o on (leaves may stay
// unused) and is charged only for what it takes wherever the others are:
//
//   computation   work ≤ T·R
//   all-reduce    sync ≤ T·R, over links of the levels that [begin, begin + R) spans (what a backward hides of it is
//   not asked) device link   values in and gradients of those out, and all-reduce ≤ T·R·bandwidth components    the
//   link of each that the stage fills, of which one of P leaves is among any 2P - 1 memory        the loop from the
//   stage to the last one holds all computation behind its begin, and at most
//                 (w + 1)·R minibatches: (w + 1)·R·T ≥ behind(i), for a warm-up w that fits into memory
//
// Proof: let a plan be as fast as T and stage s of it be [i, j) on [o_s, o_s + R). If need(i) ≤ o_s, then [o_s, o_s +
// R) is one of the placements over which end(i, j, need(i)) is minimal, so need(j) ≤ o_s + R; need(0) ≤ 0 begins the
// induction. Each term bounds one of pdc/Planner/CostModel.h from below. So T with need(n) > devices has no plan. For
// each span (one device, server, rack …) the fewest replicas that do are found by bisection, the terms falling with R
// from two on between the numbers at which a component must be filled; more replicas end later, so only the fewest
// matter.
//
// Complexity of one T: O(n·l) pairs, l the places of the longest stage of which one minibatch fits into memory; two
// multiplications rule out nearly all of them (computation, memory).
#pragma once

#include "Chain/ChainSums.h"

#include <cstdint>

namespace pdc {

class FewestLeaves {
public:
  FewestLeaves(const ChainSums& sums, const PlannerOptions& options, const Machine& machine);

  /// Leaves that every plan as fast as `timeMs` takes; infinity if more than twice the cluster's. If there are fewer in
  /// the cluster, every plan takes longer.
  double need(double timeMs);

protected:
  struct Stage {
    int from = 0, to = 0;
    double workMs = 0, parameters = 0, gradients = 0, frozen = 0, slotBytes = 0, in = 0, out = 0;
  };
  double endOf(const Stage& stage, double begin, double before) const;
  bool isFastEnough(const Stage& stage, int span, int replicas) const;
  int fewest(const Stage& stage, int span, int least, int most) const;
  void improve(int i, int j);
  double leastBytes(int i, int j) const;

  const ChainSums& sums_;
  const PlannerOptions& options_;
  const Machine& machine_;
  int devices_ = 0, levels_ = 0;
  bool overlaps_ = true, stashes_ = true;
  double limitBytes_ = 0, timeMs_ = 0;
  std::vector<double> slots_, work_, need_, behindShare_;
};

/// Whether the bounds hold for a graph: it is a chain on equal devices, under 1f1b with the warm-up of `hide`.
bool isBoundable(const SolverProblem& problem, const PlannerOptions& options, const Machine& machine);

/// Raises `lowMs`, a lower bound, as far as FewestLeaves proves but for 0.1 %, not above `highMs`, the time of a plan.
/// Returns it as it is where a gradient does not come back from place to place, or the chain is very long.
double chainBound(const ChainSums& sums, const PlannerOptions& options, const Machine& machine, double lowMs,
                  double highMs);

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
