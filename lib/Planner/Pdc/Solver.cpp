// From a cost graph to its best plan under the cost model `pdc`:
//
//   SolverProblem     contracts what no plan tears apart
//   SolverStates      lists the down-sets between which stages are cut: all of them, if there are not too many
//   SolverLoads       bounds what a stage costs, whatever the rest of the plan is
//   SolverRelaxation  the smallest time over chains of stages that are charged those bounds only: a lower bound of
//   every
//                     plan, found by passes at fixed times; each passing one yields a plan, which the cost model
//                     evaluates
//   SolverSearch      branch and bound over complete plans, when a gap between the two is left, and for ties
//
// Where there are too many down-sets for all pairs, the states are prefixes of several topological orders, plans are
// the best over those, and the lower bound is one that holds for all down-sets (boundOfAll); the gap is printed.
#include "Pdc/Solver.h"

#include "Pdc/SolverSearch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

using namespace pdc;

static constexpr double infinity = std::numeric_limits<double>::infinity();

/// Work over devices, and over cores: no plan is faster, whatever its stages are.
static double boundOfAll(const SolverProblem& problem, const Machine& machine, const PlannerOptions& options) {
  double workMs = 0, speeds = 0, fastest = 0;
  for (const Block& block : problem.blocks)
    workMs += (options.recompute == "all" ? 2 : 1) * block.forwardMs + block.backwardMs + block.updateMs;
  for (const DeviceClass& deviceClass : machine.classes()) {
    speeds += deviceClass.speed * static_cast<double>(deviceClass.leaves.size());
    fastest = std::max(fastest, deviceClass.speed);
  }
  if (options.straight) speeds = std::min(speeds, fastest * static_cast<double>(problem.blocks.size()));
  if (options.schedule != "1f1b") {
    // Of a batch of m microbatches a device computes ceil(m / R), but updates once.
    for (const Block& block : problem.blocks) workMs -= block.updateMs;
  }
  return speeds > 0 ? workMs / speeds : 0;
}

static double coresBound(const SolverProblem& problem, const Machine& machine) {
  if (!machine.sharesCores()) return 0;
  std::int64_t cores = 0, machines = machine.machineOf(machine.components(0) - 1) + 1;
  double workMs = 0, fastest = 0;
  for (std::int64_t m = 0; m < machines; ++m) {
    if (machine.coresOf(m) <= 0) return 0; // a machine whose ranks share nothing
    cores += machine.coresOf(m);
  }
  for (const Block& block : problem.blocks) workMs += block.forwardMs + block.backwardMs + block.updateMs;
  for (const DeviceClass& deviceClass : machine.classes()) fastest = std::max(fastest, deviceClass.speed);
  return workMs / fastest / static_cast<double>(cores);
}

/// All devices on one stage, or as few as are as fast.
static void tryOneStage(const States& states, const StageLoads& loads, const PlannerOptions& options, int devices,
                        Incumbent& incumbent) {
  int least = 1, most = options.straight ? 1 : devices;
  if (!options.stageReplicas.empty()) {
    if (options.stageReplicas.size() > 1) return;
    least = most = options.stageReplicas[0];
  }
  StageLoads::Stage whole = loads.stage(0, states.last());
  std::vector<std::pair<double, int>> order;
  for (int r = least; r <= most; ++r) order.emplace_back(loads.bound(whole, r), r);
  std::sort(order.begin(), order.end());
  constexpr std::size_t enough = 32;
  for (std::size_t i = 0; i < std::min(enough, order.size()); ++i) {
    if (order[i].first == infinity || order[i].first > incumbent.limitMs() * (1 + 1e-9)) break;
    incumbent.offer({RelaxedStage{0, states.last(), order[i].second}});
  }
}

std::optional<Solution> pdc::solve(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options) {
  constexpr std::size_t mostStates = 1'500;
  constexpr std::int64_t effort = 1'000'000;
  SolverProblem problem = SolverProblem::of(graph);
  States states(problem, mostStates);
  Machine machine(cluster, options);
  StageLoads loads(graph, problem, states, machine, options);
  auto devices = static_cast<int>(std::min<std::int64_t>(cluster.deviceCount(), 1 << 20));
  Relaxation relaxation(states, loads, options, devices);
  Incumbent incumbent(graph, cluster, options, problem, states, machine);

  double coresMs = coresBound(problem, machine);
  tryOneStage(states, loads, options, devices, incumbent);
  // Without a limit: a plan, or the proof that there is none.
  if (!relaxation.label(std::numeric_limits<double>::max())) return std::nullopt;
  std::vector<RelaxedStage> first = relaxation.path();
  incumbent.offer(first);
  double low = boundOfAll(problem, machine, options);
  double high =
      std::max(low, std::min(relaxation.timeOf(first), incumbent.found() ? incumbent.best().cost.loadMs : infinity));
  double relaxed =
      relaxation.smallestTime(low, high, 60, [&](const std::vector<RelaxedStage>& path) { incumbent.offer(path); });
  if (states.isComplete()) low = relaxed;

  Search search(graph, options, states, loads, machine, relaxation, incumbent);
  incumbent.allow(effort);
  bool proven = search.run(false);
  if (!incumbent.found()) return std::nullopt;
  incumbent.allow(effort);
  search.run(true);
  Solution solution = incumbent.best();
  solution.lowerBoundMs = std::max(low, coresMs);
  if (proven && states.isComplete()) solution.lowerBoundMs = solution.cost.timeMs;
  solution.lowerBoundMs = std::min(solution.lowerBoundMs, solution.cost.timeMs);
  return solution;
}
