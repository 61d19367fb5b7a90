#include "pdc/Cost/Crossings.h"

#include "pdc/Cost/Pipeline.h"
#include "pdc/Plan/GradientTrips.h"

#include <map>

using namespace pdc;

/// How many of `nodes` each stage holds.
static std::map<int, int> stagesOf(std::span<const std::int64_t> nodes, const std::vector<int>& stageOf) {
  std::map<int, int> stages;
  for (std::int64_t node : nodes) ++stages[stageOf[static_cast<std::size_t>(node)]];
  return stages;
}

std::string pdc::nameOfTensor(const CostGraph& graph, std::size_t tensor) {
  const std::string& name = graph.tensors[tensor].name;
  return name.empty() ? "tensor" + std::to_string(tensor) : name;
}

void pdc::describeCrossings(const CostGraph& graph, Plan& plan) {
  std::vector<int> stageOf(graph.nodes.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (std::int64_t v : plan.stages[s].nodes) stageOf[static_cast<std::size_t>(v)] = static_cast<int>(s);
  const auto stageAt = [&](std::int64_t node) { return stageOf[static_cast<std::size_t>(node)]; };
  std::vector<PlanGradient> gradients;
  bool alongStages = true; // from each that has a part of a gradient to the one before that has
  std::vector<int> splitOf;
  for (const PlanStage& stage : plan.stages) {
    int number = graph.splits() - 1;
    while (number > 0 && graph.in(number).split != stage.split) --number;
    splitOf.push_back(number);
  }
  const auto bytesFrom = [&](std::size_t tensor, int from, int to) {
    return bytesBetween(graph, tensor, splitOf[static_cast<std::size_t>(from)], splitOf[static_cast<std::size_t>(to)]);
  };
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const CostTensor& tensor = graph.tensors[i];
    const int from = stageAt(tensor.from);
    const std::string name = nameOfTensor(graph, i);
    const std::map<int, int> giving = stagesOf(tensor.gradientUsers(), stageOf);
    for (auto [to, users] : stagesOf(tensor.to, stageOf))
      if (to != from) plan.tensors.push_back({name, from, to, bytesFrom(i, from, to), giving.contains(to)});
    std::map<int, int> sent; // where each stage sends a part
    forEachGradientTrip(from, tensor.gradientUsers(), stageAt, [&](int later, int earlier) {
      gradients.push_back({name, later, earlier, bytesFrom(i, later, earlier)});
      const bool isFirst = sent.emplace(later, earlier).second;
      alongStages = alongStages && isFirst && bytesFrom(i, later, earlier) == bytesFrom(i, from, later);
    });
    int before = from;
    for (auto [later, earlier] : sent) {
      alongStages = alongStages && earlier == before;
      before = later;
    }
  }
  if (!alongStages) plan.gradients = std::move(gradients);
  for (const CostSharedParameter& parameter : graph.sharedParameters) {
    std::map<int, int> users = stagesOf(parameter.nodes, stageOf);
    if (users.size() < 2) continue;
    const auto number = static_cast<std::size_t>(&parameter - graph.sharedParameters.data());
    const int owner = splitOf[static_cast<std::size_t>(users.begin()->first)];
    const std::int64_t bytes = graph.in(owner).sharedParameters[number].bytes;
    PlanSharedParameter shared{parameter.name, bytes, {}, {}};
    for (auto [user, uses] : users) {
      shared.stages.push_back(user);
      shared.uses.push_back(uses);
    }
    plan.sharedParameters.push_back(std::move(shared));
  }
}
