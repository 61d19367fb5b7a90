#include "Chain/ChainSums.h"

#include <algorithm>

using namespace pdc;

bool pdc::isChain(const SolverProblem& problem) {
  const std::vector<int>& order = problem.dag.order();
  for (std::size_t v = 0; v + 1 < order.size(); ++v) {
    const std::vector<int>& next = problem.dag.successors(order[v]);
    if (std::find(next.begin(), next.end(), order[v + 1]) == next.end()) return false;
  }
  return true;
}

ChainSums::ChainSums(const SolverProblem& problem, const PlannerOptions& options, const Machine& machine)
    : n(static_cast<int>(problem.blocks.size())), order(problem.dag.order()) {
  double speed = machine.classes()[0].speed;
  bool recompute = options.recompute == RecomputePolicy::all;
  for (std::vector<double>* sum : {&loopMs, &updateMs, &parameters, &gradients, &frozen, &savedBytes})
    sum->assign(1, 0);
  std::vector<int> place(order.size());
  for (int i = 0; i < n; ++i) {
    const ProblemBlock& block = problem.blocks[order[i]];
    place[order[i]] = i;
    loopMs.push_back(loopMs.back() + ((recompute ? 2 : 1) * block.forwardMs + block.backwardMs) / speed);
    updateMs.push_back(updateMs.back() + options.leastUpdateMs(block.updateMs) / speed);
    parameters.push_back(parameters.back() + static_cast<double>(block.parameterBytes));
    gradients.push_back(gradients.back() + static_cast<double>(block.gradientBytes));
    frozen.push_back(frozen.back() + static_cast<double>(block.frozenBytes));
    savedBytes.push_back(savedBytes.back() +
                         (options.recompute == RecomputePolicy::none ? static_cast<double>(block.savedBytes) : 0));
  }
  cutBytes.assign(static_cast<std::size_t>(n) + 1, 0);
  nextBytes.assign(cutBytes.size(), 0);
  returnBytes.assign(cutBytes.size(), 0);
  std::vector<char> returns(cutBytes.size(), 0);
  for (const BlockTensor& tensor : problem.tensors) {
    int from = place[tensor.from], last = from;
    for (int to : tensor.to) last = std::max(last, place[to]);
    if (last == from) continue;
    // Differences of neighbours, summed below: it crosses the places from + 1 … last.
    cutBytes[from + 1] += static_cast<double>(tensor.bytes);
    cutBytes[last + 1] -= static_cast<double>(tensor.bytes);
    longestTensor = std::max(longestTensor, last - from);
    if (!tensor.hasGradient()) continue;
    last = from; // that has a part of the gradient
    for (int part : tensor.gradientFrom) {
      last = std::max(last, place[part]);
      if (place[part] != from + 1) continue;
      nextBytes[from + 1] += static_cast<double>(tensor.bytes);
      returns[from + 1] = 1;
    }
    returnBytes[from + 1] += static_cast<double>(tensor.bytes);
    returnBytes[last + 1] -= static_cast<double>(tensor.bytes);
  }
  for (int i = 1; i <= n; ++i) {
    cutBytes[i] += cutBytes[i - 1];
    returnBytes[i] += returnBytes[i - 1];
  }
  cutBytes[n] = returnBytes[n] = 0;
  everyGradientReturns = std::count(returns.begin(), returns.end(), 1) + 1 == n;
}

Partition ChainSums::partitionOf(const SolverProblem& problem, const PlannerOptions& options,
                                 const std::vector<int>& ends, const std::vector<int>& replicas) const {
  Partition partition;
  int at = 0;
  for (std::size_t s = 0; s < ends.size(); ++s) {
    PartitionStage stage{{}, replicas[s], options.recompute == RecomputePolicy::all, {}};
    for (; at < ends[s]; ++at) {
      const std::vector<std::int64_t>& nodes = problem.blocks[order[at]].nodes;
      stage.nodes.insert(stage.nodes.end(), nodes.begin(), nodes.end());
    }
    std::sort(stage.nodes.begin(), stage.nodes.end());
    partition.stages.push_back(std::move(stage));
  }
  return partition;
}
