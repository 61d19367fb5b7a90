#include "Search/Problem.h"

#include <algorithm>
#include <limits>
#include <map>

using namespace pdc;

using Edges = std::vector<std::pair<int, int>>;

/// Gives each node the smallest node of its colour, or itself.
static std::vector<int> mergeColours(const CostGraph& graph) {
  std::map<std::int64_t, int> firstOf;
  std::vector<int> merged;
  for (std::size_t v = 0; v < graph.nodes.size(); ++v) {
    std::int64_t colour = graph.nodes[v].colour;
    auto self = static_cast<int>(v);
    merged.push_back(colour < 0 ? self : firstOf.insert({colour, self}).first->second);
  }
  return merged;
}

/// Renames the groups to 0, 1, … by their smallest node.
static int numberGroups(std::vector<int>& group) {
  std::map<int, int> numbers;
  for (int& g : group) g = numbers.insert({g, static_cast<int>(numbers.size())}).first->second;
  return static_cast<int>(numbers.size());
}

static Edges edgesBetween(const CostGraph& graph, const std::vector<int>& group) {
  Edges edges;
  for (const CostTensor& tensor : graph.tensors)
    for (std::int64_t to : tensor.to)
      if (group[tensor.from] != group[to]) edges.emplace_back(group[tensor.from], group[to]);
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

static std::vector<ProblemBlock> sumBlocks(const CostGraph& graph, const std::vector<int>& group, int groups) {
  std::vector<ProblemBlock> blocks(groups);
  for (std::size_t v = 0; v < graph.nodes.size(); ++v) {
    const CostNode& node = graph.nodes[v];
    ProblemBlock& block = blocks[group[v]];
    block.nodes.push_back(static_cast<std::int64_t>(v));
    block.forwardMs += node.forwardMs;
    block.backwardMs += node.inputGradientMs + node.weightGradientMs;
    block.updateMs += node.updateMs;
    block.lateUpdateMs += node.lateUpdateMs;
    block.parameterBytes += node.parameterBytes;
    block.frozenBytes += node.frozenBytes;
    block.gradientBytes += node.gradientBytes;
    block.savedBytes += node.savedBytes;
    block.handoverBytes += node.handoverBytes;
    block.scratchBytes = std::max(block.scratchBytes, node.scratchBytes);
    block.workspaceBytes = std::max(block.workspaceBytes, node.workspaceBytes);
  }
  return blocks;
}

/// The groups of `nodes` but `from`, ascending.
static std::vector<int> othersOf(std::span<const std::int64_t> nodes, const std::vector<int>& group, int from) {
  std::vector<int> others;
  for (std::int64_t node : nodes)
    if (group[node] != from) others.push_back(group[node]);
  std::sort(others.begin(), others.end());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  return others;
}

SolverProblem SolverProblem::of(const CostGraph& graph) {
  SolverProblem problem;
  std::vector<int>& group = problem.blockOf;
  group = mergeColours(graph);
  int groups = numberGroups(group);
  std::vector<int> component = strongComponents(groups, edgesBetween(graph, group));
  for (int& g : group) g = component[g];
  groups = numberGroups(group);

  problem.blocks = sumBlocks(graph, group, groups);
  problem.dag = *Dag::make(groups, edgesBetween(graph, group));
  for (const CostTensor& tensor : graph.tensors) {
    BlockTensor own{.from = group[tensor.from],
                    .to = {},
                    .bytes = tensor.bytes,
                    .crossingBytes = tensor.bytes,
                    .gradientFrom = {},
                    .inOrder = true};
    own.to = othersOf(tensor.to, group, own.from);
    own.gradientFrom = othersOf(tensor.gradientUsers(), group, own.from);
    int last = -1;
    for (std::int64_t node : tensor.gradientUsers()) {
      own.inOrder = own.inOrder && group[node] >= last;
      last = group[node];
    }
    if (!own.to.empty()) problem.tensors.push_back(std::move(own));
  }
  return problem;
}

std::vector<SolverProblem> SolverProblem::ofSplits(const CostGraph& graph) {
  std::vector<SolverProblem> problems;
  for (int split = 0; split < graph.splits(); ++split) problems.push_back(of(graph.in(split)));
  if (problems.size() == 1 && graph.split.isNone()) return problems;
  const auto members = [&](std::size_t split) { return graph.in(static_cast<int>(split)).split.members; };
  std::vector<double> leastMs, leastWorkMs, leastUpdateMs;
  for (std::size_t v = 0; v < problems[0].blocks.size(); ++v) {
    double ms = std::numeric_limits<double>::infinity(), workMs = ms, updateMs = ms;
    for (std::size_t k = 0; k < problems.size(); ++k) {
      const ProblemBlock& block = problems[k].blocks[v];
      const double own = block.forwardMs + block.backwardMs;
      ms = std::min(ms, own);
      workMs = std::min(workMs, members(k) * own);
      updateMs = std::min(updateMs, members(k) * block.updateMs);
    }
    leastMs.push_back(ms);
    leastWorkMs.push_back(workMs);
    leastUpdateMs.push_back(updateMs);
  }
  std::vector<std::int64_t> leastBytes;
  for (std::size_t t = 0; t < problems[0].tensors.size(); ++t) {
    std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
    for (std::size_t k = 0; k < problems.size(); ++k)
      bytes = std::min({bytes, members(k) * problems[k].tensors[t].bytes, problems[k].tensors[t].crossingBytes});
    leastBytes.push_back(bytes);
  }
  for (SolverProblem& problem : problems) {
    problem.leastMs = leastMs;
    problem.leastWorkMs = leastWorkMs;
    problem.leastUpdateMs = leastUpdateMs;
    for (std::size_t t = 0; t < leastBytes.size(); ++t) problem.tensors[t].crossingBytes = leastBytes[t];
  }
  return problems;
}
