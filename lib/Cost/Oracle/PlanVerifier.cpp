#include "pdc/Cost/PlanVerifier.h"

#include "Oracle/Definition.h"

#include <cmath>
#include <set>

using namespace pdc;

/// What is wrong with the stages' nodes; empty if nothing is.
static std::string verifyStages(const CostGraph& graph, const Plan& plan) {
  std::map<std::int64_t, int> stageOf;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (plan.stages[s].nodes.empty()) return "stage " + std::to_string(s) + " is empty";
    for (std::int64_t node : plan.stages[s].nodes)
      if (!stageOf.insert({node, static_cast<int>(s)}).second)
        return "node " + std::to_string(node) + " is in two stages";
  }
  std::map<std::int64_t, int> colours;
  for (std::int64_t v = 0; v < static_cast<std::int64_t>(graph.nodes.size()); ++v) {
    if (!stageOf.count(v)) return "node " + std::to_string(v) + " is in no stage";
    std::int64_t colour = graph.nodes[v].colour;
    if (colour >= 0 && colours.insert({colour, stageOf[v]}).first->second != stageOf[v])
      return "colour " + std::to_string(colour) + " is in two stages";
  }
  if (stageOf.size() != graph.nodes.size()) return "a stage holds a node that the graph does not have";
  for (const CostTensor& tensor : graph.tensors)
    for (std::int64_t to : tensor.to)
      if (stageOf[to] < stageOf[tensor.from]) return "tensor '" + tensor.name + "' goes to an earlier stage";
  return {};
}

static std::string verifyRanks(const Plan& plan) {
  std::set<std::int64_t> devices;
  std::set<std::pair<int, int>> hosted;
  for (const PlanRank& rank : plan.ranks) {
    const auto members = static_cast<std::int64_t>(membersOf(plan, rank));
    if (static_cast<std::int64_t>(rank.devices.size()) != members)
      return "rank " + std::to_string(rank.rank) + " does not have " +
             (members == 1 ? std::string("one device") : std::to_string(members) + " devices");
    const std::int64_t machine = plan.cluster.levels.empty() ? 1 : plan.cluster.levels[0].count;
    for (std::size_t i = 1; i < rank.devices.size(); ++i)
      if (rank.devices[i] != rank.devices[0] + static_cast<std::int64_t>(i) ||
          rank.devices[i] / machine != rank.devices[0] / machine)
        return "the team of rank " + std::to_string(rank.rank) + " is not of neighbours on one machine";
    for (std::int64_t device : rank.devices)
      if (device < 0 || device >= plan.cluster.deviceCount() || !devices.insert(device).second)
        return "device " + std::to_string(device) + " does not exist or is used twice";
    for (const PlanRank::Host& host : rank.hosts) {
      auto stage = static_cast<std::size_t>(host.stage);
      if (host.stage < 0 || stage >= plan.stages.size() || host.replica < 0 ||
          host.replica >= plan.stages[stage].replicas)
        return "rank " + std::to_string(rank.rank) + " hosts a replica that does not exist";
      hosted.insert({host.stage, host.replica});
    }
  }
  std::size_t replicas = 0;
  for (const PlanStage& stage : plan.stages) replicas += static_cast<std::size_t>(stage.replicas);
  if (hosted.size() != replicas)
    return "the ranks host " + std::to_string(hosted.size()) + " replicas, not " + std::to_string(replicas);
  return {};
}

PlanCost pdc::evaluateByDefinition(const CostGraph& graph, const Plan& plan, const PlannerOptions& options) {
  return Definition(graph, plan, options).evaluate();
}

std::string pdc::verifyPlan(const CostGraph& graph, const Plan& plan, const PlannerOptions& options) {
  if (std::string problem = verifyStages(graph, plan); !problem.empty()) return problem;
  if (std::string problem = verifyRanks(plan); !problem.empty()) return problem;
  Definition definition(graph, plan, options);
  std::vector<int> warmup;
  for (const PlanStage& stage : plan.stages) warmup.push_back(stage.warmup);
  for (int s = 0; s < static_cast<int>(plan.stages.size()); ++s) {
    std::int64_t bytes = definition.memory(s, warmup);
    if (bytes != plan.stages[s].memoryBytes)
      return "stage " + std::to_string(s) + " takes " + std::to_string(bytes) + " bytes, the plan says " +
             std::to_string(plan.stages[s].memoryBytes);
  }
  for (const PlanRank& rank : plan.ranks) {
    std::int64_t bytes = 0, limit = definition.memoryLimit(rank.hosts[0].stage);
    for (const PlanRank::Host& host : rank.hosts) bytes += plan.stages[host.stage].memoryBytes;
    if (bytes > limit)
      return "rank " + std::to_string(rank.rank) + " takes " + std::to_string(bytes) + " bytes, more than the " +
             std::to_string(limit) + " that its device has";
  }
  if (plan.schedule->hasBatches) return {};
  PlanCost cost = definition.evaluate();
  if (!std::isfinite(cost.timeMs)) return "the warm-up is not legal";
  // The plan may state a time that the simulator corrected upwards, but never a better one than the definition's.
  if (plan.timeMs < cost.timeMs * (1 - 1e-9))
    return "the time is " + std::to_string(cost.timeMs) + " ms, the plan says " + std::to_string(plan.timeMs);
  return {};
}
