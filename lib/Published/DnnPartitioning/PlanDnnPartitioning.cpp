// Cost model `dnn-partitioning`: from the problem to a plan, and what to say when there is none.
#include "pdc/Published/Foreign.h"

#include "DnnPartitioning/Solver.h"
#include "pdc/Support/Diagnostics.h"

#include <algorithm>
#include <cmath>
#include <sstream>

using namespace pdc;
using namespace pdc::placement;

static std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

/// The output of a node is one tensor, which has one cost.
static Status checkCosts(const DnnPartitioningProblem& problem, Diagnostics& diags) {
  std::vector<double> costs(problem.nodes.size(), -1);
  for (const DnnPartitioningEdge& edge : problem.edges) {
    double& cost = costs[at(edge.from)];
    if (cost >= 0 && cost != edge.cost)
      return diags.error({problem.name, problem.nodes[at(edge.from)].name})
                 .help("give all edges out of a node the cost of its output; it is transferred once")
             << "edges out of the node cost " << cost << " and " << edge.cost;
    cost = edge.cost;
  }
  return success;
}

/// Loads are sums, so sums must be numbers.
static Status checkSums(const DnnPartitioningProblem& problem, Diagnostics& diags) {
  double times = 0, sizes = 0;
  for (const DnnPartitioningNode& node : problem.nodes) {
    times += node.acceleratorTime + node.cpuTime;
    sizes += node.size;
  }
  for (const DnnPartitioningEdge& edge : problem.edges) times += edge.cost;
  if (std::isfinite(times) && std::isfinite(sizes)) return success;
  return diags.error({problem.name}).help("use a larger unit")
         << "the " << (std::isfinite(times) ? "sizes" : "times and costs") << " add up to more than "
         << std::numeric_limits<double>::max();
}

/// Exact, so that it may be typed in again.
static std::string number(double value) {
  std::ostringstream text;
  text.precision(17);
  text << value;
  return text.str();
}

/// The smallest memory with which the accelerators can hold everything: the same search, with sizes in the place of
/// times and without transfers.
static Solution smallestMemory(Instance instance, const Limits& limits) {
  for (Class& c : instance.classes) {
    c.time = c.size;
    c.size = 0;
  }
  instance.tensors.clear();
  return solve(instance, limits);
}

/// Only without a CPU, which can compute and hold everything, is there no plan.
static Failure reportNoPlan(const DnnPartitioningProblem& problem, const Instance& instance, const Limits& limits,
                            Diagnostics& diags) {
  for (const DnnPartitioningNode& node : problem.nodes)
    if (!node.onAccelerator)
      return diags.error({problem.name, node.name}).exit(ExitCode::noPlan).help("set maxCPUs to 1")
             << "no accelerator can compute the node, and there are 0 CPUs";
  double size = 0;
  for (const DnnPartitioningNode& node : problem.nodes) size += node.size;
  auto message = diags.error({problem.name}).exit(ExitCode::noPlan);
  // NOLINTBEGIN(bugprone-use-after-move): help() and << return the message itself
  if (Solution memory = smallestMemory(instance, limits); memory.value != never)
    std::move(message).help("set maxSizePerFPGA to " + number(instance.sizeScale.value(memory.value)));
  if (int accelerators = fewestAccelerators(instance, limits); accelerators > 0)
    std::move(message).help("or set maxFPGAs to " + std::to_string(accelerators));
  return std::move(message) << "the nodes have a size of " << number(size) << ", " << problem.accelerators
                            << " accelerators have " << number(problem.acceleratorMemory) << " each";
  // NOLINTEND(bugprone-use-after-move)
}

static PlanStage makeStage(const DnnPartitioningProblem& problem, const Instance& instance, const Stage& from) {
  PlanStage stage;
  stage.device = from.isCpu ? "cpu" : "accelerator";
  for (int c : from.classes) {
    const std::vector<std::int64_t>& nodes = instance.classes[at(c)].nodes;
    stage.nodes.insert(stage.nodes.end(), nodes.begin(), nodes.end());
  }
  std::sort(stage.nodes.begin(), stage.nodes.end());
  double size = 0;
  for (std::int64_t v : stage.nodes) {
    const DnnPartitioningNode& node = problem.nodes[at(v)];
    stage.nodeNames.push_back(node.name);
    // Backward nodes are not told apart by what they are the gradient of.
    (node.isBackward ? stage.inputGradientMs : stage.forwardMs) += from.isCpu ? node.cpuTime : node.acceleratorTime;
    size += node.size;
  }
  stage.memoryBytes = static_cast<std::int64_t>(std::ceil(std::min(size, 9e18)));
  return stage;
}

Expected<Plan> pdc::planDnnPartitioning(const DnnPartitioningProblem& given, const PlannerOptions& options,
                                        Diagnostics& diags) {
  DnnPartitioningProblem problem = given;
  if (options.memoryBytes > 0) problem.acceleratorMemory = static_cast<double>(options.memoryBytes);
  if (problem.nodes.empty()) return diags.error({problem.name}) << "expected at least one node, got none";
  if (!checkCosts(problem, diags) || !checkSums(problem, diags)) return failure;
  Limits limits;
  if (options.timeLimitS > 0)
    limits.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                         std::chrono::duration<double>(std::min(options.timeLimitS, 1e9)));
  Instance instance = makeInstance(problem);
  Solution solution = solve(instance, limits);
  if (solution.value == never && solution.proven != never)
    return diags.error({problem.name}).exit(ExitCode::noPlan).help("allow more time")
           << "no plan was found within the time limit of " << options.timeLimitS << " s";
  if (solution.value == never) return reportNoPlan(problem, instance, limits, diags);

  Plan plan;
  plan.model = plan.costSource = problem.name;
  plan.costModel = "dnn-partitioning";
  plan.optimal = solution.proven == solution.value;
  plan.timeMs = instance.timeScale.value(solution.value);
  // Where they differ, down by more than the rounding of the scale.
  plan.lowerBoundMs = plan.optimal ? plan.timeMs : instance.timeScale.value(solution.proven) * (1 - 1e-14);
  for (const Stage& stage : solution.stages) plan.stages.push_back(makeStage(problem, instance, stage));
  return plan;
}
