#include "pdc/Planner/Planner.h"

#include "Codecs.h"
#include "Looped.h"
#include "Numbers.h"
#include "Search/Solver.h"
#include "pdc/Predict/Simulate.h"
#include "pdc/Predict/Warmup.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Units.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace pdc;

static Status checkOptions(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                           Diagnostics& diags) {
  if (options.microbatches < 1)
    return diags.error({}).exit(ExitCode::usage) << "expected at least one microbatch, got " << options.microbatches;
  if (options.schedule->inFlightFitsBatch && !options.stageReplicas.empty()) {
    const int most = *std::max_element(options.stageReplicas.begin(), options.stageReplicas.end());
    if (most > options.microbatches)
      return diags.error({}).exit(ExitCode::noPlan).help("take --microbatches=" + std::to_string(most) + " or more")
             << "'" << options.schedule.name()
             << "' needs as many microbatches per update as a stage has in flight, got " << options.microbatches
             << " and " << most;
  }
  if (options.shard == ShardPolicy::weights && !options.schedule->isGiven &&
      options.schedule->sweeps(0, options.schedule->stagesPerRank) == 0)
    return diags.error({})
               .exit(ExitCode::usage)
               .help("take --schedule=bfs:V, under which a rank goes through V stages, or --shard=optimizer")
           << "--shard=weights: under '" << options.schedule.name()
           << "' a rank needs all weights of its stages all the time";
  if (options.shardDegree > 0)
    for (int r : options.stageReplicas)
      if (r > 0 && r % options.owners(r) != 0)
        return diags.error({}).exit(ExitCode::usage).help("give a number that divides the replicas of each stage")
               << "--shard=weights:" << options.shardDegree << ": " << r << " replicas are no groups of "
               << options.shardDegree;
  std::int64_t replicas = 0;
  for (int r : options.stageReplicas) {
    if (r < 0) return diags.error({}).exit(ExitCode::usage) << "expected at least one replica per stage, got " << r;
    replicas += std::max(r, 1);
  }
  replicas /= options.schedule->stagesPerRank;
  if (replicas > cluster.deviceCount())
    return diags.error({}).exit(ExitCode::noPlan).help("give --devices=" + std::to_string(replicas))
           << "the stages need " << replicas << " devices, there are " << cluster.deviceCount();
  if (options.stageReplicas.size() > graph.nodes.size())
    return diags.error({})
               .exit(ExitCode::noPlan)
               .help("ask for " + std::to_string(graph.nodes.size()) + " stages or fewer")
           << "the model has " << graph.nodes.size() << " fusion groups, too few for " << options.stageReplicas.size()
           << " stages";
  if (!options.stageSplits.empty() && !options.stageReplicas.empty() &&
      options.stageSplits.size() != options.stageReplicas.size())
    return diags.error({}).exit(ExitCode::usage).help("give one split for each stage, or one for all")
           << "there are splits for " << options.stageSplits.size() << " stages, and replicas for "
           << options.stageReplicas.size();
  for (const auto& [count, what] :
       {std::pair(options.stageReplicas.size(), "replicas"), std::pair(options.stageSplits.size(), "splits")})
    if (!options.stageShards.empty() && count > 0 && count != options.stageShards.size())
      return diags.error({}).exit(ExitCode::usage).help("give one entry for each stage, or one for all")
             << "--shard is for " << options.stageShards.size() << " stages, the " << what << " are for " << count;
  for (const TeamSplit& split : options.stageSplits) {
    int number = 0;
    while (number < graph.splits() && graph.in(number).split != split) ++number;
    if (number == graph.splits())
      return diags.error({}).exit(ExitCode::usage).help("add its costs to the graph")
             << "a stage has the split " << toText(split) << ", of which the graph has no costs";
  }
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

/// The fewest devices beyond the cluster's with which there is a plan; 0 if none are found among reasonable numbers.
static std::int64_t devicesThatWouldDo(const CostGraph& graph, Cluster cluster, const PlannerOptions& options) {
  if (!options.stageReplicas.empty() || !cluster.devices.empty() || cluster.levels.empty()) return 0;
  // More components on the outermost level that connects anything.
  auto level = std::find_if(cluster.levels.rbegin(), cluster.levels.rend(), [](const auto& l) { return l.count > 1; });
  ClusterLevel& grown = level == cluster.levels.rend() ? cluster.levels.back() : *level;
  if (grown.bandwidthBytesPerS <= 0) return 0;
  std::int64_t count = grown.count;
  for (std::int64_t more = count + 1; more <= std::min<std::int64_t>(2 * count + 8, 64); ++more) {
    grown.count = more;
    if (solve(graph, cluster, options)) return cluster.deviceCount();
  }
  return 0;
}

/// Tries clusters with more memory, or more devices, and reports what would do.
static void reportNoPlan(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                         Diagnostics& diags) {
  std::int64_t limit = 0, devices = cluster.deviceCount();
  for (const DeviceClass& device : deviceClasses(cluster, options)) limit = std::max(limit, device.memoryBytes);
  auto message = diags.error({graph.model}).exit(ExitCode::noPlan);
  // With memory without end there is a plan unless the options forbid every one.
  auto withMemory = [&](std::int64_t bytes) {
    PlannerOptions larger = options;
    larger.memoryBytes = bytes;
    return solve(graph, cluster, larger);
  };
  std::optional<Solution> unlimited = withMemory(std::int64_t{1} << 60);
  if (!unlimited && options.schedule->isGiven) {
    std::move(message).help("print the schedule of a plan of this model with --emit=schedule, and edit that")
        << "no partition into " << options.stageReplicas.size() << " stages has the edges of the given schedule";
    return;
  }
  if (!unlimited && !options.stageSplits.empty()) {
    std::string splits;
    for (const TeamSplit& split : options.stageSplits) splits += (splits.empty() ? "" : ", ") + toText(split);
    std::move(message).help("give stages that use one parameter the same split, or take more devices")
        << "no partition has stages of the splits " << splits << " on " << devices << " devices";
    return;
  }
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
  std::int64_t reserved = options.memoryBytes > 0 ? 0 : cluster.deviceAt(0).reservedBytes;
  std::string help = "give devices with " + sizeText(high + reserved) + " of memory";
  if (std::int64_t more = devicesThatWouldDo(graph, cluster, options); more > 0)
    help += ", or take --devices=" + std::to_string(more);
  std::move(message).help(help) << "no plan fits: the smallest for --devices=" << devices << " takes " << sizeText(high)
                                << " on one device, the limit is " << sizeText(limit);
}

static void setWarmup(Plan& plan, const std::vector<int>& warmup) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = warmup[s];
}

/// The warm-up of `hide` that the simulator confirms. Where it does not fit into memory, as much of it as does, from
/// the first stage on, because a stage can be no further ahead than the ones before it (isSafeByOrder).
static Plan withConfirmedWarmup(const Plan& plan, const PlannerOptions& options) {
  Plan confirmed = plan;
  std::vector<int> least, wanted = hideWarmup(plan);
  for (const PlanStage& stage : plan.stages) least.push_back(stage.warmup);
  // The definition's is the least; the simulator may want more, not less.
  for (std::size_t s = 0; s < wanted.size(); ++s) wanted[s] = std::max(wanted[s], least[s]);
  setWarmup(confirmed, wanted);
  if (costWithWarmup(confirmed, options).feasible) return confirmed;
  setWarmup(confirmed, least);
  const bool wasSafe = isSafeByOrder(confirmed);
  for (std::size_t s = 0; s < wanted.size(); ++s)
    for (int w = wanted[s]; w > least[s]; --w) {
      confirmed.stages[s].warmup = w;
      if (costWithWarmup(confirmed, options).feasible && (!wasSafe || isSafeByOrder(confirmed))) break;
      confirmed.stages[s].warmup = least[s];
    }
  return confirmed;
}

/// The schedules execute tied parameters of several stages with stashed weights and with flushes only; otherwise all
/// nodes that use one share a stage.
static CostGraph withTiesKeptTogether(const CostGraph& graph, const PlannerOptions& options) {
  CostGraph result = graph;
  if (options.schedule->hasBatches || options.weights == pdcrt::WeightPolicy::stash) return result;
  std::int64_t fresh = 0;
  for (const CostNode& node : graph.nodes) fresh = std::max(fresh, node.colour + 1);
  for (const CostSharedParameter& parameter : graph.sharedParameters) {
    std::vector<std::int64_t> merged;
    for (std::int64_t v : parameter.nodes) {
      if (result.nodes[v].colour >= 0) merged.push_back(result.nodes[v].colour);
      result.nodes[v].colour = fresh;
    }
    for (CostNode& node : result.nodes)
      if (std::find(merged.begin(), merged.end(), node.colour) != merged.end()) node.colour = fresh;
    ++fresh;
  }
  for (CostGraph& divided : result.divided)
    for (std::size_t v = 0; v < result.nodes.size(); ++v) divided.nodes[v].colour = result.nodes[v].colour;
  return result;
}

/// Whether the schedule is small enough to be executed for every drain and simulated while a user waits.
static bool isQuicklySimulated(const Plan& plan, const PlannerOptions& options) {
  return std::ssize(plan.ranks) <= mostRanksExecuted && (!options.schedule->hasBatches || executesBatches(options)) &&
         canList(plan);
}

/// Work over devices, per minibatch: no plan is faster, whatever its warm-up is.
static double workBound(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options) {
  double workMs = 0, speeds = 0;
  for (std::size_t v = 0; v < graph.nodes.size(); ++v) {
    double least = std::numeric_limits<double>::infinity();
    for (int split = 0; split < graph.splits(); ++split) {
      const CostNode& node = graph.in(split).nodes[v];
      least = std::min(least,
                       graph.in(split).split.members * (node.forwardMs + node.inputGradientMs + node.weightGradientMs));
    }
    workMs += least;
  }
  for (const DeviceClass& devices : deviceClasses(cluster, options))
    speeds += devices.speed * static_cast<double>(devices.leaves.size());
  return workMs / speeds;
}

/// The plan of a solution, as runnable as it can be made.
static Expected<Plan> finish(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                             const Solution& solution, Diagnostics& diags) {
  Plan plan = describePartition(graph, cluster, options, solution.partition);
  setWarmup(plan, solution.cost.warmup);
  plan.timeMs = solution.cost.timeMs;
  plan.lowerBoundMs = std::min(solution.lowerBoundMs, plan.timeMs);
  if (isQuicklySimulated(plan, options)) {
    bool chooses = options.warmupPolicy == WarmupPolicy::hide && options.schedule->takesWarmup();
    Plan confirmed = chooses ? withConfirmedWarmup(plan, options) : plan;
    Expected<pdcrt::Schedule> schedule = scheduleFor(confirmed, diags);
    if (!schedule) return failure;
    double simulatedMs = simulate(confirmed, *schedule).timePerMinibatchMs;
    if (chooses && plan.schedule->hasBatches) { // more of it may be slower
      Expected<pdcrt::Schedule> found = scheduleFor(plan, diags);
      if (!found) return failure;
      const double foundMs = simulate(plan, *found).timePerMinibatchMs;
      if (foundMs < simulatedMs * (1 - 1e-9)) confirmed = plan, simulatedMs = foundMs;
    }
    plan = confirmed;
    if (plan.schedule->hasBatches || simulatedMs > 1.01 * plan.timeMs) plan.timeMs = std::max(plan.timeMs, simulatedMs);
    if (plan.schedule->splitsBackward && simulatedMs < plan.lowerBoundMs * (1 - 1e-9)) {
      // What the search proved holds for the warm-up of the cost model; another, which keeps more minibatches between
      // input and weight gradients, turned out to be faster.
      plan.timeMs = simulatedMs;
      plan.lowerBoundMs = workBound(graph, cluster, options);
    }
  }
  if (const ScheduleDef& kind = *plan.schedule; kind.hasBatches && !kind.flushes && !kind.isGiven)
    plan.timeMs = std::max(plan.timeMs, inFlightMs(plan, options));
  plan.optimal = plan.timeMs <= plan.lowerBoundMs * (1 + 1e-9);
  std::vector<std::int64_t> memory = memoryOf(plan, options);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].memoryBytes = memory[s];
  return plan;
}

/// What a plan that turned out slower than the cost model says competes with: the best one without replicas, and data
/// parallelism, of which the cost model knows all, and where shards are chosen, those without a choice. Nobody shall
/// find a better plan by asking for these.
static std::vector<PlannerOptions> simplerPlans(const Cluster& cluster, const PlannerOptions& options) {
  std::vector<PlannerOptions> simpler(1, options);
  simpler.front().straight = true;
  for (const ShardPolicy alike : {ShardPolicy::none, ShardPolicy::optimizer})
    if (options.choosesShards()) {
      simpler.push_back(options);
      simpler.back().shard = alike;
    }
  const std::int64_t devices = cluster.deviceCount();
  if (options.schedule->inFlightFitsBatch && devices > options.microbatches) return simpler;
  simpler.push_back(options);
  simpler.back().stageReplicas = {static_cast<int>(devices)};
  return simpler;
}

/// The fastest of the best partition with codecs that take no time, whose time bounds all others from below, and, where
/// the planner chooses, the best one without; each with the codecs that suit it.
static Expected<Plan> planEncoded(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                                  Diagnostics& diags) {
  const CostGraph free = withFreeCodecs(graph);
  std::vector<std::optional<Solution>> solutions = {solve(free, cluster, options)};
  if (!solutions[0]) {
    reportNoPlan(free, cluster, options, diags);
    return failure;
  }
  const double lowerBoundMs = solutions[0]->lowerBoundMs;
  const bool chooses = options.edgeCodec.policy == EdgeCodecPolicy::automatic;
  if (chooses) solutions.push_back(solve(graph, cluster, options));
  std::optional<Plan> best;
  Diagnostics ignored(nullptr);
  for (const std::optional<Solution>& solution : solutions) {
    if (!solution) continue;
    const Partition& partition = solution->partition;
    const std::vector<bool> coded = chooses ? chooseCodecs(graph, cluster, options, partition) : allCodecs(graph);
    const CostGraph encoded = withCodecs(graph, partition, coded);
    const PlanCost cost = costOf(describePartition(encoded, cluster, options, partition, false), options);
    if (!cost.feasible) continue;
    Expected<Plan> plan = finish(encoded, cluster, options, {partition, cost, lowerBoundMs}, ignored);
    if (!plan || (best && best->timeMs <= plan->timeMs)) continue;
    best = std::move(*plan);
    best->lowerBoundMs = std::min(lowerBoundMs, best->timeMs);
    best->optimal = best->timeMs <= best->lowerBoundMs * (1 + 1e-9);
    markCodecs(*best, graph, coded, options.edgeCodec.codec);
  }
  if (best) return std::move(*best);
  return diags.error({graph.model}).exit(ExitCode::noPlan).help("allow more memory, or leave out --edge-codec")
         << "no plan fits with what encoding the edges needs";
}

/// Whether planPipeline has a plan.
static bool hasPlan(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options) {
  Diagnostics ignored(nullptr);
  if (!checkOptions(graph, cluster, options, ignored)) return false;
  if (options.edgeCodec.policy != EdgeCodecPolicy::none || options.schedule->stagesPerRank > 1)
    return static_cast<bool>(planPipeline(graph, cluster, options, ignored));
  return solve(withTiesKeptTogether(graph, options), cluster, options).has_value();
}

/// Below this many devices nothing fits: every parameter is in one of them at least.
static std::int64_t devicesForParameters(const CostGraph& graph, std::int64_t limitBytes) {
  std::int64_t bytes = 0;
  for (const CostNode& node : graph.nodes) bytes += node.parameterBytes + node.frozenBytes;
  for (const CostSharedParameter& parameter : graph.sharedParameters) bytes += parameter.bytes;
  for (const CostFrozenParameter& parameter : graph.frozenParameters) bytes += parameter.bytes;
  return std::max<std::int64_t>((bytes + limitBytes - 1) / limitBytes, 1);
}

std::optional<std::int64_t> pdc::fewestDevices(const CostGraph& graph, const Cluster& cluster,
                                               const PlannerOptions& options, std::int64_t most) {
  Cluster flat;
  const auto& levels = cluster.levels;
  const auto joins = std::find_if(levels.begin(), levels.end(), [](const auto& level) { return level.count > 1; });
  flat.levels = {joins == levels.end() ? levels.front() : *joins};
  flat.device = cluster.deviceAt(0);
  PlannerOptions free = options;
  free.stageReplicas.clear();
  free.stageShards.clear();
  if (free.warmupPolicy == WarmupPolicy::given) free.warmupPolicy = WarmupPolicy::hide;
  const std::int64_t limit = deviceClasses(flat, free)[0].memoryBytes;
  if (graph.nodes.empty() || limit <= 0) return std::nullopt;
  for (std::int64_t count = devicesForParameters(graph, limit); count <= most; ++count) {
    flat.levels[0].count = count;
    if (hasPlan(graph, flat, free)) return count;
  }
  return std::nullopt;
}

/// --shard=auto where ranks have several stages: what is whole, unless only shards of it fit, or are faster; alike in
/// all stages.
static Expected<Plan> planWithShards(const CostGraph& graph, const Cluster& cluster, PlannerOptions options,
                                     Diagnostics& diags) {
  std::vector<ShardPolicy> policies = {ShardPolicy::none, ShardPolicy::optimizer};
  if (options.schedule->sweeps(0, options.schedule->stagesPerRank) > 0) policies.push_back(ShardPolicy::weights);
  std::optional<Plan> best;
  double lowerBoundMs = 0;
  for (ShardPolicy policy : policies) {
    Diagnostics ignored(nullptr);
    options.shard = policy;
    Expected<Plan> plan = planPipeline(graph, cluster, options, ignored);
    if (!plan) continue;
    lowerBoundMs = best ? std::min(lowerBoundMs, plan->lowerBoundMs) : plan->lowerBoundMs;
    if (!best || plan->timeMs < best->timeMs * (1 - 1e-9)) best = std::move(*plan);
  }
  if (!best) { // what would fit with the most of shards
    options.shard = policies.back() == ShardPolicy::weights ? ShardPolicy::weights : ShardPolicy::none;
    return planPipeline(graph, cluster, options, diags);
  }
  best->lowerBoundMs = lowerBoundMs;
  best->optimal = best->timeMs <= lowerBoundMs * (1 + 1e-9);
  return std::move(*best);
}

/// Where the schedule of the best plan cannot be executed: the fastest of simpler ones that can.
static std::optional<Plan> planSimpler(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                                       double lowerBoundMs) {
  std::optional<Plan> best;
  for (const PlannerOptions& simpler : simplerPlans(cluster, options)) {
    const std::optional<Solution> solution = solve(graph, cluster, simpler);
    if (!solution || (best && solution->cost.timeMs >= best->timeMs)) continue;
    Diagnostics ignored(nullptr);
    Expected<Plan> plan = finish(graph, cluster, simpler, *solution, ignored);
    if (plan && (!best || plan->timeMs < best->timeMs)) best = std::move(*plan);
  }
  if (!best) return std::nullopt;
  best->lowerBoundMs = std::min(lowerBoundMs, best->timeMs);
  best->optimal = best->timeMs <= best->lowerBoundMs * (1 + 1e-9);
  return best;
}

Expected<Plan> pdc::planPipeline(const CostGraph& given, const Cluster& cluster, const PlannerOptions& options,
                                 Diagnostics& diags) {
  if (given.nodes.empty()) return diags.error({given.model}) << "expected a graph with at least one node, got none";
  if (!checkOptions(given, cluster, options, diags)) return failure;
  if (options.choosesShards() && options.schedule->stagesPerRank > 1)
    return planWithShards(given, cluster, options, diags);
  const CostGraph graph = withTiesKeptTogether(given, options);
  if (options.schedule->stagesPerRank > 1) return planLooped(graph, cluster, options, diags);
  if (options.edgeCodec.policy != EdgeCodecPolicy::none) return planEncoded(graph, cluster, options, diags);
  std::optional<Solution> solution = solve(graph, cluster, options);
  if (!solution) {
    reportNoPlan(graph, cluster, options, diags);
    return failure;
  }
  const bool isFree = options.stageReplicas.empty() && options.stageSplits.empty() && options.stageShards.empty() &&
                      options.warmupPolicy == WarmupPolicy::hide;
  Diagnostics silent(nullptr);
  Expected<Plan> plan = finish(graph, cluster, options, *solution, isFree ? silent : diags);
  if (!plan && isFree) {
    if (std::optional<Plan> simpler = planSimpler(graph, cluster, options, solution->lowerBoundMs))
      return std::move(*simpler);
    return finish(graph, cluster, options, *solution, diags); // says why it fails
  }
  if (!plan || plan->timeMs <= 1.01 * solution->cost.timeMs || options.straight || !options.stageReplicas.empty() ||
      !options.stageSplits.empty() || !options.stageShards.empty())
    return plan;
  // Only replicated stages beside others can need more in flight than the definition knows.
  const double lowerBoundMs = plan->lowerBoundMs;
  // Those that should be the fastest first; each takes the simulator a while.
  const std::size_t mostTried = cluster.deviceCount() > mostRanksExecuted ? 5 : 12;
  std::vector<std::pair<PlanCost, const Partition*>> likely;
  for (const Partition& partition : solution->likely) {
    PlanCost cost = costOf(describePartition(graph, cluster, options, partition, false), options);
    if (cost.feasible && cost.timeMs > solution->cost.timeMs * (1 + 1e-9))
      likely.emplace_back(std::move(cost), &partition);
  }
  std::stable_sort(likely.begin(), likely.end(),
                   [](const auto& a, const auto& b) { return a.first.timeMs < b.first.timeMs; });
  if (likely.size() > mostTried) likely.resize(mostTried);
  for (const auto& [cost, partition] : likely) {
    if (plan->timeMs <= 1.01 * lowerBoundMs || cost.timeMs >= plan->timeMs) break;
    Diagnostics ignored(nullptr);
    Expected<Plan> better = finish(graph, cluster, options, {*partition, cost, lowerBoundMs}, ignored);
    if (better && better->timeMs < plan->timeMs) plan = std::move(better);
  }
  for (const PlannerOptions& simpler : simplerPlans(cluster, options)) {
    std::optional<Solution> other = solve(graph, cluster, simpler);
    if (!other || other->cost.timeMs >= plan->timeMs) continue;
    Diagnostics ignored(nullptr);
    Expected<Plan> better = finish(graph, cluster, simpler, *other, ignored);
    if (!better || better->timeMs >= plan->timeMs) continue;
    better->lowerBoundMs = std::min(lowerBoundMs, better->timeMs);
    better->optimal = better->timeMs <= better->lowerBoundMs * (1 + 1e-9);
    plan = std::move(better);
  }
  return plan;
}
