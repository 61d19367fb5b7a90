#include "pdc/Planner/Explain.h"

#include "Search/Solver.h"
#include "pdc/Cost/Crossings.h"
#include "pdc/Cost/PipelineLoops.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Units.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>

using namespace pdc;

static constexpr std::int64_t unlimited = std::int64_t{1} << 60;

static std::string msText(double ms) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.*f ms", ms >= 100 ? 1 : ms >= 1 ? 3 : 6, ms);
  return text.data();
}

/// How a time compares with a shorter one: "2.04 times as slow", "0.1 % slower".
static std::string slowerText(double factor) {
  std::array<char, 48> text{};
  if (factor < 1.095)
    std::snprintf(text.data(), text.size(), "%.2g %% slower", 100 * (factor - 1));
  else
    std::snprintf(text.data(), text.size(), "%.2f times as slow", factor);
  return text.data();
}

static std::string fasterText(double factor) {
  std::array<char, 48> text{};
  if (factor < 1.095)
    std::snprintf(text.data(), text.size(), "%.2g %% faster", 100 * (factor - 1));
  else
    std::snprintf(text.data(), text.size(), "%.2f times as fast", factor);
  return text.data();
}

/// "the link of server 1 (devices 4 to 7) to 'rack', outwards".
static std::string linkName(const ResourceLoad& load, const Plan& plan, const Machine& machine) {
  std::string at = "device " + std::to_string(load.component);
  if (load.level > 0) {
    std::int64_t inside = machine.inside(load.level), first = load.component * inside;
    at = "'" + plan.cluster.levels[load.level - 1].name + "' " + std::to_string(load.component) + " (devices " +
         std::to_string(first) + " to " + std::to_string(first + inside - 1) + ")";
  } else {
    for (const PlanRank& rank : plan.ranks)
      if (rank.devices[0] == load.component) at += ", in stage " + std::to_string(rank.hosts[0].stage) + ",";
  }
  return "the link of " + at + " to '" + plan.cluster.levels[load.level].name + "', " +
         (load.up ? "outwards" : "inwards");
}

static std::string nameOf(const ResourceLoad& load, const Plan& plan, const Machine& machine) {
  std::string stage = "stage " + std::to_string(load.stage);
  switch (load.kind) {
  case ResourceKind::device:
    return "the " +
           std::string(plan.stages[load.stage].exposedSyncMs > 0 ? "computation and exposed all-reduce"
                                                                 : "computation") +
           " of " + stage;
  case ResourceKind::allReduce: return "the all-reduce of " + stage;
  case ResourceKind::link: return linkName(load, plan, machine);
  case ResourceKind::lane:
    return "the transfers from " + stage + " to stage " + std::to_string(load.other) + ", one after the other";
  case ResourceKind::cores: return "the cores that the devices share";
  case ResourceKind::loop:
    return "the way from " + stage + " to stage " + std::to_string(load.other) + " and back, with " +
           std::to_string(plan.stages[load.stage].warmup + 1) + " minibatches in flight";
  case ResourceKind::batch: break;
  }
  return "the fill and drain of each batch";
}

static void findBottleneck(const Plan& plan, const PlannerOptions& options, Explanation& explanation) {
  Machine machine(plan.cluster, options);
  Pipeline pipeline = pipelineOf(plan, machine, options);
  std::vector<ResourceLoad> all;
  Loads loads = loadsOf(pipeline, machine, &all);
  std::vector<int> warmup;
  for (const PlanStage& stage : plan.stages) warmup.push_back(stage.warmup);
  if (pipeline.microbatches == 0) all.push_back(PipelineLoops(pipeline, loads).slowest(warmup));
  if (pipeline.microbatches > 0) all.push_back({ResourceKind::batch, plan.timeMs});
  all.push_back(loads.cores);
  std::stable_sort(all.begin(), all.end(), [](const ResourceLoad& a, const ResourceLoad& b) { return a.ms > b.ms; });
  explanation.bottleneck = nameOf(all[0], plan, machine);
  explanation.bottleneckMs = all[0].ms;
  if (all.size() < 2 || all[1].ms <= 0) return;
  explanation.runnerUp = nameOf(all[1], plan, machine);
  explanation.runnerUpMs = all[1].ms;
}

namespace {

/// Costs of other plans, of pdc's own cost model or another planner's.
class Replanner {
public:
  Replanner(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options, const OtherPlanner& other)
      : graph_(graph), cluster_(cluster), options_(options), other_(other) {}

  bool isOwn() const { return !other_; }

  /// What the best plan would cost; nothing if there is none.
  std::optional<Plan> best(const Cluster& cluster, const PlannerOptions& options) const {
    Diagnostics ignored(nullptr);
    if (!isOwn() || options.schedule->stagesPerRank > 1 || options.edgeCodec.policy != EdgeCodecPolicy::none) {
      Expected<Plan> plan = (isOwn() ? planPipeline : other_)(graph_, cluster, options, ignored);
      if (!plan) return std::nullopt;
      return std::move(*plan);
    }
    std::optional<Solution> solution = solve(graph_, cluster, options);
    if (!solution) return std::nullopt;
    Plan plan = describePartition(graph_, cluster, options, solution->partition, false);
    plan.timeMs = solution->cost.timeMs;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = solution->cost.warmup[s];
    std::vector<std::int64_t> memory = memoryOf(plan, options);
    for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].memoryBytes = memory[s];
    return plan;
  }

  /// The best plan under `options`, or, where memory forbids every one, the best without the limit.
  Alternative alternative(const std::string& name, const PlannerOptions& options) const {
    Alternative result;
    result.name = name;
    std::optional<Plan> plan = best(cluster_, options);
    result.feasible = plan.has_value();
    if (!plan) {
      PlannerOptions without = options;
      without.memoryBytes = unlimited;
      plan = best(cluster_, without);
    }
    if (!plan) return result;
    result.timeMs = plan->timeMs;
    if (!isOwn()) return result;
    // The rank that is fullest for its device: in another plan, the one that does not fit.
    std::vector<std::int64_t> limits = memoryLimitsOf(*plan, options_);
    double fullest = -1;
    for (const PlanRank& rank : plan->ranks) {
      std::int64_t bytes = 0, limit = limits[rank.hosts[0].stage];
      for (const PlanRank::Host& host : rank.hosts) bytes += plan->stages[host.stage].memoryBytes;
      double part = static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(limit, 1));
      if (part <= fullest) continue;
      fullest = part;
      result.memoryBytes = bytes;
      result.limitBytes = limit;
    }
    if (fullest > 1) result.feasible = false;
    Explanation other;
    findBottleneck(*plan, options, other);
    result.reason = other.bottleneck;
    return result;
  }

private:
  const CostGraph& graph_;
  const Cluster& cluster_;
  const PlannerOptions& options_;
  const OtherPlanner& other_;
};

} // namespace

/// Completes `reason`, which holds the bottleneck of the alternative.
static void giveReason(Alternative& alternative, const Plan& plan) {
  std::string bottleneck = std::move(alternative.reason);
  if (alternative.timeMs <= 0) {
    alternative.reason = "there is no such plan";
  } else if (!alternative.feasible) {
    alternative.reason = "too much memory";
    if (alternative.memoryBytes > 0)
      alternative.reason +=
          ": " + sizeText(alternative.memoryBytes) + " on one device, the limit is " + sizeText(alternative.limitBytes);
  } else if (alternative.timeMs > plan.timeMs * (1 + 1e-9)) {
    alternative.reason = slowerText(alternative.timeMs / plan.timeMs);
    if (!bottleneck.empty()) alternative.reason += ": limited by " + bottleneck;
  } else if (alternative.timeMs < plan.timeMs * (1 - 1e-9)) {
    alternative.reason = fasterText(plan.timeMs / alternative.timeMs) + ", but not what the flags demand";
  } else {
    alternative.reason = "no faster";
  }
}

/// Leaves out the replicas and warm-up that the options force, so that every kind of plan is compared.
static PlannerOptions freed(const PlannerOptions& options) {
  PlannerOptions result = options;
  result.stageReplicas.clear();
  result.stageShards.clear();
  if (result.warmupPolicy == WarmupPolicy::given) result.warmupPolicy = WarmupPolicy::hide;
  return result;
}

static std::vector<Lever> leversOf(const Replanner& replanner, const Cluster& cluster, const PlannerOptions& options,
                                   bool knowsMemory) {
  std::vector<Lever> levers;
  auto add = [&](const std::string& name, const Cluster& changed, const PlannerOptions& changedOptions) {
    if (std::optional<Plan> plan = replanner.best(changed, changedOptions)) levers.push_back({name, plan->timeMs});
  };
  for (std::size_t i = 0; i < cluster.levels.size(); ++i) {
    if (cluster.levels[i].count < 2) continue;
    Cluster faster = cluster;
    faster.levels[i].bandwidthBytesPerS *= 2;
    add("twice the bandwidth of '" + cluster.levels[i].name + "'", faster, options);
  }
  if (knowsMemory) {
    PlannerOptions more = options;
    Cluster larger = cluster;
    if (more.memoryBytes > 0) more.memoryBytes *= 2;
    auto twice = [](DeviceKind& device) { device.memoryBytes += device.memoryBytes - device.reservedBytes; };
    twice(larger.device);
    for (DeviceGroup& group : larger.devices) twice(group.device);
    add("twice the memory", larger, more);
  }
  auto outer = std::find_if(cluster.levels.rbegin(), cluster.levels.rend(), [](const auto& l) { return l.count > 1; });
  if (outer != cluster.levels.rend() && cluster.devices.empty() && options.stageReplicas.empty()) {
    Cluster more = cluster;
    more.levels[static_cast<std::size_t>(outer.base() - cluster.levels.begin()) - 1].count *= 2;
    add("twice the devices", more, options);
  }
  Cluster faster = cluster;
  faster.device.speed *= 2;
  for (DeviceGroup& group : faster.devices) group.device.speed *= 2;
  add("devices twice as fast", faster, options);
  return levers;
}

/// What people ask about. `searches`: also plans that take as long to find as the plan itself.
static std::vector<Alternative> alternativesOf(const Replanner& replanner, const Cluster& cluster,
                                               const PlannerOptions& options, const Plan& plan, bool searches) {
  const bool own = replanner.isOwn();
  std::vector<Alternative> alternatives;
  if (options.schedule->isGiven) return alternatives; // its lists are for these stages only
  PlannerOptions free = freed(options);
  auto add = [&](const std::string& name, auto change) {
    PlannerOptions other = free;
    change(other);
    alternatives.push_back(replanner.alternative(name, other));
    giveReason(alternatives.back(), plan);
  };
  if (own) {
    auto devices = static_cast<int>(std::min<std::int64_t>(cluster.deviceCount(), 1 << 20));
    add("data parallelism", [&](PlannerOptions& o) { o.straight = false, o.stageReplicas = {devices}; });
    add("one device", [](PlannerOptions& o) { o.stageReplicas = {1}; });
  }
  if (!searches) return alternatives;
  add("straight pipeline", [](PlannerOptions& o) { o.straight = true; });
  add("without the memory limit", [](PlannerOptions& o) { o.memoryBytes = unlimited; });
  if (Alternative& without = alternatives.back(); own && without.timeMs > 0 && !without.feasible)
    without.reason = fasterText(plan.timeMs / without.timeMs) + ", but " + without.reason;
  if (options.edgeCodec.policy != EdgeCodecPolicy::none)
    add("without encoded edges", [](PlannerOptions& o) { o.edgeCodec = {}; });
  if (options.shard == ShardPolicy::weights)
    add("with whole weights", [](PlannerOptions& o) { o.shard = ShardPolicy::optimizer; });
  if (options.shard != ShardPolicy::none)
    add("with whole optimizer states", [](PlannerOptions& o) { o.shard = ShardPolicy::none; });
  if (options.shard == ShardPolicy::automatic && options.schedule->stagesPerRank == 1)
    add("with shards in all stages", [](PlannerOptions& o) { o.shard = ShardPolicy::optimizer; });
  if (!options.stageReplicas.empty() || options.warmupPolicy == WarmupPolicy::given)
    add("without the given replicas and warm-up", [](PlannerOptions&) {});
  return alternatives;
}

/// What ShardPolicy::automatic has come to where it is alike in all stages: other plans are like this one.
static PlannerOptions settled(PlannerOptions options, const Plan& plan) {
  if (!options.choosesShards() || options.schedule->stagesPerRank == 1) return options;
  options.shard = ShardPolicy::none;
  for (const PlanStage& stage : plan.stages) {
    if (stage.sharding == pdcrt::Sharding::weights) options.shard = ShardPolicy::weights;
    if (stage.sharding == pdcrt::Sharding::optimizer && options.shard == ShardPolicy::none)
      options.shard = ShardPolicy::optimizer;
  }
  return options;
}

std::vector<Alternative> pdc::runnersUp(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& given,
                                        const Plan& plan) {
  const PlannerOptions options = settled(given, plan);
  constexpr std::int64_t quick = 512; // nodes times devices: well below a second
  auto nodes = static_cast<std::int64_t>(graph.nodes.size());
  const OtherPlanner none;
  return alternativesOf(Replanner(graph, cluster, options, none), cluster, options, plan,
                        nodes <= quick && cluster.deviceCount() <= quick && nodes * cluster.deviceCount() <= quick);
}

/// A tensor that is encoded takes less of a link, and more of the devices at both ends. Each is seen by itself.
static std::vector<CodedEdge> edgesOf(const CostGraph& graph, const Plan& plan) {
  std::vector<CodedEdge> edges;
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const CostTensor& tensor = graph.tensors[i];
    if (!tensor.codec) continue;
    const std::string name = nameOfTensor(graph, i);
    for (const PlanTensor& crossing : plan.tensors) {
      if (crossing.name != name) continue;
      const CostCodec& codec = *tensor.codec;
      edges.push_back({.name = name,
                       .from = crossing.from,
                       .to = crossing.to,
                       .isCoded = crossing.codec.has_value(),
                       .bytes = tensor.bytes,
                       .codedBytes = codec.bytes,
                       .paysBelowBytesPerS =
                           static_cast<double>(tensor.bytes - codec.bytes) / (codec.encodeMs + codec.decodeMs) * 1e3});
    }
  }
  return edges;
}

/// What shards save and cost, of every stage that has replicas.
static std::vector<ShardedStage> shardsOf(const Plan& plan, const PlannerOptions& options) {
  std::vector<ShardedStage> stages;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PlanStage& stage = plan.stages[s];
    if (stage.replicas == 1) continue;
    const bool isSharded = stage.isSharded();
    const int sweeps = options.schedule->sweeps(static_cast<int>(s), static_cast<int>(plan.stages.size()));
    const bool isInShards = stage.sharding == pdcrt::Sharding::weights;
    const int owners = isSharded ? stage.owners() : stage.replicas;
    const double sums =
        isInShards ? sumShare(stage.replicas, owners) + sweeps * gatherShare(stage.replicas, owners) : 1;
    const double updateMs = stage.updateMs - sums * stage.allReduceCoreMs; // without what the sums take
    stages.push_back({.stage = static_cast<int>(s),
                      .replicas = stage.replicas,
                      .isSharded = isSharded,
                      .owners = owners,
                      .savedBytes = options.optimizerBytes(stage.parameterBytes, 1) -
                                    options.optimizerBytes(stage.parameterBytes, owners),
                      .updateMs = isSharded ? updateMs * owners : updateMs,
                      .shardUpdateMs = isSharded ? updateMs : updateMs / owners,
                      .gatherMs = stage.gatherMs(),
                      .sweeps = isInShards ? sweeps : 0,
                      .savedWeightBytes = !isInShards ? 0
                                                      : stage.parameterBytes + stage.gradientBytes -
                                                            2 * ((stage.parameterBytes + owners - 1) / owners)});
  }
  return stages;
}

Explanation pdc::explainPlan(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& given,
                             const Plan& plan, const OtherPlanner& other) {
  const PlannerOptions options = settled(given, plan);
  Explanation explanation;
  if (!other) findBottleneck(plan, options, explanation);
  Replanner replanner(graph, cluster, options, other);
  explanation.alternatives = alternativesOf(replanner, cluster, options, plan, /*searches=*/true);
  if (options.edgeCodec.policy != EdgeCodecPolicy::none) explanation.edges = edgesOf(graph, plan);
  if (given.shard != ShardPolicy::none) explanation.shards = shardsOf(plan, options);
  explanation.levers = leversOf(replanner, cluster, options, replanner.isOwn() || options.memoryBytes > 0);
  return explanation;
}

std::string pdc::toText(const Explanation& explanation, const Plan& plan) {
  std::string text;
  if (!explanation.bottleneck.empty()) {
    text += "limited by " + explanation.bottleneck + ": " + msText(explanation.bottleneckMs) + " per minibatch\n";
    if (!explanation.runnerUp.empty())
      text += "next is " + explanation.runnerUp + ": " + msText(explanation.runnerUpMs) + "\n";
  }
  text += "other plans:\n";
  std::size_t width = 0;
  for (const Alternative& alternative : explanation.alternatives) width = std::max(width, alternative.name.size());
  for (const Lever& lever : explanation.levers) width = std::max(width, lever.name.size());
  auto line = [&](const std::string& name, const std::string& time, const std::string& rest) {
    text += "  " + name + std::string(width - name.size() + 2, ' ') + time;
    if (!rest.empty()) text += std::string(time.size() < 14 ? 14 - time.size() : 1, ' ') + rest;
    text += "\n";
  };
  for (const Alternative& alternative : explanation.alternatives)
    line(alternative.name, alternative.timeMs > 0 ? msText(alternative.timeMs) : "-", alternative.reason);
  text += "what would help:\n";
  for (const Lever& lever : explanation.levers) {
    bool helps = lever.timeMs < plan.timeMs * (1 - 1e-9);
    line(lever.name, msText(lever.timeMs), helps ? fasterText(plan.timeMs / lever.timeMs) : "no faster");
  }
  if (!explanation.shards.empty()) text += "shards:\n";
  for (const ShardedStage& of : explanation.shards)
    text += "  stage " + std::to_string(of.stage) + ", " + std::to_string(of.replicas) + " replicas" +
            (of.owners < of.replicas ? " in groups of " + std::to_string(of.owners) : std::string()) + ": " +
            (of.isSharded ? "saves " : "whole; shards would save ") + sizeText(of.savedBytes) + " of optimizer state" +
            (of.sweeps > 0 ? ", " + sizeText(of.savedWeightBytes) + " of weights and gradients" : "") +
            " in each; an update takes " + msText(of.shardUpdateMs) + " instead of " + msText(of.updateMs) +
            (of.sweeps == 0 ? ", then " + msText(of.gatherMs) + " to gather it\n"
                            : "; " + msText(of.gatherMs) + " to gather the weights, " +
                                  (of.sweeps == 1 ? "once" : std::to_string(of.sweeps) + " times") + " per batch\n");
  if (!explanation.edges.empty()) text += "edges:\n";
  for (const CodedEdge& edge : explanation.edges)
    text += "  '" + edge.name + "' " + std::to_string(edge.from) + ">" + std::to_string(edge.to) + ": " +
            (edge.isCoded
                 ? "int8, " + std::to_string(edge.codedBytes) + " of " + std::to_string(edge.bytes) + " bytes"
                 : "exact, " + std::to_string(edge.bytes) + " bytes, " + std::to_string(edge.codedBytes) + " as int8") +
            "; alone, coding pays on links below " + sizeText(std::llround(edge.paysBelowBytesPerS)) + "/s\n";
  return text;
}
