#include "PipeDream/Sosp19Describe.h"

#include "pdc/Cost/Crossings.h"

#include <algorithm>

using namespace pdc;
using namespace pdc::sosp19;

Plan sosp19::outline(const Cluster& cluster, const Problem& problem, const Placement& placement,
                     const std::string& costModel) {
  Plan plan;
  plan.costModel = costModel;
  for (const PlacedStage& placed : placement) {
    PlanStage& stage = plan.stages.emplace_back();
    for (int unit : placed.units)
      stage.nodes.insert(stage.nodes.end(), problem.units[unit].begin(), problem.units[unit].end());
    std::sort(stage.nodes.begin(), stage.nodes.end());
    stage.nest.resize(cluster.levels.size());
    for (std::size_t k = 0; k < problem.levels.size(); ++k) {
      const Share& share = placed.shares[k];
      stage.nest[cluster.levels.size() - 1 - problem.levels[k].position] = {share.stage,
                                                                            static_cast<int>(share.replicas)};
      stage.replicas *= static_cast<int>(share.replicas);
    }
  }
  return plan;
}

static void addUp(const CostGraph& graph, double speed, PlanStage& stage) {
  std::int64_t scratch = 0, workspace = 0;
  for (std::int64_t v : stage.nodes) {
    const CostNode& node = graph.nodes[v];
    stage.nodeNames.push_back(node.name);
    stage.forwardMs += node.forwardMs / speed;
    stage.inputGradientMs += node.inputGradientMs / speed;
    stage.weightGradientMs += node.weightGradientMs / speed;
    stage.updateMs += node.updateMs / speed;
    stage.parameterBytes += node.parameterBytes;
    stage.gradientBytes += node.gradientBytes;
    stage.savedBytes += node.savedBytes;
    stage.handoverBytes += node.handoverBytes;
    scratch = std::max(scratch, node.scratchBytes);
    workspace = std::max(workspace, node.workspaceBytes);
  }
  stage.scratchBytes = scratch + workspace;
}

/// The devices of each stage, replica by replica, outermost level first.
static std::vector<std::vector<std::int64_t>> devicesOf(const Problem& problem, const Placement& placement) {
  std::vector<std::vector<std::int64_t>> devices(placement.size());
  std::vector<std::int64_t> firstFree(problem.levels.size(), 0); // of the current component of each level
  for (std::size_t s = 0; s < placement.size(); ++s) {
    const std::vector<Share>& shares = placement[s].shares;
    for (std::size_t k = problem.levels.size(); s > 0 && k-- > 0;) {
      const Share& before = placement[s - 1].shares[k];
      if (shares[k].stage == before.stage) continue; // the same stage of this level: look inside
      firstFree[k] += before.replicas;
      std::fill(firstFree.begin(), firstFree.begin() + static_cast<std::ptrdiff_t>(k), 0);
      break;
    }
    devices[s] = {0};
    for (std::size_t k = problem.levels.size(); k-- > 0;) {
      std::vector<std::int64_t> inside;
      for (std::int64_t base : devices[s])
        for (std::int64_t r = 0; r < shares[k].replicas; ++r)
          inside.push_back(base + (firstFree[k] + r) * problem.levels[k].devicesInside);
      devices[s] = std::move(inside);
    }
  }
  return devices;
}

Plan sosp19::describe(const CostGraph& graph, const Cluster& cluster, const Problem& problem,
                      const Placement& placement, const std::string& costModel) {
  Plan plan = outline(cluster, problem, placement, costModel);
  plan.model = graph.model;
  plan.costSource = graph.costSource;
  plan.cluster = cluster;
  std::int64_t later = 0;
  for (std::size_t s = plan.stages.size(); s-- > 0;) {
    PlanStage& stage = plan.stages[s];
    addUp(graph, cluster.deviceAt(0).speed, stage);
    later += stage.replicas;
    stage.warmup = static_cast<int>((later + stage.replicas - 1) / stage.replicas) - 1;
    stage.syncDelay = stage.replicas > 1 ? 1 : 0;
    stage.memoryBytes = (stage.parameterBytes + stage.savedBytes) * (stage.warmup + 1);
    for (std::size_t k = 0; k < problem.levels.size(); ++k) {
      auto m = static_cast<double>(placement[s].shares[k].replicas);
      stage.allReduceMs +=
          problem.levels[k].syncMsPerByte * static_cast<double>(stage.parameterBytes) * problem.syncShare(m) * m;
    }
  }
  std::vector<std::vector<std::int64_t>> devices = devicesOf(problem, placement);
  for (std::size_t s = 0; s < devices.size(); ++s)
    for (std::size_t r = 0; r < devices[s].size(); ++r)
      plan.ranks.push_back({.rank = static_cast<int>(plan.ranks.size()),
                            .devices = {devices[s][r]},
                            .hosts = {{static_cast<int>(s), static_cast<int>(r)}}});
  describeCrossings(graph, plan);
  return plan;
}
