#include "pdc/Cost/CostModel.h"

#include "pdc/Cost/Crossings.h"
#include "pdc/Cost/PipelineLoops.h"
#include "pdc/Predict/Warmup.h"
#include "pdc/Schedule/PlanSchedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

using namespace pdc;

Partition pdc::partitionOfIntervals(const std::vector<std::int64_t>& ends, const std::vector<int>& replicas) {
  Partition partition;
  std::int64_t begin = 0;
  for (std::size_t s = 0; s < ends.size(); ++s) {
    PartitionStage& stage = partition.stages.emplace_back();
    for (; begin < ends[s]; ++begin) stage.nodes.push_back(begin);
    stage.replicas = replicas[s];
  }
  return partition;
}

static void describeStages(const CostGraph& graph, const Partition& partition, const Pipeline& pipeline, Plan& plan,
                           bool withNames) {
  for (std::size_t s = 0; s < partition.stages.size(); ++s) {
    const PipelineStage& from = pipeline.stages[s];
    PlanStage& stage = plan.stages.emplace_back();
    stage.nodes = partition.stages[s].nodes;
    if (withNames)
      for (std::int64_t v : stage.nodes) stage.nodeNames.push_back(graph.nodes[v].name);
    stage.replicas = from.replicas;
    stage.split = graph.in(partition.stages[s].split).split;
    stage.sharding = from.sharding;
    stage.shardDegree = from.shardDegree;
    stage.recompute = partition.stages[s].recompute;
    stage.syncDelay = from.syncDelay;
    stage.forwardMs = from.forwardMs;
    stage.inputGradientMs = from.inputGradientMs;
    stage.weightGradientMs = from.weightGradientMs;
    stage.updateMs = from.updateMs;
    stage.forwardTeamMs = from.forwardTeamMs;
    stage.backwardTeamMs = from.backwardTeamMs;
    stage.forwardHiddenTeamMs = from.forwardHiddenTeamMs;
    stage.backwardHiddenTeamMs = from.backwardHiddenTeamMs;
    stage.allReduceCoreMs = from.allReduceCoreMs;
    stage.allReduceMs = from.allReduceMs;
    stage.exposedSyncMs = from.exposedSyncMs;
    stage.buckets = from.buckets;
    stage.parameterBytes = from.bytes.parameters;
    stage.frozenBytes = from.bytes.frozen;
    stage.gradientBytes = from.bytes.gradients;
    stage.savedBytes = from.bytes.slot() - from.bytes.sent;
    stage.scratchBytes = from.bytes.working();
    stage.handoverBytes = from.bytes.handover;
    for (int q = 0; q < from.replicas; ++q) {
      std::size_t rank = from.firstRank + static_cast<std::size_t>(q);
      if (rank == plan.ranks.size()) {
        plan.ranks.push_back({.rank = static_cast<int>(rank), .devices = {}, .hosts = {}});
        for (int member = 0; member < from.team; ++member)
          plan.ranks[rank].devices.push_back(pipeline.leaves[rank] + member);
      }
      plan.ranks[rank].hosts.push_back({static_cast<int>(s), q});
    }
  }
}

Plan pdc::describePartition(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                            const Partition& partition, bool withNames) {
  Plan plan;
  plan.model = graph.model;
  plan.costSource = graph.costSource;
  plan.schedule = options.schedule;
  plan.weights = options.weights;
  plan.sync = options.sync;
  plan.microbatches = options.schedule->hasBatches ? options.microbatches : 1;
  plan.cluster = cluster;
  std::vector<int> stageOf;
  Pipeline pipeline = pipelineOf(graph, Machine(cluster, options), options, partition, stageOf);
  describeStages(graph, partition, pipeline, plan, withNames);
  for (PlanStage& stage : plan.stages)
    stage.optimizerBytes = options.optimizerBytes(stage.parameterBytes, stage.owners());
  describeCrossings(graph, plan);
  return plan;
}

std::vector<std::int64_t> pdc::memoryLimitsOf(const Plan& plan, const PlannerOptions& options) {
  std::vector<DeviceClass> classes = deviceClasses(plan.cluster, options);
  std::vector<std::int64_t> limits(plan.stages.size(), std::numeric_limits<std::int64_t>::max());
  if (classes.size() == 1) return std::vector<std::int64_t>(plan.stages.size(), classes[0].memoryBytes);
  for (const PlanRank& rank : plan.ranks)
    for (const PlanRank::Host& host : rank.hosts)
      for (const DeviceClass& device : classes)
        if (std::binary_search(device.leaves.begin(), device.leaves.end(), rank.devices[0]))
          limits[host.stage] = std::min(limits[host.stage], device.memoryBytes);
  return limits;
}

static std::vector<int> warmupOf(const Plan& plan) {
  std::vector<int> warmup;
  for (const PlanStage& stage : plan.stages) warmup.push_back(stage.warmup);
  return warmup;
}

std::vector<std::int64_t> pdc::memoryOf(const Plan& plan, const PlannerOptions& options) {
  const Pipeline pipeline = pipelineOf(plan, Machine(plan.cluster, options), options);
  const auto count = static_cast<int>(plan.stages.size());
  std::vector<std::int64_t> memory;
  if (plan.schedule->stagesPerRank == 1) {
    for (int s = 0; s < count; ++s) memory.push_back(memoryOf(pipeline, options, warmupOf(plan), s));
    return memory;
  }
  // Depths follow from the order of a batch. A rank takes the sum over the stages that it hosts.
  const pdcrt::Schedule schedule = frameOf(shapeOf(plan));
  const std::vector<EdgeTraffic> traffic = trafficOf(plan);
  for (int s = 0; s < count; ++s) {
    StageFrame frame = frameOf(schedule, s);
    frame.gradientSets = pipeline.stages[static_cast<std::size_t>(s)].syncDelay + 1;
    StageBytes bytes = bytesOf(pipeline.stages[static_cast<std::size_t>(s)], options);
    bytes.valuesIn = bytes.gradientsOut = bytes.gradientsIn = bytes.gradientsPast = 0;
    memory.push_back(stageMemory(frame, bytes).total() + ringBytes(schedule, traffic, s) + placesOf(pipeline, s));
  }
  for (const SharedUse& use : pipeline.shared) memory[use.user] += sharedBytes(use.bytes, 1, use.uses);
  return memory;
}

/// Time per microbatch of a schedule that updates once per batch and never drains, at least.
static double steadyBound(const Pipeline& pipeline) {
  double most = 0;
  for (const PipelineStage& stage : pipeline.stages)
    most = std::max(most, stage.computeMs() / stage.replicas +
                              (stage.exposedSyncMs + stage.updateMs) / static_cast<double>(pipeline.microbatches));
  return most;
}

/// Time per microbatch of a flushing schedule, at least: see pdc/Planner/CostModel.h.
static double flushBound(const Pipeline& pipeline, const PlannerOptions& options, const Loads& loads) {
  constexpr double never = -std::numeric_limits<double>::infinity();
  const bool splits = options.schedule->splitsBackward;
  std::size_t n = pipeline.stages.size();
  const bool inOneGo = options.schedule->sweeps(0, static_cast<int>(n)) > 0;
  auto backMs = [&](const PipelineStage& stage) { return splits ? stage.inputGradientMs : stage.backwardMs(); };
  // From the beginning of a batch to the first forward of a stage, and from its last gradient to stage 0's.
  std::vector<double> thereMs(n, never), returnMs(n, never);
  thereMs[0] = returnMs[0] = 0;
  for (std::size_t e = 0; e < pipeline.edges.size(); ++e) { // sorted by `from`, so what leads to it is known
    const PipelineEdge& edge = pipeline.edges[e];
    const PipelineStage& from = pipeline.stages[edge.from];
    bool moves = from.firstRank != pipeline.stages[edge.to].firstRank;
    double &there = thereMs[edge.to], &back = returnMs[edge.to];
    if (edge.forward) there = std::max(there, thereMs[edge.from] + from.forwardMs + (moves ? loads.forwardMs[e] : 0));
    if (edge.backward) back = std::max(back, returnMs[edge.from] + backMs(from) + (moves ? loads.backwardMs[e] : 0));
  }
  struct RankWork {
    double aroundMs = 0, awaitedMs = 0, wholeMs = 0, reduceMs = 0;
  };
  std::map<std::size_t, RankWork> ranks; // by their first rank; a stage's replicas are on ranks of their own
  double batchMs = 0;
  for (std::size_t s = 0; s < n; ++s) {
    const PipelineStage& stage = pipeline.stages[s];
    auto local = static_cast<double>((pipeline.microbatches + stage.replicas - 1) / stage.replicas);
    auto [found, isFirst] = ranks.try_emplace(stage.firstRank);
    RankWork& rank = found->second;
    if (isFirst) rank.aroundMs = thereMs[s] + returnMs[s];
    rank.awaitedMs += local * (stage.forwardMs + backMs(stage));
    rank.wholeMs += local * stage.computeMs() + stage.updateMs;
    // Several may go on at once, and beside the computations of other stages where a rank is done with one at a time.
    if (isFirst || !inOneGo) rank.reduceMs = std::max(rank.reduceMs, stage.exposedSyncMs);
    batchMs = std::max(batchMs, thereMs[s] + stage.forwardMs + backMs(stage) + returnMs[s]);
  }
  for (const auto& [first, rank] : ranks) batchMs = std::max(batchMs, rank.aroundMs + rank.awaitedMs);
  const PipelineStage& input = pipeline.stages[0];
  batchMs += input.exposedSyncMs + input.updateMs + (splits ? input.weightGradientMs : 0);
  for (const auto& [first, rank] : ranks) batchMs = std::max(batchMs, rank.wholeMs + rank.reduceMs);
  return batchMs / static_cast<double>(pipeline.microbatches);
}

static double batchBound(const Pipeline& pipeline, const PlannerOptions& options, const Loads& loads) {
  return options.schedule->flushes ? flushBound(pipeline, options, loads) : steadyBound(pipeline);
}

static bool fitsIntoMemory(const Pipeline& pipeline, const PlannerOptions& options, const std::vector<int>& warmup) {
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s)
    if (memoryOf(pipeline, options, warmup, static_cast<int>(s)) > pipeline.stages[s].limitBytes) return false;
  return true;
}

/// Where the kind demands it: what is in flight belongs to at most two batches.
static bool fitsIntoBatch(const Pipeline& pipeline, const PlannerOptions& options, const std::vector<int>& warmup) {
  if (!options.schedule->inFlightFitsBatch) return true;
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s)
    if ((std::int64_t{warmup[s]} + 1) * pipeline.stages[s].replicas > pipeline.microbatches) return false;
  return true;
}

/// PipeDream's warm-up has a minibatch in flight for each replica. More than a batch holds are not.
static bool fillsNoMoreThanABatch(const Pipeline& pipeline, const PlannerOptions& options) {
  std::int64_t replicas = 0;
  for (const PipelineStage& stage : pipeline.stages) replicas += stage.replicas;
  return !options.schedule->inFlightFitsBatch || replicas <= pipeline.microbatches;
}

static PlanCost costWith(const Pipeline& pipeline, const PlannerOptions& options, const Loads& loads,
                         std::vector<int> warmup) {
  PlanCost cost;
  cost.loadMs = pipeline.microbatches > 0
                    ? batchBound(pipeline, options, loads)
                    : std::max(loads.largest.ms, PipelineLoops(pipeline, loads).slowest(warmup).ms);
  cost.timeMs = std::max(cost.loadMs, loads.cores.ms);
  // Cores and a loop may add up the same times in another order: rounding must not decide which of them bounds.
  const bool coresBound = loads.cores.ms > 0 && loads.cores.ms >= cost.loadMs * (1 - 1e-9);
  if (coresBound && pipeline.microbatches == 0) cost.loadMs = loads.largest.ms;
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s)
    cost.peakMemoryBytes = std::max(cost.peakMemoryBytes, memoryOf(pipeline, options, warmup, static_cast<int>(s)));
  cost.bytesMoved = loads.bytesMoved;
  cost.feasible =
      fitsIntoMemory(pipeline, options, warmup) && fitsIntoBatch(pipeline, options, warmup) && cost.timeMs < 1e300;
  cost.warmup = std::move(warmup);
  return cost;
}

/// Raises the input stage's warm-up to what vertical sync needs, R_0·(w_0 + d_0) >= R_s·(w_s + d_s).
static void adjustForVerticalSync(const Pipeline& pipeline, std::vector<int>& warmup) {
  const PipelineStage& input = pipeline.stages[0];
  for (std::size_t s = 1; s < warmup.size(); ++s) {
    const PipelineStage& stage = pipeline.stages[s];
    int needed = stage.replicas * (warmup[s] + stage.syncDelay);
    warmup[0] = std::max(warmup[0], (needed + input.replicas - 1) / input.replicas - input.syncDelay);
  }
}

static PlanCost costOfHide(const Pipeline& pipeline, const PlannerOptions& options, const Loads& loads) {
  auto adjust = [&](std::vector<int>& warmup) {
    if (options.weights == pdcrt::WeightPolicy::verticalSync) adjustForVerticalSync(pipeline, warmup);
  };
  auto fits = [&](const std::vector<int>& warmup) { return fitsIntoMemory(pipeline, options, warmup); };
  PipelineLoops loops(pipeline, loads);
  WarmupChoice choice = fastestWarmup(loops, std::max(loads.largest.ms, loads.cores.ms), adjust, fits);
  if (!choice.warmup.empty()) return costWith(pipeline, options, loads, std::move(choice.warmup));
  double next = 0;
  std::vector<int> least = loops.warmupFor(1e300, next);
  adjust(least);
  return costWith(pipeline, options, loads, std::move(least)); // not feasible, but says how much memory would do
}

/// As many as fit, and no stage further ahead than the one before it allows.
static std::vector<int> cutToMemory(const Pipeline& pipeline, const PlannerOptions& options, std::vector<int> warmup) {
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    const PipelineStage& stage = pipeline.stages[s];
    if (s > 0) warmup[s] = std::min(warmup[s], warmup[s - 1] * pipeline.stages[s - 1].replicas / stage.replicas);
    while (warmup[s] > 0 && memoryOf(pipeline, options, warmup, static_cast<int>(s)) > stage.limitBytes) --warmup[s];
  }
  return warmup;
}

/// The warm-up of a schedule with batches. It hides everything at the bound; where that does not fit into memory, it is
/// the least for the smallest time whose loops fit. Cutting down single stages would leave their loops no room.
static std::vector<int> warmupOfBatches(const Pipeline& pipeline, const PlannerOptions& options, const Loads& loads,
                                        const Plan& plan, double targetMs) {
  const std::vector<int> wanted = hideUpperBound(plan, targetMs);
  std::vector<int> fitting = cutToMemory(pipeline, options, wanted);
  if (fitting == wanted) return fitting;
  const auto adjust = [&](std::vector<int>& warmup) {
    for (std::size_t s = 0; s < warmup.size(); ++s) warmup[s] = std::min(warmup[s], wanted[s]);
  };
  const auto fits = [&](const std::vector<int>& warmup) { return fitsIntoMemory(pipeline, options, warmup); };
  const WarmupChoice choice = fastestWarmup(PipelineLoops(pipeline, loads), targetMs, adjust, fits);
  return choice.warmup.empty() ? fitting : cutToMemory(pipeline, options, choice.warmup);
}

/// The warm-up that the kind of schedule prescribes; empty: none.
static std::vector<int> prescribed(const Pipeline& pipeline, const ScheduleDef& kind) {
  std::vector<int> warmup;
  for (const PipelineStage& stage : pipeline.stages)
    if (const std::optional<int> own = kind.warmup(pipeline.microbatches, stage.replicas)) warmup.push_back(*own);
  return warmup;
}

/// `describe` gives the plan, for policies whose warm-up follows from it.

template <class Describe>
static PlanCost costUnderPolicy(const Pipeline& pipeline, const Machine& machine, const PlannerOptions& options,
                                Describe describe) {
  Loads loads = loadsOf(pipeline, machine);
  if (std::vector<int> own = prescribed(pipeline, *options.schedule); !own.empty())
    return costWith(pipeline, options, loads, std::move(own));
  if (options.warmupPolicy == WarmupPolicy::given) {
    if (options.warmup.size() != pipeline.stages.size()) return {};
    return costWith(pipeline, options, loads, options.warmup);
  }
  if (options.warmupPolicy == WarmupPolicy::paper) {
    PlanCost cost = costWith(pipeline, options, loads, paperWarmup(describe()));
    cost.feasible = cost.feasible && fillsNoMoreThanABatch(pipeline, options);
    return cost;
  }
  if (pipeline.microbatches == 0) return costOfHide(pipeline, options, loads);
  double target = std::max(batchBound(pipeline, options, loads), loads.cores.ms);
  return costWith(pipeline, options, loads, warmupOfBatches(pipeline, options, loads, describe(), target));
}

double pdc::inFlightMs(const Plan& plan, const PlannerOptions& options) {
  const Machine machine(plan.cluster, options);
  const Pipeline pipeline = pipelineOf(plan, machine, options);
  const Loads loads = loadsOf(pipeline, machine);
  return PipelineLoops(pipeline, loads).slowestMsOfBatches(warmupOf(plan));
}

PlanCost pdc::costWithWarmup(const Plan& plan, const PlannerOptions& options) {
  Machine machine(plan.cluster, options);
  Pipeline pipeline = pipelineOf(plan, machine, options);
  return costWith(pipeline, options, loadsOf(pipeline, machine), warmupOf(plan));
}

PlanCost pdc::costWithFilledWarmup(const Plan& plan, const PlannerOptions& options) {
  if (!plan.schedule->flushes || !plan.schedule->takesWarmup() || options.warmupPolicy != WarmupPolicy::hide) return {};
  const Machine machine(plan.cluster, options);
  const Pipeline pipeline = pipelineOf(plan, machine, options);
  const std::vector<int> own = warmupOf(plan), most = fillWarmup(plan);
  for (const double share : {1.0, 0.75, 0.5, 0.25}) {
    std::vector<int> warmup = own;
    std::int64_t more =
        0; // minibatches of the stage behind: one in front has as many more, so that no loop gets shorter
    for (std::size_t s = own.size(); s-- > 0;) {
      const std::int64_t R = pipeline.stages[s].replicas;
      more = std::max<std::int64_t>((more + R - 1) / R, static_cast<std::int64_t>(share * (most[s] - own[s]))) * R;
      warmup[s] += static_cast<int>(more / R);
    }
    adjustWarmup(plan, warmup);
    if (warmup == own) return {};
    if (cutToMemory(pipeline, options, warmup) == warmup)
      return costWith(pipeline, options, loadsOf(pipeline, machine), std::move(warmup));
  }
  return {};
}

PlanCost pdc::costOf(const Plan& described, const PlannerOptions& options) {
  Machine machine(described.cluster, options);
  return costUnderPolicy(pipelineOf(described, machine, options), machine, options, [&] { return described; });
}

struct CostModel::Parts {
  const CostGraph& graph;
  const Cluster& cluster;
  const PlannerOptions& options;
  Machine machine;
};

CostModel::CostModel(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options)
    : parts_(new Parts{graph, cluster, options, Machine(cluster, options)}) {}
CostModel::~CostModel() = default;

PlanCost CostModel::costOf(const Partition& partition) const {
  const Parts& p = *parts_;
  std::vector<int> stageOf;
  Pipeline pipeline = pipelineOf(p.graph, p.machine, p.options, partition, stageOf);
  if (!pipeline.isPlaced || !bordersAreClean(p.graph, partition, stageOf)) return {};
  return costUnderPolicy(pipeline, p.machine, p.options,
                         [&] { return describePartition(p.graph, p.cluster, p.options, partition, false); });
}

bool pdc::isBetter(const PlanCost& a, const Partition& partitionA, const PlanCost& b, const Partition& partitionB) {
  auto differ = [](double x, double y) { return std::abs(x - y) > 1e-9 * std::max(x, y); };
  if (differ(a.timeMs, b.timeMs)) return a.timeMs < b.timeMs;
  if (differ(a.loadMs, b.loadMs)) return a.loadMs < b.loadMs;
  if (a.peakMemoryBytes != b.peakMemoryBytes) return a.peakMemoryBytes < b.peakMemoryBytes;
  if (a.bytesMoved != b.bytesMoved) return a.bytesMoved < b.bytesMoved;
  auto devices = [](const Partition& p) {
    return std::accumulate(p.stages.begin(), p.stages.end(), 0,
                           [](int sum, auto& s) { return sum + s.replicas * s.team; });
  };
  if (devices(partitionA) != devices(partitionB)) return devices(partitionA) < devices(partitionB);
  auto earlier = [&](auto key) {
    return std::lexicographical_compare(partitionA.stages.begin(), partitionA.stages.end(), partitionB.stages.begin(),
                                        partitionB.stages.end(),
                                        [&](const auto& x, const auto& y) { return key(x) < key(y); });
  };
  auto isEarlier = [&](auto key, bool& decided) {
    bool less = earlier(key);
    decided = less || std::lexicographical_compare(partitionB.stages.begin(), partitionB.stages.end(),
                                                   partitionA.stages.begin(), partitionA.stages.end(),
                                                   [&](const auto& x, const auto& y) { return key(x) < key(y); });
    return less;
  };
  bool decided = false, less = isEarlier([](const PartitionStage&s) { return s.nodes.size(); }, decided);
  if (decided) return less;
  less = isEarlier([](const PartitionStage& s) { return s.nodes; }, decided);
  if (decided) return less;
  return earlier(
      [](const PartitionStage& s) { return std::tuple(s.replicas, s.recompute, s.shards, s.ofClass, s.split); });
}
