// The planner for cost model `pipedream-code`: checks the input, and makes a plan of what CodeSolver.h finds.
#include "PipeDream/Code.h"

#include "PipeDream/CodeSolver.h"
#include "pdc/Cost/Crossings.h"
#include "pdc/Plan/PolicyText.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Units.h"

#include <algorithm>
#include <limits>

using namespace pdc;

static constexpr double infinity = std::numeric_limits<double>::infinity();

/// Says what would do.
static void reportNoPlan(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                         CodeSolver& solver, Diagnostics& diags) {
  std::int64_t devices = cluster.deviceCount();
  if (!solver.fits(infinity)) {
    std::size_t stages = solver.longestChain();
    diags.error({graph.model}).exit(ExitCode::noPlan).help("leave out --straight")
        << "a straight pipeline on " << devices << " devices has as many stages, this graph can be cut into " << stages;
    return;
  }
  std::int64_t low = options.memoryBytes, high = 2 * low; // too little, enough
  while (!solver.fits(static_cast<double>(high))) low = high, high *= 2;
  while (high - low > 1) {
    std::int64_t middle = low + (high - low) / 2;
    (solver.fits(static_cast<double>(middle)) ? high : low) = middle;
  }
  diags.error({graph.model}).exit(ExitCode::noPlan).help("give --memory=" + std::to_string(high))
      << "no plan fits: the smallest keeps " << sizeText(high) << " on a device, the limit is "
      << sizeText(options.memoryBytes);
}

/// What the model does not know, with the remedy.
static Status checkInput(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                         Diagnostics& diags) {
  auto refuse = [&](const std::string& help) {
    return diags.error({graph.model}).exit(ExitCode::unsupported).help(help);
  };
  const std::string remedy = "leave it out or take --cost-model=pdc";
  if (graph.nodes.empty()) return diags.error({graph.model}) << "expected a graph with at least one node, got none";
  for (const ClusterLevel& level : cluster.levels) {
    if (level.count < 1 || level.count > 1'000'000)
      return diags.error({}) << "expected from 1 to 1000000 components in a level, got " << level.count;
    if (level.count > 1 && !(level.bandwidthBytesPerS > 0))
      return diags.error({}) << "expected a bandwidth above zero, got " << level.bandwidthBytesPerS;
  }
  auto unequal = std::find_if(cluster.devices.begin(), cluster.devices.end(), [&](const DeviceGroup& group) {
    return group.device.speed != cluster.devices.front().device.speed;
  });
  if (unequal != cluster.devices.end())
    return refuse("describe equal devices or take --cost-model=pdc")
           << "the cost model pipedream-code knows equal devices only, got speeds "
           << cluster.devices.front().device.speed << " and " << unequal->device.speed;
  if (!(options.schedule == ScheduleKind()))
    return refuse(remedy) << "the cost model pipedream-code knows the schedule '1f1b' only, got '"
                          << options.schedule.name() << "'";
  if (options.recompute != RecomputePolicy::none)
    return refuse(remedy) << "the cost model pipedream-code knows no recomputation, got '" << nameOf(options.recompute)
                          << "'";
  if (!options.stageReplicas.empty())
    return refuse(remedy) << "the cost model pipedream-code chooses the replicas of each stage itself, got "
                          << options.stageReplicas.size() << " counts";
  if (std::vector<int> outside = nodesOutsideAllStates(Dag::of(graph)); !outside.empty())
    return diags.error({graph.model, graph.nodes[static_cast<std::size_t>(outside[0])].name})
               .exit(ExitCode::unsupported)
               .help("take --cost-model=pdc")
           << "the cost model pipedream-code reaches " << graph.nodes.size() - outside.size() << " of "
           << graph.nodes.size() << " nodes: nothing connects this one with the first node '" << graph.nodes[0].name
           << "'";
  return success;
}

static void describeStages(const CostGraph& graph, const Cluster& cluster, const CodeSolution& solution, Plan& plan) {
  double speed = cluster.device.speed;
  std::vector<std::int64_t> sharedBytes(graph.nodes.size(), 0);
  for (const CostSharedParameter& shared : graph.sharedParameters)
    if (!shared.nodes.empty()) sharedBytes[static_cast<std::size_t>(shared.nodes.front())] += shared.bytes;
  NodeSet before(graph.nodes.size());
  for (const CodeLeaf& leaf : solution.leaves) {
    PlanStage stage;
    stage.nest = leaf.nest;
    for (const PlanNest& nest : leaf.nest) stage.replicas *= nest.replicas;
    for (std::size_t v = 0; v < graph.nodes.size(); ++v) {
      if (!(leaf.nodes[v / 64] >> (v % 64) & 1) || before.contains(v)) continue;
      before.insert(v);
      const CostNode& node = graph.nodes[v];
      stage.nodes.push_back(static_cast<std::int64_t>(v));
      stage.nodeNames.push_back(node.name);
      stage.forwardMs += node.forwardMs / speed;
      stage.inputGradientMs += node.inputGradientMs / speed;
      stage.weightGradientMs += node.weightGradientMs / speed;
      stage.updateMs += node.updateMs / speed;
      stage.parameterBytes += node.parameterBytes + sharedBytes[v];
      stage.gradientBytes += node.gradientBytes;
      stage.savedBytes += node.savedBytes;
      stage.handoverBytes += node.handoverBytes;
      stage.scratchBytes = std::max(stage.scratchBytes, node.scratchBytes + node.workspaceBytes);
    }
    plan.stages.push_back(std::move(stage));
  }
}

/// The stages of a level get neighbouring components, in order; so does every copy of a level inside.
static void placeRanks(const std::vector<int>& counts, Plan& plan) {
  std::size_t levels = counts.size(); // outermost first
  std::vector<std::int64_t> inside(levels + 1, 1);
  for (std::size_t k = levels; k-- > 0;) inside[k] = inside[k + 1] * counts[k];
  std::vector<int> stage(levels, -1), next(levels, 0), first(levels, 0);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::vector<PlanNest>& nest = plan.stages[s].nest;
    for (std::size_t k = 0; k < levels; ++k) {
      if (nest[k].stage == stage[k]) continue;
      for (std::size_t i = k + 1; i < levels; ++i) stage[i] = -1, next[i] = 0;
      stage[k] = nest[k].stage;
      first[k] = next[k];
      next[k] += nest[k].replicas;
    }
    std::vector<std::int64_t> devices = {0};
    for (std::size_t k = 0; k < levels; ++k) {
      std::vector<std::int64_t> finer;
      for (std::int64_t device : devices)
        for (int m = 0; m < nest[k].replicas; ++m) finer.push_back(device + (first[k] + m) * inside[k + 1]);
      devices = std::move(finer);
    }
    for (std::size_t q = 0; q < devices.size(); ++q)
      plan.ranks.push_back({.rank = static_cast<int>(plan.ranks.size()),
                            .devices = {devices[q]},
                            .hosts = {{static_cast<int>(s), static_cast<int>(q)}}});
  }
}

static Plan planOf(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                   const CodeSolution& solution) {
  Plan plan;
  plan.model = graph.model;
  plan.costSource = graph.costSource;
  plan.schedule = options.schedule;
  plan.weights = options.weights;
  plan.sync = options.sync;
  plan.costModel = "pipedream-code";
  plan.cluster = cluster;
  describeStages(graph, cluster, solution, plan);
  describeCrossings(graph, plan);
  std::vector<int> counts;
  for (const ClusterLevel& level : cluster.levels)
    if (level.count > 1) counts.insert(counts.begin(), static_cast<int>(level.count));
  placeRanks(counts, plan);
  // The solver adds the nodes' times up in another order.
  plan.timeMs = pipedreamCodeTimeOf(graph, cluster, plan);
  plan.optimal = solution.lowerBoundMs >= solution.timeMs;
  plan.lowerBoundMs = plan.optimal ? plan.timeMs : std::min(solution.lowerBoundMs, plan.timeMs);
  return plan;
}

Expected<Plan> pdc::planPipedreamCode(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                                      Diagnostics& diags) {
  if (!checkInput(graph, cluster, options, diags)) return failure;
  CodeSolver solver(graph, cluster, options);
  CodeSolution solution = solver.solve();
  if (!solution.leaves.empty()) return planOf(graph, cluster, options, solution);
  reportNoPlan(graph, cluster, options, solver, diags);
  return failure;
}
