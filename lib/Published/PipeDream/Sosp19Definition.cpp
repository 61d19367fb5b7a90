// The recurrences of Sosp19.h, evaluated on a given plan. Shares nothing with the solver.
#include "PipeDream/Sosp19.h"

#include <algorithm>
#include <limits>
#include <map>

using namespace pdc;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

class Evaluation {
public:
  Evaluation(const CostGraph& graph, const Cluster& cluster, const Plan& plan)
      : graph_(graph), cluster_(cluster), plan_(plan), stageOf_(graph.nodes.size(), -1) {}

  double time() {
    if (!assignNodes() || !stagesAreContiguous()) return infinite;
    addUpCrossings();
    return optimumOf(0, plan_.stages.size(), 0);
  }

private:
  bool assignNodes() {
    std::size_t assigned = 0;
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      const PlanStage& stage = plan_.stages[s];
      if (stage.nodes.empty() || stage.nest.size() != cluster_.levels.size()) return false;
      for (std::int64_t v : stage.nodes) {
        if (v < 0 || v >= static_cast<std::int64_t>(stageOf_.size()) || stageOf_[v] >= 0) return false;
        stageOf_[v] = static_cast<int>(s);
        ++assigned;
      }
    }
    return assigned == stageOf_.size();
  }

  bool stagesAreContiguous() const {
    for (const CostTensor& tensor : graph_.tensors)
      for (std::int64_t user : tensor.to)
        if (stageOf_[user] < stageOf_[tensor.from]) return false;
    std::map<std::int64_t, int> stageOfColour;
    for (std::size_t v = 0; v < stageOf_.size(); ++v) {
      std::int64_t colour = graph_.nodes[v].colour;
      if (colour >= 0 && stageOfColour.emplace(colour, stageOf_[v]).first->second != stageOf_[v]) return false;
    }
    return true;
  }

  /// A^k of the plan's stages first … last-1, k = levels - depth, on all components of the level.
  double optimumOf(std::size_t first, std::size_t last, std::size_t depth) const {
    if (depth == cluster_.levels.size()) return last == first + 1 ? computeOf(first) : infinite;
    const ClusterLevel& level = cluster_.levels[cluster_.levels.size() - 1 - depth];
    double time = 0;
    std::int64_t used = 0;
    int number = 0;
    for (std::size_t begin = first; begin < last; ++number) {
      PlanNest nest = plan_.stages[begin].nest[depth];
      if (nest.stage != number || nest.replicas < 1) return infinite;
      std::size_t end = begin;
      for (; end < last && plan_.stages[end].nest[depth].stage == number; ++end)
        if (plan_.stages[end].nest[depth].replicas != nest.replicas) return infinite;
      time = std::max(time, stageTime(begin, end, depth, level, nest.replicas));
      if (end < last)
        time = std::max(time, 1e3 * 2 * static_cast<double>(bytesAcross_[end]) / level.bandwidthBytesPerS);
      used += nest.replicas;
      begin = end;
    }
    return used == level.count ? time : infinite;
  }

  /// T^k
  double stageTime(std::size_t begin, std::size_t end, std::size_t depth, const ClusterLevel& level, double m) const {
    double inner = optimumOf(begin, end, depth + 1);
    if (m == 1) return inner;
    double factor = plan_.costModel == "pipedream-2018" ? 4 * (m - 1) / m : 2 * (m - 1);
    return std::max(inner, 1e3 * factor * parametersOf(begin, end) / level.bandwidthBytesPerS) / m;
  }

  double computeOf(std::size_t s) const {
    double sum = 0;
    for (std::int64_t v : plan_.stages[s].nodes) {
      const CostNode& node = graph_.nodes[v];
      sum += node.forwardMs + node.inputGradientMs + node.weightGradientMs;
    }
    return sum / cluster_.deviceAt(0).speed;
  }

  double parametersOf(std::size_t begin, std::size_t end) const {
    auto isInside = [&](std::int64_t v) {
      return stageOf_[v] >= static_cast<int>(begin) && stageOf_[v] < static_cast<int>(end);
    };
    std::int64_t sum = 0;
    for (std::size_t s = begin; s < end; ++s)
      for (std::int64_t v : plan_.stages[s].nodes) sum += graph_.nodes[v].parameterBytes;
    for (const CostSharedParameter& shared : graph_.sharedParameters)
      if (!shared.nodes.empty() && isInside(shared.nodes.front())) sum += shared.bytes;
    return static_cast<double>(sum);
  }

  /// For each stage the bytes of the tensors that are made before it and used in it or later.
  void addUpCrossings() {
    bytesAcross_.assign(plan_.stages.size(), 0);
    for (const CostTensor& tensor : graph_.tensors) {
      int last = stageOf_[tensor.from];
      for (std::int64_t user : tensor.to) last = std::max(last, stageOf_[user]);
      for (int s = stageOf_[tensor.from] + 1; s <= last; ++s) bytesAcross_[s] += tensor.bytes;
    }
  }

  const CostGraph& graph_;
  const Cluster& cluster_;
  const Plan& plan_;
  std::vector<int> stageOf_;
  std::vector<std::int64_t> bytesAcross_;
};

} // namespace

double pdc::sosp19TimeOf(const CostGraph& graph, const Cluster& cluster, const Plan& plan) {
  return Evaluation(graph, cluster, plan).time();
}
