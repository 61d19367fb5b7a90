// Solves, chooses the warm-up that the simulator confirms, and says what would help when there is no plan.
#include "pdc/Planner/Planner.h"

#include "Pdc/Solver.h"
#include "pdc/Schedule/PlanSchedule.h"
#include "pdc/Schedule/Warmup.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Units.h"

#include <algorithm>

using namespace pdc;

static Status checkOptions(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                           Diagnostics& diags) {
  auto levels = std::count_if(cluster.levels.begin(), cluster.levels.end(), [](const auto& l) { return l.count > 1; });
  if (graph.nodes.empty()) return diags.error({graph.model}) << "expected a graph with at least one node, got none";
  if (levels > 1)
    return diags.error({})
               .exit(ExitCode::unsupported)
               .help("describe the cluster as one level with its slowest bandwidth")
           << "only flat clusters can be planned for, got " << levels << " levels";
  if (options.schedule != "1f1b" && options.schedule != "1f1b-flush")
    return diags.error({}).exit(ExitCode::unsupported).help("take --schedule=1f1b or --schedule=1f1b-flush")
           << "the schedule '" << options.schedule << "' is not supported yet";
  if (options.microbatches < 1)
    return diags.error({}).exit(ExitCode::usage) << "expected at least one microbatch, got " << options.microbatches;
  std::int64_t replicas = 0;
  for (int r : options.stageReplicas) {
    if (r < 1) return diags.error({}).exit(ExitCode::usage) << "expected at least one replica per stage, got " << r;
    replicas += r;
  }
  if (replicas > cluster.deviceCount())
    return diags.error({}).exit(ExitCode::noPlan).help("give --devices=" + std::to_string(replicas))
           << "the stages need " << replicas << " devices, there are " << cluster.deviceCount();
  if (options.stageReplicas.size() > graph.nodes.size())
    return diags.error({})
               .exit(ExitCode::noPlan)
               .help("ask for " + std::to_string(graph.nodes.size()) + " stages or fewer")
           << "the model has " << graph.nodes.size() << " fusion groups, too few for " << options.stageReplicas.size()
           << " stages";
  if (options.warmupPolicy == WarmupPolicy::given &&
      std::any_of(options.warmup.begin(), options.warmup.end(), [](int w) { return w < 0; }))
    return diags.error({}).exit(ExitCode::usage) << "a warm-up is a number of forwards, not negative";
  if (options.warmupPolicy == WarmupPolicy::given && !options.stageReplicas.empty() &&
      options.warmup.size() != options.stageReplicas.size())
    return diags.error({}).exit(ExitCode::usage).help("give one warm-up for each stage")
           << "the warm-up is for " << options.warmup.size() << " stages, the replicas are for "
           << options.stageReplicas.size();
  return success;
}

/// Tries clusters with more memory, or more devices, and reports what would do.
static void reportNoPlan(const CostGraph& graph, Cluster cluster, PlannerOptions options, Diagnostics& diags) {
  std::int64_t limit = memoryLimit(cluster), devices = cluster.deviceCount();
  auto message = diags.error({graph.model}).exit(ExitCode::noPlan);
  // With memory without end there is a plan unless the options forbid every one.
  auto withMemory = [&](std::int64_t bytes) {
    Cluster larger = cluster;
    larger.device.memoryBytes = bytes + cluster.device.reservedBytes;
    return solve(graph, larger, options);
  };
  std::optional<Solution> unlimited = withMemory(std::int64_t{1} << 60);
  if (!unlimited) {
    std::move(message).help("give one warm-up per stage that does not grow from stage to stage, or leave --warmup out")
        << "no partition satisfies the given stages, colours and warm-up on " << devices << " devices";
    return;
  }
  std::int64_t low = limit, high = unlimited->cost.peakMemoryBytes; // infeasible, feasible
  while (high - low > std::max<std::int64_t>(high / 1000, 1)) {
    std::int64_t middle = low + (high - low) / 2;
    if (std::optional<Solution> solution = withMemory(middle))
      high = std::min(middle, solution->cost.peakMemoryBytes);
    else
      low = middle;
  }
  std::string help = "give devices with " + sizeText(high + cluster.device.reservedBytes) + " of memory";
  auto flat = std::find_if(cluster.levels.begin(), cluster.levels.end(), [](const auto& l) { return l.count > 1; });
  if (options.stageReplicas.empty() && !cluster.levels.empty()) {
    if (flat == cluster.levels.end()) flat = cluster.levels.begin();
    for (std::int64_t more = devices + 1; more <= std::min<std::int64_t>(2 * devices + 8, 64); ++more) {
      flat->count = more;
      if (!solve(graph, cluster, options)) continue;
      help += ", or take --devices=" + std::to_string(more);
      break;
    }
  }
  std::move(message).help(help) << "no plan fits: the smallest for --devices=" << devices << " takes " << sizeText(high)
                                << " on one device, the limit is " << sizeText(limit);
}

/// The warm-up of `hide` confirmed by the simulator, unless it takes more memory than there is.
static void confirmWarmup(Plan& plan, const PlannerOptions& options) {
  if (options.warmupPolicy != WarmupPolicy::hide) return;
  Plan confirmed = plan;
  std::vector<int> warmup = hideWarmup(plan);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) confirmed.stages[s].warmup = warmup[s];
  std::int64_t limit = memoryLimit(plan.cluster);
  std::vector<std::int64_t> memory = memoryOf(confirmed, options);
  if (std::all_of(memory.begin(), memory.end(), [&](std::int64_t bytes) { return bytes <= limit; })) plan = confirmed;
}

Expected<Plan> pdc::planPipeline(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                                 Diagnostics& diags) {
  if (!checkOptions(graph, cluster, options, diags)) return failure;
  std::optional<Solution> solution = solve(graph, cluster, options);
  if (!solution) {
    reportNoPlan(graph, cluster, options, diags);
    return failure;
  }
  Plan plan = describePartition(graph, cluster, options, solution->partition);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = solution->cost.warmup[s];
  plan.timeMs = solution->cost.timeMs;
  plan.lowerBoundMs = solution->lowerBoundMs;
  confirmWarmup(plan, options);
  // The definition and the simulator agree within 1 % in the steady state; where they do not, the slower one is stated.
  Expected<pdcrt::Schedule> schedule = scheduleFor(plan, diags);
  if (!schedule) return failure;
  double simulatedMs = simulate(plan, *schedule).timePerMinibatchMs;
  if (plan.schedule != "1f1b" || simulatedMs > 1.01 * plan.timeMs) plan.timeMs = std::max(plan.timeMs, simulatedMs);
  std::vector<std::int64_t> memory = memoryOf(plan, options);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].memoryBytes = memory[s];
  return plan;
}
