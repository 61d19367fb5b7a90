// Cost model `piper`: from the problem to a plan, and what to say when there is none.
#include "pdc/Published/Foreign.h"

#include "Piper/Definition.h"
#include "Piper/Menu.h"
#include "Piper/Solver.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Units.h"

#include <algorithm>
#include <cmath>

using namespace pdc;

static std::int64_t bytesUp(double bytes) {
  return static_cast<std::int64_t>(std::ceil(bytes));
}

static Plan makePlan(const PiperProblem& problem, const PiperInstance& instance, const PiperSolution& solution) {
  Plan plan;
  plan.model = problem.name;
  plan.costSource = problem.name;
  plan.costModel = "piper";
  plan.cluster.levels = {{"cluster", problem.devices, problem.bandwidth, 0}};
  plan.cluster.device.name = "accelerator";
  plan.cluster.device.memoryBytes = bytesUp(problem.memoryBytes);
  for (const PiperStage& from : solution.stages) {
    PlanStage stage;
    std::int64_t t = instance.tensorDegrees[from.degree];
    stage.replicas = static_cast<int>(from.d);
    stage.tensorParallel = static_cast<int>(t);
    std::vector<int> choices = PiperMenu::choose(instance, from.nodes, from.degree, solution.memory, from.d, from.y);
    from.nodes.forEach([&](std::size_t v) {
      const PiperNode& node = problem.nodes[v];
      const PiperChoice& choice = node.choices.at(t)[static_cast<std::size_t>(choices[stage.nodes.size()])];
      stage.nodes.push_back(static_cast<std::int64_t>(v));
      stage.nodeNames.push_back(node.name);
      stage.choices.push_back(choice.id);
      stage.parameterBytes += bytesUp(choice.parameterBytes);
      stage.savedBytes += bytesUp(choice.memoryA);
    });
    plan.stages.push_back(std::move(stage));
  }
  std::vector<PiperStageCost> costs = piperStageCosts(problem, plan);
  for (std::size_t s = 0; s < costs.size(); ++s) {
    PlanStage& stage = plan.stages[s];
    stage.forwardMs = costs[s].compute; // forward and backward are not told apart in the input
    stage.allReduceMs = costs[s].resyncBytes * stage.replicas / problem.bandwidth;
    stage.warmup = static_cast<int>(costs[s].inFlight - 1);
    stage.memoryBytes = bytesUp(costs[s].memoryBytes);
  }
  return plan;
}

/// Edges between stages as tensors of the plan, and one rank per replica.
static void addTensorsAndRanks(const PiperProblem& problem, Plan& plan) {
  std::vector<int> stageOf(problem.nodes.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (std::int64_t v : plan.stages[s].nodes) stageOf[static_cast<std::size_t>(v)] = static_cast<int>(s);
  for (const PiperEdge& edge : problem.edges) {
    int from = stageOf[static_cast<std::size_t>(edge.from)], to = stageOf[static_cast<std::size_t>(edge.to)];
    if (from != to)
      plan.tensors.push_back(
          {problem.nodes[static_cast<std::size_t>(edge.from)].name, from, to, bytesUp(edge.bytes), true});
  }
  std::int64_t device = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (int replica = 0; replica < plan.stages[s].replicas; ++replica) {
      PlanRank rank;
      rank.rank = static_cast<int>(plan.ranks.size());
      for (int i = 0; i < plan.stages[s].tensorParallel; ++i) rank.devices.push_back(device++);
      rank.hosts.push_back({static_cast<int>(s), replica});
      plan.ranks.push_back(std::move(rank));
    }
}

static Failure reportNoPlan(const PiperProblem& problem, const PiperInstance& instance, bool replicate,
                            const PiperSearchOptions& search, bool isProven, Diagnostics& diags) {
  std::string problemText = (isProven ? "no plan fits into " : "no plan was found that fits into ") +
                            sizeText(bytesUp(problem.memoryBytes)) + " of memory on each of " +
                            std::to_string(problem.devices) + (problem.devices == 1 ? " device" : " devices");
  auto message = diags.error({problem.name}).exit(ExitCode::noPlan);
  // NOLINTBEGIN(bugprone-use-after-move): note(), help() and << return the message itself
  if (!isProven)
    std::move(message).note("the graph has more than " + std::to_string(search.mostStates) +
                            " down-sets; only plans along a few topological orders were tried");
  bool canHelp = false;
  if (std::optional<double> memory = leastPiperMemory(instance, search)) {
    std::move(message).help("give --memory=" + std::to_string(bytesUp(*memory)) + " (" + sizeText(bytesUp(*memory)) +
                            "), the least that does on as many devices");
    canHelp = true;
  }
  PiperProblem larger = problem;
  larger.devices = std::int64_t{1} << 20;
  if (std::optional<PiperInstance> many = PiperInstance::make(larger, replicate))
    if (std::optional<std::int64_t> devices = fewestPiperDevices(*many, search)) {
      std::move(message).help("give --devices=" + std::to_string(*devices) +
                              ", the fewest that do with as much memory");
      canHelp = true;
    }
  if (!canHelp)
    std::move(message).help("give every node choices for a common tensor-parallel degree of at most " +
                            std::to_string(problem.devices));
  std::move(message) << problemText;
  // NOLINTEND(bugprone-use-after-move)
  return failure;
}

Expected<Plan> pdc::planPiper(const PiperProblem& given, const PlannerOptions& options, Diagnostics& diags) {
  PiperProblem problem = given;
  if (options.memoryBytes > 0) problem.memoryBytes = static_cast<double>(options.memoryBytes);
  if (!checkPiperProblem(problem, diags)) return failure;
  std::optional<PiperInstance> instance = PiperInstance::make(problem, !options.straight);
  if (!instance) return diags.error({problem.name}) << "expected a graph without cycles, got one with a cycle";
  PiperSearchOptions search;
  search.timeLimitS = options.timeLimitS;
  bool isExhaustive = true;
  std::optional<PiperSolution> solution = solvePiper(*instance, search, &isExhaustive);
  if (!solution) return reportNoPlan(problem, *instance, !options.straight, search, isExhaustive, diags);

  Plan plan = makePlan(problem, *instance, *solution);
  addTensorsAndRanks(problem, plan);
  plan.timeMs = piperTimeOf(problem, plan);
  plan.optimal = solution->lowerBound >= solution->tps;
  // The solver adds the same numbers in another order: what it proved holds up to rounding.
  plan.lowerBoundMs = plan.optimal ? plan.timeMs : std::min(solution->lowerBound, plan.timeMs);
  return plan;
}
