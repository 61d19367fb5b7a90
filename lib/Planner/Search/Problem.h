// The cost graph as the solver of cost model `pdc` sees it: blocks that no plan tears apart, and tensors between them.
//
// What is contracted, and why no optimum is lost:
//
// - Nodes of one colour share a stage by definition.
// - Blocks on a cycle of the graph that colours make share a stage, because stages are ordered and tensors never go
//   backwards (strongly connected parts).
//
// Nothing else is contracted, because it can lose the optimum: in a model that takes the largest of computation and
// communication, moving any work between stages can be worth it, and even a stage of nothing but free nodes can (a
// plan of one stage cannot hide its all-reduce, a plan of two can).
#pragma once

#include "pdc/Plan/CostGraph.h"
#include "pdc/Planner/Order/Dag.h"

#include <optional>

namespace pdc {

/// Sums over the nodes of a block; scratch and workspace are maxima.
struct ProblemBlock {
  std::vector<std::int64_t> nodes; ///< ascending
  double forwardMs = 0, backwardMs = 0, updateMs = 0, lateUpdateMs = 0;
  std::int64_t parameterBytes = 0, frozenBytes = 0, gradientBytes = 0, savedBytes = 0, handoverBytes = 0;
  std::int64_t scratchBytes = 0, workspaceBytes = 0;
};

/// A tensor of the graph that leaves its producer's block.
struct BlockTensor {
  int from = 0;
  std::vector<int> to; ///< blocks, ascending, without the producer's
  std::int64_t bytes = 0;
  std::int64_t crossingBytes = 0; ///< what all members of a receiver get of it, in any split at least
  std::vector<int> gradientFrom;  ///< those of `to` that have a part of its gradient, ascending
  bool inOrder = true;            ///< of any two of these, all parts of the one are added before those of the other

  bool hasGradient() const { return !gradientFrom.empty(); }
};

struct SolverProblem {
  std::vector<ProblemBlock> blocks;
  std::vector<BlockTensor> tensors;
  Dag dag;
  std::vector<int> blockOf; ///< of each node of the graph
  /// Where there are several splits to choose from, of each block the least in any of them: computation both ways, the
  /// same times the members of a team, and their updates, in ms. Else empty.
  std::vector<double> leastMs, leastWorkMs, leastUpdateMs;

  /// Of the graph without the others that it holds.
  static SolverProblem of(const CostGraph& graph);
  /// One for each of its splits. They have the same blocks and tensors.
  static std::vector<SolverProblem> ofSplits(const CostGraph& graph);
};

} // namespace pdc
