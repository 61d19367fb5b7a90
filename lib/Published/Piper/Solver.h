// The plan with the smallest largest TPS (cost model `piper`, Piper/Definition.h), with a certificate.
//
// States are down-sets I: the nodes of the stages that are not formed yet. A label (D, K) of a state says that stages
// for the other nodes, all with TPS <= τ, have data-parallel degrees adding up to D and use K devices. The search
// begins with all nodes and (0, 0), and splits the last stage J ∖ I off, with degrees (d, t), which then keeps
// y = 1 + ceil(D/d) samples in flight. A label is dropped if another one of its state has no larger D and no larger K:
// every continuation of the one is a continuation of the other, with no larger y, so no more memory.
//
// Given τ, state J, label, I and t, only the smallest d matters for which some choices fit and reach τ:
//   - for fixed choices TPS(d) = R + (X - R)/d (R = Σ 4w/(N·B), X = Σ p + cuts) is monotone in d and y is not
//     increasing in d, so the d that are valid for these choices form an interval, whose smallest member gives a label
//     that beats those of the others;
//   - the smallest over all choices beats the rest in the same way.
// For each d the largest y that reaches τ is found by bisection, as the knapsack's optimum does not fall with y. So the
// d form a staircase "d serves labels with D <= d·(y_d - 1)", computed once per (J, I, t) and read by all labels.
//
// Certificate: a run that finds a plan returns its real bottleneck, an upper bound. One that finds none returns the
// smallest value > τ that it compared with τ and found too large (TPS of stages, and the threshold from which the bound
// "devices used + work left/τ <= k" would not have pruned): up to there every comparison has the same outcome, so no
// threshold below it admits a plan. Galloping and bisection end when the bounds meet; no epsilon.
//
// Ties: at the optimal τ the memory limit is bisected, for the least peak memory; then labels (D, K, bytes moved per
// sample) give the plan that moves the fewest bytes, then uses the fewest devices, then has the earliest cuts. (A node
// whose choices differ in synchronised bytes or parameters counts with those of its fastest choice. If a state gets too
// many such labels, the plan with the fewest devices is taken.)
//
// Complexity of one run: Σ over pairs of nested down-sets and t of (labels + degrees·log y) plus the knapsacks, which
// are computed once for all τ. Devices and samples in flight are no dimension of a table.
#pragma once

#include "Piper/Instance.h"
#include "pdc/Planner/Order/NodeSet.h"

namespace pdc {

struct PiperStage {
  NodeSet nodes;
  std::size_t degree = 0; ///< index into instance.tensorDegrees
  std::int64_t d = 1, y = 1;
};

struct PiperSolution {
  std::vector<PiperStage> stages;
  double tps = 0;        ///< largest of the stages, for the choices that the menus make within `memory`
  double lowerBound = 0; ///< of any plan's; equal to `tps` if proven optimal
  double memory = 0;     ///< limit within which the choices of the stages are made
  std::int64_t devices = 0;
};

struct PiperSearchOptions {
  double timeLimitS = 0;         ///< if positive; a first plan is always found
  std::size_t mostStates = 2048; ///< with more down-sets, only those of a few topological orders are tried
};

/// Nothing if no plan is feasible, or none was found and the search was not exhaustive: only with too many down-sets.
std::optional<PiperSolution> solvePiper(const PiperInstance& instance, const PiperSearchOptions& options,
                                        bool* isExhaustive = nullptr);

/// The fewest of the instance's devices on which there is a plan of any speed; nothing if there is none.
std::optional<std::int64_t> fewestPiperDevices(const PiperInstance& instance, const PiperSearchOptions& options);

/// The smallest memory within which there is a plan of any speed, rounded up to whole bytes.
std::optional<double> leastPiperMemory(const PiperInstance& instance, const PiperSearchOptions& options);

} // namespace pdc
