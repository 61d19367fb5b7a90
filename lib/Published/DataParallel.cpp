#include "pdc/Published/DataParallel.h"

#include "PipeDream/Code.h"
#include "PipeDream/Sosp19.h"
#include "pdc/Cost/CostModel.h"
#include "pdc/Planner/OptionText.h"

#include <cmath>
#include <numeric>

using namespace pdc;

static std::vector<std::int64_t> allNodes(const CostGraph& graph) {
  std::vector<std::int64_t> nodes(graph.nodes.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  return nodes;
}

static double sosp19Time(const CostGraph& graph, const Cluster& cluster, const std::string& costModel) {
  Plan plan;
  plan.costModel = costModel;
  PlanStage stage;
  stage.nodes = allNodes(graph);
  stage.replicas = static_cast<int>(cluster.deviceCount());
  for (auto level = cluster.levels.rbegin(); level != cluster.levels.rend(); ++level)
    stage.nest.push_back({0, static_cast<int>(level->count)});
  plan.stages.push_back(std::move(stage));
  return sosp19TimeOf(graph, cluster, plan);
}

static double ownTime(const CostGraph& graph, const Cluster& cluster, PlannerOptions options) {
  options.memoryBytes = unlimitedMemoryBytes;
  Partition partition;
  PartitionStage stage;
  stage.nodes = allNodes(graph);
  stage.replicas = static_cast<int>(cluster.deviceCount());
  stage.recompute = options.recompute == RecomputePolicy::all;
  for (const DeviceClass& devices : deviceClasses(cluster, options))
    stage.ofClass.push_back(static_cast<int>(devices.leaves.size()));
  partition.stages.push_back(std::move(stage));
  const PlanCost cost = CostModel(graph, cluster, options).costOf(partition);
  return cost.feasible ? cost.timeMs : INFINITY;
}

std::optional<double> pdc::dataParallelTime(const CostGraph& graph, const Cluster& cluster, PublishedOptions options) {
  double ms = 0;
  if (options.costModel == "pipedream-code")
    ms = pipedreamCodeDataParallelTimeOf(graph, cluster);
  else if (options.costModel == "sosp19" || (options.costModel == "pipedream-2018" && cluster.levels.size() == 1))
    ms = sosp19Time(graph, cluster, options.costModel);
  else if (options.costModel == "pdc" && options.schedule->stagesPerRank == 1)
    ms = ownTime(graph, cluster, options);
  else
    return std::nullopt;
  if (!std::isfinite(ms)) return std::nullopt;
  return ms;
}
