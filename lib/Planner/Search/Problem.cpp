#include "Search/Problem.h"

#include <algorithm>
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
    BlockTensor own{group[tensor.from], {}, tensor.bytes, {}, true};
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
