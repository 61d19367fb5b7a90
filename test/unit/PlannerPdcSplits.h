// The same random problems with several splits to choose from.
#pragma once

#include "PlannerPdcInstances.h"

namespace pdc {

/// Adds graphs of one to `most` other splits. Members take less time, rarely a share of it exactly; some parameters are
/// divided, a half to a quarter of the tensors come in parts, and some cannot cross to another split.
class RandomSplits {
public:
  explicit RandomSplits(std::uint64_t seed) : random_(seed) {}

  void divide(CostGraph& graph, std::int64_t most) {
    static const std::vector<TeamSplit> offered = {
        {.members = 2}, {.members = 2, .tokens = true}, {.members = 3}, {.members = 4}};
    const std::int64_t splits = between(1, most);
    std::vector<TeamSplit> chosen;
    for (std::int64_t i = 0; i < splits; ++i) {
      const TeamSplit& split = offered[static_cast<std::size_t>(between(0, 9) < 6 ? i % 2 : between(2, 3))];
      if (std::find(chosen.begin(), chosen.end(), split) == chosen.end()) chosen.push_back(split);
    }
    std::vector<CostGraph> divided;
    for (const TeamSplit& split : chosen) divided.push_back(ofMember(graph, split));
    graph.divided = std::move(divided);
  }

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }

private:
  CostGraph ofMember(const CostGraph& whole, const TeamSplit& split) {
    CostGraph graph = whole;
    graph.split = split;
    const std::int64_t wholeTensors = between(1, 3);
    for (CostNode& node : graph.nodes) {
      const double share = between(0, 3) == 0 ? 1 : 1.0 / split.members;
      for (double CostNode::*time :
           {&CostNode::forwardMs, &CostNode::inputGradientMs, &CostNode::weightGradientMs, &CostNode::updateMs})
        node.*time *= share;
      node.forwardTeamMs = static_cast<double>(between(0, 4)) / 8;
      node.forwardMs += node.forwardTeamMs;
      if (share == 1) continue;
      for (std::int64_t CostNode::*bytes :
           {&CostNode::parameterBytes, &CostNode::gradientBytes, &CostNode::savedBytes, &CostNode::handoverBytes})
        node.*bytes /= split.members;
    }
    for (CostTensor& tensor : graph.tensors) {
      tensor.isPart = between(0, wholeTensors) == 0;
      tensor.hasTerms = between(0, 2 * wholeTensors) == 0;
      tensor.isOwn = between(0, 3 * wholeTensors) == 0;
      if (tensor.isPart) tensor.bytes = (tensor.bytes + split.members - 1) / split.members;
    }
    for (CostSharedParameter& shared : graph.sharedParameters) {
      shared.isPart = between(0, 1) == 0;
      if (shared.isPart) shared.bytes = (shared.bytes + split.members - 1) / split.members;
    }
    return graph;
  }

  std::mt19937_64 random_;
};

} // namespace pdc
