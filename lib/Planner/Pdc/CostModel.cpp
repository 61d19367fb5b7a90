#include "pdc/Planner/CostModel.h"

#include "pdc/Schedule/PlanSchedule.h"
#include "pdc/Schedule/Warmup.h"

#include <algorithm>
#include <limits>

using namespace pdc;

static double linkBandwidth(const Cluster& cluster) {
  for (const ClusterLevel& level : cluster.levels)
    if (level.count > 1) return level.bandwidthBytesPerS;
  return std::numeric_limits<double>::infinity();
}

static double linkLatency(const Cluster& cluster) {
  for (const ClusterLevel& level : cluster.levels)
    if (level.count > 1) return level.latencyS;
  return 0;
}

std::int64_t pdc::memoryLimit(const Cluster& cluster) {
  return cluster.device.memoryBytes - cluster.device.reservedBytes;
}

static PlanStage sumOf(const CostGraph& graph, std::int64_t begin, std::int64_t end, double speed, bool withNames) {
  PlanStage stage;
  std::int64_t scratch = 0, workspace = 0;
  for (std::int64_t v = begin; v < end; ++v) {
    const CostNode& node = graph.nodes[v];
    stage.nodes.push_back(v);
    if (withNames) stage.nodeNames.push_back(node.name);
    stage.forwardMs += node.forwardMs / speed;
    stage.inputGradientMs += node.inputGradientMs / speed;
    stage.weightGradientMs += node.weightGradientMs / speed;
    stage.updateMs += node.updateMs / speed;
    stage.parameterBytes += node.parameterBytes;
    stage.gradientBytes += node.gradientBytes;
    stage.savedBytes += node.savedBytes;
    scratch = std::max(scratch, node.scratchBytes);
    workspace = std::max(workspace, node.workspaceBytes);
  }
  stage.scratchBytes = scratch + workspace;
  return stage;
}

Plan pdc::describePartition(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                            const Partition& partition, bool withNames) {
  Plan plan;
  plan.model = graph.model;
  plan.costSource = graph.costSource;
  plan.schedule = options.schedule;
  plan.weights = options.weights;
  plan.sync = options.sync;
  plan.microbatches = options.schedule == "1f1b" ? 1 : options.microbatches;
  plan.cluster = cluster;
  std::vector<int> stageOf(graph.nodes.size());
  std::int64_t begin = 0, device = 0;
  for (std::size_t s = 0; s < partition.ends.size(); ++s) {
    plan.stages.push_back(sumOf(graph, begin, partition.ends[s], cluster.device.speed, withNames));
    plan.stages.back().replicas = partition.replicas[s];
    for (; begin < partition.ends[s]; ++begin) stageOf[begin] = static_cast<int>(s);
    for (int q = 0; q < partition.replicas[s]; ++q) {
      plan.ranks.push_back(
          {.rank = static_cast<int>(device), .devices = {device}, .hosts = {{static_cast<int>(s), q}}});
      ++device;
    }
  }
  for (PlanStage& stage : plan.stages) {
    stage.syncDelay = syncDelayFor(plan, stage.replicas);
    double parts = static_cast<double>(stage.parameterBytes) / (stage.replicas * linkBandwidth(cluster));
    if (stage.replicas > 1) stage.allReduceMs = 1e3 * 2 * (stage.replicas - 1) * (parts + linkLatency(cluster));
  }
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const CostTensor& tensor = graph.tensors[i];
    int from = stageOf[tensor.from];
    std::vector<int> users;
    for (std::int64_t node : tensor.to) users.push_back(stageOf[node]);
    std::sort(users.begin(), users.end());
    users.erase(std::unique(users.begin(), users.end()), users.end());
    // Unnamed tensors get a name, because the name says which parts of a gradient belong together.
    std::string name = tensor.name.empty() ? "tensor" + std::to_string(i) : tensor.name;
    for (int to : users)
      if (to != from) plan.tensors.push_back({name, from, to, tensor.bytes, tensor.hasGradient});
  }
  return plan;
}

std::vector<std::int64_t> pdc::memoryOf(const Plan& plan, const PlannerOptions& options) {
  pdcrt::Schedule frame = emptySchedule(shapeOf(plan), plan.schedule);
  std::vector<EdgeTraffic> traffic = trafficOf(plan);
  std::vector<std::int64_t> memory;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PlanStage& stage = plan.stages[s];
    auto state =
        static_cast<std::int64_t>(options.optimizerStatePerParameterByte * static_cast<double>(stage.parameterBytes));
    std::int64_t slotBytes = stage.savedBytes;
    // A value that several stages use is one buffer of the slot.
    std::vector<const std::string*> sent;
    for (const PlanTensor& tensor : plan.tensors) {
      if (tensor.from != static_cast<int>(s)) continue;
      bool counted =
          std::any_of(sent.begin(), sent.end(), [&](const std::string* name) { return *name == tensor.name; });
      if (!counted) slotBytes += tensor.bytes;
      sent.push_back(&tensor.name);
    }
    std::int64_t bytes = stage.parameterBytes * frame.stages[s].versions + stage.gradientBytes * (stage.syncDelay + 1) +
                         state + slotBytes * frame.stages[s].slots + stage.scratchBytes;
    for (std::size_t e = 0; e < traffic.size(); ++e) {
      const pdcrt::EdgeRings& rings = frame.rings[e];
      if (traffic[e].edge.to == static_cast<int>(s))
        bytes += traffic[e].forwardBytes * rings.forwardReceive + traffic[e].backwardBytes * rings.backwardSend;
      if (traffic[e].edge.from == static_cast<int>(s)) bytes += traffic[e].backwardBytes * rings.backwardReceive;
    }
    memory.push_back(bytes);
  }
  return memory;
}

namespace {

/// Costs of a plan that do not depend on the warm-up.
struct Loads {
  double largest = 0; ///< of devices, all-reduces and links
  double coresMs = 0; ///< of all cores together
  std::int64_t bytesMoved = 0;
  std::vector<double> roundTripMs; ///< between stage t and t + 1
};

} // namespace

static Loads loadsOf(const Plan& plan) {
  Loads loads;
  std::size_t n = plan.stages.size();
  std::vector<double> out(n, 0), in(n, 0); // bytes of each stage's links, per minibatch, before dividing by replicas
  loads.roundTripMs.assign(n, 0);
  pdcrt::Times times = timesOf(plan);
  for (const EdgeTraffic& edge : trafficOf(plan)) {
    auto forward = static_cast<double>(edge.forwardBytes), backward = static_cast<double>(edge.backwardBytes);
    out[edge.edge.from] += forward;
    in[edge.edge.to] += forward;
    out[edge.edge.to] += backward;
    in[edge.edge.from] += backward;
    loads.bytesMoved += edge.forwardBytes + edge.backwardBytes;
    if (edge.edge.to == edge.edge.from + 1)
      loads.roundTripMs[edge.edge.from] = (edge.edge.forward ? times.transfer(edge.edge, true) : 0) +
                                          (edge.edge.backward ? times.transfer(edge.edge, false) : 0);
  }
  double bandwidth = linkBandwidth(plan.cluster);
  for (std::size_t s = 0; s < n; ++s) {
    const PlanStage& stage = plan.stages[s];
    double r = stage.replicas, reduced = 2 * (r - 1) / r * static_cast<double>(stage.parameterBytes);
    double exposed = stage.syncDelay == 0 ? stage.allReduceMs : 0;
    loads.largest = std::max({loads.largest, (stage.computeMs() + exposed + stage.updateMs) / r, stage.allReduceMs / r,
                              1e3 * (std::max(out[s], in[s]) + reduced) / bandwidth / r});
    loads.coresMs += stage.computeMs() + stage.updateMs;
    loads.bytesMoved +=
        2 * (stage.replicas - 1) * stage.parameterBytes / stage.replicas; // one update per r minibatches
  }
  return loads;
}

/// Time per microbatch of a flushing schedule, at least.
static double flushBound(const Plan& plan, const Loads& loads) {
  auto m = static_cast<double>(plan.microbatches);
  double before = 0, batch = 0, alone = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PlanStage& stage = plan.stages[s];
    auto local = static_cast<double>((plan.microbatches + stage.replicas - 1) / stage.replicas);
    batch = std::max(batch, before + local * stage.computeMs());
    alone = std::max(alone, local * stage.computeMs() + stage.allReduceMs + stage.updateMs);
    before += stage.computeMs() + loads.roundTripMs[s];
  }
  batch = std::max(batch, before) + plan.stages[0].allReduceMs + plan.stages[0].updateMs;
  return std::max(batch, alone) / m;
}

/// The bound of the loops that minibatches run through between two stages; infinite if the warm-up is not legal.
static double loopBound(const Plan& plan, const Loads& loads) {
  double bound = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    double loopMs = plan.stages[s].computeMs();
    for (std::size_t u = s + 1; u < plan.stages.size(); ++u) {
      loopMs += loads.roundTripMs[u - 1] + plan.stages[u].computeMs();
      double room = (plan.stages[s].warmup + 1.0) * plan.stages[s].replicas -
                    static_cast<double>(plan.stages[u].warmup) * plan.stages[u].replicas;
      if (room <= 0) return std::numeric_limits<double>::infinity();
      bound = std::max(bound, loopMs / room);
    }
  }
  return bound;
}

static PlanCost costWith(const Plan& plan, const PlannerOptions& options, const Loads& loads) {
  PlanCost cost;
  bool flush = plan.schedule == "1f1b-flush";
  cost.loadMs = flush ? flushBound(plan, loads) : std::max(loads.largest, loopBound(plan, loads));
  cost.timeMs = cost.loadMs;
  if (plan.cluster.device.cores > 0)
    cost.timeMs = std::max(cost.timeMs, loads.coresMs / static_cast<double>(plan.cluster.device.cores));
  for (std::int64_t bytes : memoryOf(plan, options)) cost.peakMemoryBytes = std::max(cost.peakMemoryBytes, bytes);
  cost.bytesMoved = loads.bytesMoved;
  cost.feasible = cost.peakMemoryBytes <= memoryLimit(plan.cluster) && cost.timeMs < 1e300;
  for (const PlanStage& stage : plan.stages) cost.warmup.push_back(stage.warmup);
  return cost;
}

PlanCost pdc::costWithWarmup(const Plan& plan, const PlannerOptions& options) {
  return costWith(plan, options, loadsOf(plan));
}

PlanCost pdc::costOf(const Plan& described, const PlannerOptions& options) {
  Plan plan = described;
  Loads loads = loadsOf(plan);
  auto set = [&](const std::vector<int>& warmup) {
    for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = warmup[s];
  };
  if (options.warmupPolicy == WarmupPolicy::given) {
    if (options.warmup.size() != plan.stages.size()) return {};
    set(options.warmup);
    return costWith(plan, options, loads);
  }
  if (options.warmupPolicy == WarmupPolicy::paper) {
    set(paperWarmup(plan));
    return costWith(plan, options, loads);
  }
  double target = plan.schedule == "1f1b-flush" ? flushBound(plan, loads) : loads.largest;
  if (plan.cluster.device.cores > 0)
    target = std::max(target, loads.coresMs / static_cast<double>(plan.cluster.device.cores));
  set(plan.schedule == "1f1b-flush" ? hideUpperBound(plan, target) : hideLowerBound(plan, target));
  // Where memory forbids it: as many as fit, and no stage further ahead than the one before it allows.
  std::int64_t limit = memoryLimit(plan.cluster);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    int& w = plan.stages[s].warmup;
    if (s > 0) w = std::min(w, plan.stages[s - 1].warmup * plan.stages[s - 1].replicas / plan.stages[s].replicas);
    while (w > 0 && memoryOf(plan, options)[s] > limit) --w;
  }
  return costWith(plan, options, loads);
}
