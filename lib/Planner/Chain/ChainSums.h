// A chain as sums over its prefixes.
//
// A chain here is a graph with one topological order: every down-set is a prefix, a stage is an interval [i, j) of
// places in the order, and skips are tensors with further users. Times are of a device of the only class.
#pragma once

#include "Search/Problem.h"
#include "pdc/Cost/Machine.h"

namespace pdc {

struct ChainSums {
  ChainSums(const SolverProblem& problem, const PlannerOptions& options, const Machine& machine);

  int n = 0;
  std::vector<int> order;                    ///< the block at each place
  std::vector<double> loopMs, updateMs;      ///< of the first i places: forward and backward; updates
  std::vector<double> parameters, gradients; ///< bytes
  std::vector<double> frozen;                ///< bytes; without those that several nodes use
  std::vector<double> savedBytes;            ///< per minibatch in flight; 0 with recomputation
  std::vector<double> cutBytes;              ///< of the tensors that cross place i, in the busier direction
  std::vector<double> nextBytes;             ///< from place i - 1 to place i, of values whose gradient comes back
  std::vector<double> returnBytes;           ///< of all values that cross place i and whose gradient comes back
  int longestTensor = 0;                     ///< places from its producer to its last user
  bool everyGradientReturns = false;         ///< from each place to the one before

  double behindMs(int i) const { return loopMs[n] - loopMs[i]; }
  /// Bytes that enter the stage [i, j) at i, or leave it at j, as gradients come back: at least so many. No tensor goes
  /// past a stage that is as long as the longest one, so each that crosses one of its borders begins or ends inside.
  double inBytes(int i, int j) const { return j - i >= longestTensor ? returnBytes[i] : nextBytes[i]; }
  double outBytes(int i, int j) const { return j - i >= longestTensor ? returnBytes[j] : nextBytes[j]; }

  double workMs(int i, int j) const { return loopMs[j] - loopMs[i] + updateMs[j] - updateMs[i]; }

  Partition partitionOf(const SolverProblem& problem, const PlannerOptions& options, const std::vector<int>& ends,
                        const std::vector<int>& replicas) const;
};

/// Whether each block but the last is followed by one that needs it.
bool isChain(const SolverProblem& problem);

} // namespace pdc
