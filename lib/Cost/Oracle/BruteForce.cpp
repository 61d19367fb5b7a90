// The oracle: every chain of down-sets with every choice of replicas, devices and recomputation, each evaluated from
// the definition.
#include "Oracle/Definition.h"

#include "pdc/Predict/Simulate.h"

#include <algorithm>
#include <cmath>

using namespace pdc;

namespace {

/// Sums over a set of nodes.
struct NodeSums {
  double computeMs = 0, forwardMs = 0, updateMs = 0;
  std::int64_t parameters = 0, gradients = 0, saved = 0, handover = 0; ///< bytes
  std::int64_t scratch = 0, workspace = 0;                             ///< the largest
  bool isClosed = true; ///< holds what its members need, and whole colours
};

class Enumeration {
public:
  Enumeration(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options)
      : graph_(graph), cluster_(cluster), options_(options), nodes_(graph.nodes.size()) {
    for (int split = 0; split < graph.splits(); ++split) describe(graph.in(split));
    for (std::int64_t leaf = 0; leaf < cluster.deviceCount(); ++leaf) {
      const DeviceKind& device = cluster.deviceAt(leaf);
      auto key = std::pair(device.speed, device.memoryBytes - device.reservedBytes);
      if (options.memoryBytes > 0) key.second = options.memoryBytes;
      std::size_t c = 0;
      while (c < kinds_.size() && kinds_[c] != key) ++c;
      if (c == kinds_.size()) kinds_.push_back(key), leaves_.emplace_back();
      leaves_[c].push_back(leaf);
    }
    if (!cluster.levels.empty() && cluster.levels[0].bandwidthBytesPerS > 0)
      bytesPerMs_ = cluster.levels[0].bandwidthBytesPerS / 1e3;
  }

  /// Passes over the plans none of whose stages takes longer than a cap by itself, with growing caps. Once the best
  /// plan takes no longer than the cap, what was left out is slower.
  std::optional<PlanCost> run() {
    constexpr double growth = 1.25;
    constexpr int mostPasses = 4; // without a plan; where there is none, each may try all
    for (int pass = 1;; ++pass) {
      leftOutMs_ = INFINITY;
      extend(0, std::vector<std::size_t>(kinds_.size(), 0));
      if (leftOutMs_ == INFINITY || (best_ && best_->timeMs <= capMs_)) return best_;
      capMs_ = best_ ? best_->timeMs : pass < mostPasses ? std::max(capMs_ * growth, leftOutMs_) : INFINITY;
    }
  }

private:
  struct Tensor {
    std::uint32_t from = 0, users = 0, parts = 0; ///< sets of nodes; the last have a part of the gradient
    double bytes = 0;
  };

  /// What a stage is in one split.
  struct Split {
    const CostGraph* graph = nullptr;
    int members = 1;
    std::vector<NodeSums> sums; ///< of each set of nodes
    std::vector<Tensor> tensors;
  };

  void describe(const CostGraph& graph) {
    Split& split = splits_.emplace_back();
    split.graph = &graph;
    split.members = graph.split.members;
    for (const CostTensor& tensor : graph.tensors) {
      std::uint32_t users = 0;
      for (std::int64_t to : tensor.to) users |= std::uint32_t{1} << to;
      std::uint32_t parts = 0;
      for (std::int64_t user : tensor.gradientUsers()) parts |= std::uint32_t{1} << user;
      split.tensors.push_back({std::uint32_t{1} << tensor.from, users, parts, static_cast<double>(tensor.bytes)});
    }
    std::vector<std::uint32_t> before(nodes_, 0);
    for (const CostTensor& tensor : graph.tensors)
      for (std::int64_t to : tensor.to) before[static_cast<std::size_t>(to)] |= std::uint32_t{1} << tensor.from;
    split.sums.resize(std::size_t{1} << nodes_);
    for (std::uint32_t set = 0; set < split.sums.size(); ++set) {
      NodeSums& sums = split.sums[set];
      for (std::size_t v = 0; v < nodes_; ++v) {
        if (!(set >> v & 1)) continue;
        const CostNode& node = graph.nodes[v];
        sums.computeMs += node.forwardMs + node.inputGradientMs + node.weightGradientMs;
        sums.forwardMs += node.forwardMs;
        sums.updateMs += node.updateMs;
        sums.parameters += node.parameterBytes;
        sums.gradients += node.gradientBytes;
        sums.saved += node.savedBytes;
        sums.handover += node.handoverBytes;
        sums.scratch = std::max(sums.scratch, node.scratchBytes);
        sums.workspace = std::max(sums.workspace, node.workspaceBytes);
        if (before[v] & ~set) sums.isClosed = false;
        for (std::size_t u = 0; u < nodes_; ++u)
          if (node.colour >= 0 && graph.nodes[u].colour == node.colour && !(set >> u & 1)) sums.isClosed = false;
      }
    }
  }

  /// Whether no plan with a load of so many ms is looked at: it is slower than the best one, or left to a later pass.
  bool isTooSlow(double ms) {
    if (best_ && ms > best_->timeMs * (1 + 1e-9)) return true;
    if (ms <= capMs_ * (1 + 1e-9)) return false;
    leftOutMs_ = std::min(leftOutMs_, ms);
    return true;
  }

  /// Adds every next stage to the stages that hold the nodes `taken` and so many devices of each kind.
  void extend(std::uint32_t taken, const std::vector<std::size_t>& used) {
    std::uint32_t all = (std::uint32_t{1} << nodes_) - 1, rest = all & ~taken;
    if (rest == 0) return evaluate();
    if (isTooSlow(leastMs(rest, used))) return;
    for (std::uint32_t stage = rest; stage > 0; stage = (stage - 1) & rest)
      if (splits_[0].sums[taken | stage].isClosed)
        for (const Split& split : splits_) chooseDevices(taken, stage, split, used, 0, {});
  }

  /// The computation of the nodes `rest` alone on the devices that are left; infinite if there are none.
  double leastMs(std::uint32_t rest, const std::vector<std::size_t>& used) const {
    double speed = 0;
    for (std::size_t c = 0; c < kinds_.size(); ++c)
      speed += kinds_[c].first * static_cast<double>(leaves_[c].size() - used[c]);
    double workMs = INFINITY; // a node may be divided better than another one: no split is better for each
    for (std::size_t v = 0; v < nodes_; ++v) {
      if (!(rest >> v & 1)) continue;
      double least = INFINITY;
      for (const Split& split : splits_)
        least = std::min(least, split.members * split.sums[std::size_t{1} << v].computeMs);
      workMs = workMs == INFINITY ? least : workMs + least;
    }
    return speed > 0 ? workMs / speed : 0;
  }

  /// The next places for a team of so many neighbours on one machine among the leaves of a kind: where it ends there.
  std::size_t endOfTeam(std::size_t kind, std::size_t begin, int members) const {
    const std::vector<std::int64_t>& leaves = leaves_[kind];
    const std::int64_t machine = cluster_.levels.empty() ? 1 : cluster_.levels[0].count;
    for (std::size_t first = begin; first < leaves.size(); ++first) {
      std::size_t end = first + 1;
      while (end < leaves.size() && end < first + static_cast<std::size_t>(members) &&
             leaves[end] == leaves[end - 1] + 1 && leaves[end] / machine == leaves[first] / machine)
        ++end;
      if (end == first + static_cast<std::size_t>(members)) return end;
    }
    return 0; // none
  }

  /// `leaves`: the first of each team.
  void chooseDevices(std::uint32_t taken, std::uint32_t nodes, const Split& split, const std::vector<std::size_t>& used,
                     std::size_t kind, std::vector<std::int64_t> leaves) {
    if (kind < kinds_.size()) {
      std::vector<std::size_t> more = used;
      chooseDevices(taken, nodes, split, more, kind + 1, leaves);
      while (const std::size_t end = endOfTeam(kind, more[kind], split.members)) {
        leaves.push_back(leaves_[kind][end - static_cast<std::size_t>(split.members)]);
        more[kind] = end;
        chooseDevices(taken, nodes, split, more, kind + 1, leaves);
      }
      return;
    }
    if (leaves.empty() || (options_.straight && leaves.size() > 1)) return;
    if (!options_.stageReplicas.empty() &&
        (plan_.stages.size() >= options_.stageReplicas.size() ||
         (options_.stageReplicas[plan_.stages.size()] > 0 &&
          static_cast<int>(leaves.size()) != options_.stageReplicas[plan_.stages.size()])))
      return;
    for (const auto& [recompute, shards] : choicesFor(leaves.size())) {
      if (!mayFit(taken, nodes, split, leaves, shards) ||
          isTooSlow(leastMs(taken, nodes, split, leaves, recompute, shards)))
        continue;
      PlanStage stage;
      stage.split = split.graph->split;
      for (std::size_t v = 0; v < nodes_; ++v)
        if (nodes >> v & 1) stage.nodes.push_back(static_cast<std::int64_t>(v));
      stage.replicas = static_cast<int>(leaves.size());
      stage.recompute = recompute;
      if (shards) stage.sharding = pdcrt::Sharding::optimizer;
      for (std::size_t q = 0; q < leaves.size(); ++q) {
        plan_.ranks.push_back(
            {static_cast<int>(plan_.ranks.size()), {}, {{static_cast<int>(plan_.stages.size()), static_cast<int>(q)}}});
        for (int m = 0; m < split.members; ++m) plan_.ranks.back().devices.push_back(leaves[q] + m);
      }
      plan_.stages.push_back(std::move(stage));
      extend(taken | nodes, used);
      plan_.stages.pop_back();
      plan_.ranks.resize(plan_.ranks.size() - leaves.size());
    }
  }

  /// Recomputation, and whether the replicas divide the optimizer's state, that a stage of so many may have.
  std::vector<std::pair<bool, bool>> choicesFor(std::size_t replicas) const {
    std::vector<bool> shards = {options_.shard == ShardPolicy::optimizer && replicas > 1};
    if (options_.shard == ShardPolicy::automatic && replicas > 1) {
      shards = {false, true};
      if (plan_.stages.size() < options_.stageShards.size()) shards = {options_.stageShards[plan_.stages.size()]};
    }
    std::vector<std::pair<bool, bool>> choices;
    for (bool own : shards)
      for (bool recompute : {false, true})
        if (options_.recompute == RecomputePolicy::automatic ||
            recompute == (options_.recompute == RecomputePolicy::all))
          choices.emplace_back(recompute, own);
    return choices;
  }

  /// Whether each device holds the stage without any warm-up: one minibatch, one version of the weights, and the rings
  /// of what crosses its borders, which have two places each.
  bool mayFit(std::uint32_t taken, std::uint32_t nodes, const Split& split, const std::vector<std::int64_t>& leaves,
              bool shards) const {
    const NodeSums& sums = split.sums[nodes];
    const std::uint32_t after = ~(taken | nodes);
    const bool steady = !options_.schedule->hasBatches, isAlone = nodes + 1 == split.sums.size();
    auto state =
        static_cast<std::int64_t>(options_.optimizerStatePerParameterByte * static_cast<double>(sums.parameters));
    if (shards) state /= static_cast<std::int64_t>(leaves.size());
    std::int64_t least =
        sums.parameters + sums.gradients + state + sums.saved + sums.handover + sums.scratch + sums.workspace;
    if (steady && options_.sync == SyncPolicy::overlap && leaves.size() > 1 && !isAlone) least += sums.gradients;
    for (std::size_t t = 0; steady && t < split.tensors.size(); ++t) {
      const Tensor& tensor = split.tensors[t];
      const std::int64_t bytes = split.graph->tensors[t].bytes;
      const bool comes = (tensor.from & taken) && (tensor.users & nodes), isMade = tensor.from & nodes;
      const bool givesPart = (tensor.from & taken) && (tensor.parts & nodes);
      if (comes) least += 2 * bytes;
      if (givesPart) least += 2 * bytes;
      if (isMade && (tensor.users & after)) least += bytes;
      const bool sumsUp = givesPart && !(tensor.parts & taken); // else parts may go past it
      if ((sumsUp || isMade) && (tensor.parts & after)) least += 2 * bytes;
    }
    return std::all_of(leaves.begin(), leaves.end(), [&](std::int64_t leaf) {
      const DeviceKind& device = cluster_.deviceAt(leaf);
      return least <= (options_.memoryBytes > 0 ? options_.memoryBytes : device.memoryBytes - device.reservedBytes);
    });
  }

  /// What the stage takes per minibatch wherever the others are: its slowest device, and the link of each device, over
  /// which come and go the values that cross its borders, each once, and its part of the all-reduce.
  double leastMs(std::uint32_t taken, std::uint32_t nodes, const Split& split, const std::vector<std::int64_t>& leaves,
                 bool recompute, bool shards) const {
    const NodeSums& sums = split.sums[nodes];
    const auto r = static_cast<double>(leaves.size());
    const bool steady = !options_.schedule->hasBatches;
    const double share = shards ? r : 1;
    double speed = INFINITY;
    for (std::int64_t leaf : leaves) speed = std::min(speed, cluster_.deviceAt(leaf).speed);
    double ms = (sums.computeMs + (recompute ? sums.forwardMs : 0) + (steady ? sums.updateMs / share : 0)) / speed;
    if (!steady) return ms / r;
    double in = 2 * (r - 1) / r * static_cast<double>(sums.parameters), out = in;
    for (const Tensor& tensor : split.tensors) {
      if ((tensor.from & taken) && (tensor.users & nodes)) in += tensor.bytes;
      if ((tensor.from & nodes) && (tensor.users & ~taken & ~nodes)) out += tensor.bytes;
    }
    return std::max(ms, std::max(in, out) / bytesPerMs_) / r;
  }

  void evaluate() {
    if (!options_.stageReplicas.empty() && plan_.stages.size() != options_.stageReplicas.size()) return;
    if (!options_.stageShards.empty() && plan_.stages.size() != options_.stageShards.size()) return;
    if (options_.schedule->hasBatches) return evaluateFlushing();
    plan_.schedule = options_.schedule;
    plan_.weights = options_.weights;
    plan_.sync = options_.sync;
    plan_.cluster = cluster_;
    Definition definition(graph_, plan_, options_);
    if (isTooSlow(std::max(definition.largestLoad(), definition.coresLoad()))) return;
    std::vector<int> warmup = options_.warmup;
    const double limitMs = best_ ? best_->timeMs * (1 + 1e-9) : INFINITY;
    if (options_.warmupPolicy == WarmupPolicy::hide) warmup = definition.bestWarmup(limitMs);
    if (options_.warmupPolicy == WarmupPolicy::paper) warmup = paperWarmup();
    if (warmup.size() != plan_.stages.size()) return;
    for (std::size_t s = 0; s < warmup.size(); ++s) plan_.stages[s].warmup = warmup[s];
    PlanCost cost = definition.evaluate();
    if (cost.feasible && (!best_ || isLess(cost, *best_))) best_ = cost;
  }

  /// PipeDream's, and what vertical sync adds.
  std::vector<int> paperWarmup() const {
    int left = 0;
    for (const PlanStage& stage : plan_.stages) left += stage.replicas;
    std::vector<int> warmup;
    for (const PlanStage& stage : plan_.stages) {
      warmup.push_back((left - 1) / stage.replicas);
      left -= stage.replicas;
    }
    if (options_.weights != pdcrt::WeightPolicy::verticalSync) return warmup;
    auto ahead = [&](std::size_t s) {
      int R = plan_.stages[s].replicas;
      return R * (warmup[s] + (options_.sync == SyncPolicy::overlap && warmup.size() > 1 && R > 1 ? 1 : 0));
    };
    for (std::size_t s = 1; s < warmup.size(); ++s)
      while (ahead(0) < ahead(s)) ++warmup[0];
    return warmup;
  }

  /// Time, load, memory, bytes, devices, as docs/PlannerModels.md orders plans.
  static bool isLess(const PlanCost& a, const PlanCost& b) {
    auto differ = [](double x, double y) { return std::abs(x - y) > 1e-9 * std::max(x, y); };
    if (differ(a.timeMs, b.timeMs)) return a.timeMs < b.timeMs;
    if (differ(a.loadMs, b.loadMs)) return a.loadMs < b.loadMs;
    if (a.peakMemoryBytes != b.peakMemoryBytes) return a.peakMemoryBytes < b.peakMemoryBytes;
    return a.bytesMoved < b.bytesMoved;
  }

  /// By a long simulation, with the warm-up of the cost model.
  void evaluateFlushing() {
    Partition partition;
    for (const PlanStage& stage : plan_.stages) {
      PartitionStage& part = partition.stages.emplace_back();
      part.nodes = stage.nodes;
      part.replicas = stage.replicas;
      part.recompute = stage.recompute;
      part.shards = stage.sharding != pdcrt::Sharding::none;
      part.team = stage.split.members;
      while (graph_.in(part.split).split != stage.split) ++part.split;
      part.ofClass.assign(kinds_.size(), 0);
    }
    for (const PlanRank& rank : plan_.ranks)
      for (std::size_t c = 0; c < kinds_.size(); ++c)
        if (std::binary_search(leaves_[c].begin(), leaves_[c].end(), rank.devices[0]))
          ++partition.stages[static_cast<std::size_t>(rank.hosts[0].stage)].ofClass[c];
    Plan plan = describePartition(graph_, cluster_, options_, partition, false);
    PlanCost cost = costOf(plan, options_);
    if (!cost.feasible || !definitionAllows(plan)) return;
    const auto execute = [&](PlanCost& of) {
      for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = of.warmup[s];
      of.timeMs = std::max(of.timeMs, simulate(plan, buildSchedule(shapeOf(plan))).timePerMinibatchMs);
    };
    const double leastMs = cost.timeMs;
    execute(cost);
    if (PlanCost filled = costWithFilledWarmup(plan, options_); filled.feasible && cost.timeMs > 1.001 * leastMs) {
      execute(filled);
      if (1.001 * filled.timeMs < cost.timeMs) cost = filled;
    }
    cost.loadMs = cost.timeMs;
    if (!best_ || cost.timeMs < best_->timeMs) best_ = cost;
  }

  /// Whether the stages may meet as they do.
  bool definitionAllows(const Plan& plan) const { return Definition(graph_, plan, options_).bordersAreClean(); }

  const CostGraph& graph_;
  const Cluster& cluster_;
  const PlannerOptions& options_;
  std::size_t nodes_;
  std::vector<Split> splits_;
  double bytesPerMs_ = INFINITY;                       ///< of the link of a device
  std::vector<std::pair<double, std::int64_t>> kinds_; ///< speed and memory of each class of devices
  std::vector<std::vector<std::int64_t>> leaves_;      ///< of each class
  Plan plan_;                                          ///< so far
  std::optional<PlanCost> best_;
  double capMs_ = 0, leftOutMs_ = 0; ///< of this pass; the least load that was too much for it
};

} // namespace

std::optional<PlanCost> pdc::bruteForce(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options) {
  return Enumeration(graph, cluster, options).run();
}
