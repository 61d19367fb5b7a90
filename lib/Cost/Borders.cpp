#include "pdc/Cost/Pipeline.h"

#include <algorithm>

using namespace pdc;

bool pdc::bordersAreClean(const CostGraph& graph, const Partition& partition, const std::vector<int>& stageOf) {
  const auto splitOf = [&](std::size_t stage) { return partition.stages[stage].split; };
  std::vector<std::size_t> changes; // the stages that end where the split changes
  for (std::size_t s = 0; s + 1 < partition.stages.size(); ++s)
    if (splitOf(s) != splitOf(s + 1)) changes.push_back(s);
  if (changes.empty()) return true;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t)
    for (std::size_t s : changes)
      for (std::size_t side : {s, s + 1})
        if (!isCleanBorder(graph.in(splitOf(side)).tensors[t],
                           [&](std::int64_t node) { return static_cast<std::size_t>(stageOf[node]) <= s; }))
          return false;
  for (std::size_t p = 0; p < graph.sharedParameters.size(); ++p) {
    const auto& nodes = graph.sharedParameters[p].nodes;
    const auto split = [&](std::int64_t node) { return splitOf(static_cast<std::size_t>(stageOf[node])); };
    const bool isOne =
        std::all_of(nodes.begin(), nodes.end(), [&](std::int64_t node) { return split(node) == split(nodes[0]); });
    const bool isWhole = std::none_of(nodes.begin(), nodes.end(), [&](std::int64_t node) {
      return graph.in(split(node)).sharedParameters[p].isPart;
    });
    if (!isOne && !isWhole) return false;
  }
  return true;
}

std::int64_t pdc::bytesBetween(const CostGraph& graph, std::size_t tensor, int from, int to) {
  return from == to ? graph.in(from).tensors[tensor].bytes : wholeBytes(graph, tensor);
}
