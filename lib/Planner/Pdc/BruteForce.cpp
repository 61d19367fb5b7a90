// The oracle: every chain of down-sets with every choice of replicas, devices and recomputation, each evaluated from
// the definition.
#include "Pdc/Definition.h"

#include "pdc/Schedule/PlanSchedule.h"

#include <algorithm>
#include <cmath>

using namespace pdc;

namespace {

class Enumeration {
public:
  Enumeration(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options)
      : graph_(graph), cluster_(cluster), options_(options), nodes_(graph.nodes.size()), before_(nodes_, 0) {
    for (const CostTensor& tensor : graph.tensors)
      for (std::int64_t to : tensor.to) before_[static_cast<std::size_t>(to)] |= std::uint32_t{1} << tensor.from;
    for (std::int64_t leaf = 0; leaf < cluster.deviceCount(); ++leaf) {
      const DeviceKind& device = cluster.deviceAt(leaf);
      auto key = std::pair(device.speed, device.memoryBytes - device.reservedBytes);
      if (options.memoryBytes > 0) key.second = options.memoryBytes;
      std::size_t c = 0;
      while (c < kinds_.size() && kinds_[c] != key) ++c;
      if (c == kinds_.size()) kinds_.push_back(key), leaves_.emplace_back();
      leaves_[c].push_back(leaf);
    }
  }

  std::optional<PlanCost> run() {
    extend(0, std::vector<std::size_t>(kinds_.size(), 0));
    return best_;
  }

private:
  /// Whether `set` of nodes is closed: it holds what its members need, and whole colours.
  bool isClosed(std::uint32_t set) const {
    for (std::size_t v = 0; v < nodes_; ++v) {
      if (!(set >> v & 1)) continue;
      if (before_[v] & ~set) return false;
      for (std::size_t u = 0; u < nodes_; ++u)
        if (graph_.nodes[v].colour >= 0 && graph_.nodes[u].colour == graph_.nodes[v].colour && !(set >> u & 1))
          return false;
    }
    return true;
  }

  /// Adds every next stage to the stages that hold the nodes `taken` and so many devices of each kind.
  void extend(std::uint32_t taken, const std::vector<std::size_t>& used) {
    std::uint32_t all = (std::uint32_t{1} << nodes_) - 1, rest = all & ~taken;
    if (rest == 0) return evaluate();
    if (isHopeless(rest, used)) return;
    for (std::uint32_t stage = rest; stage > 0; stage = (stage - 1) & rest)
      if (isClosed(taken | stage)) chooseDevices(taken, stage, used, 0, {});
  }

  /// Whether the computation of the nodes `rest` alone takes the devices that are left too long.
  bool isHopeless(std::uint32_t rest, const std::vector<std::size_t>& used) const {
    double ms = 0, speed = 0;
    for (std::size_t v = 0; v < nodes_; ++v) {
      const CostNode& node = graph_.nodes[v];
      if (rest >> v & 1) ms += node.forwardMs + node.inputGradientMs + node.weightGradientMs;
    }
    for (std::size_t c = 0; c < kinds_.size(); ++c)
      speed += kinds_[c].first * static_cast<double>(leaves_[c].size() - used[c]);
    return best_ && ms > best_->timeMs * speed * (1 + 1e-9);
  }

  void chooseDevices(std::uint32_t taken, std::uint32_t nodes, const std::vector<std::size_t>& used, std::size_t kind,
                     std::vector<std::int64_t> leaves) {
    if (kind < kinds_.size()) {
      std::vector<std::size_t> more = used;
      chooseDevices(taken, nodes, more, kind + 1, leaves);
      while (more[kind] < leaves_[kind].size()) {
        leaves.push_back(leaves_[kind][more[kind]++]);
        chooseDevices(taken, nodes, more, kind + 1, leaves);
      }
      return;
    }
    if (leaves.empty() || (options_.straight && leaves.size() > 1)) return;
    if (!options_.stageReplicas.empty() &&
        (plan_.stages.size() >= options_.stageReplicas.size() ||
         static_cast<int>(leaves.size()) != options_.stageReplicas[plan_.stages.size()]))
      return;
    for (bool recompute : {false, true}) {
      if ((recompute && options_.recompute == "none") || (!recompute && options_.recompute == "all")) continue;
      PlanStage stage;
      double ms = 0, speed = 0;
      for (std::size_t v = 0; v < nodes_; ++v) {
        if (!(nodes >> v & 1)) continue;
        const CostNode& node = graph_.nodes[v];
        stage.nodes.push_back(static_cast<std::int64_t>(v));
        ms += node.forwardMs * (recompute ? 2 : 1) + node.inputGradientMs + node.weightGradientMs;
      }
      for (std::int64_t leaf : leaves) speed = std::max(speed, cluster_.deviceAt(leaf).speed);
      // No plan with this stage can be better: its devices alone take longer.
      if (best_ && ms / speed / static_cast<double>(leaves.size()) > best_->timeMs * (1 + 1e-9)) continue;
      stage.replicas = static_cast<int>(leaves.size());
      stage.recompute = recompute;
      for (std::size_t q = 0; q < leaves.size(); ++q)
        plan_.ranks.push_back({static_cast<int>(plan_.ranks.size()),
                               {leaves[q]},
                               {{static_cast<int>(plan_.stages.size()), static_cast<int>(q)}}});
      plan_.stages.push_back(std::move(stage));
      extend(taken | nodes, used);
      plan_.stages.pop_back();
      plan_.ranks.resize(plan_.ranks.size() - leaves.size());
    }
  }

  void evaluate() {
    if (!options_.stageReplicas.empty() && plan_.stages.size() != options_.stageReplicas.size()) return;
    if (options_.schedule != "1f1b") return evaluateFlushing();
    plan_.schedule = options_.schedule;
    plan_.weights = options_.weights;
    plan_.sync = options_.sync;
    plan_.cluster = cluster_;
    Definition definition(graph_, plan_, options_);
    if (best_ && definition.largestLoad() > best_->timeMs * (1 + 1e-9)) return;
    std::vector<int> warmup = options_.warmup;
    if (options_.warmupPolicy == WarmupPolicy::hide) warmup = definition.bestWarmup();
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
    if (options_.weights != "vertical-sync") return warmup;
    auto ahead = [&](std::size_t s) {
      int R = plan_.stages[s].replicas;
      return R * (warmup[s] + (options_.sync == "overlap" && warmup.size() > 1 && R > 1 ? 1 : 0));
    };
    for (std::size_t s = 1; s < warmup.size(); ++s)
      while (ahead(0) < ahead(s)) ++warmup[0];
    return warmup;
  }

  /// Time, load, memory, bytes, devices, as docs/Planning.md orders plans.
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
      part.ofClass.assign(kinds_.size(), 0);
    }
    for (const PlanRank& rank : plan_.ranks)
      for (std::size_t c = 0; c < kinds_.size(); ++c)
        if (std::binary_search(leaves_[c].begin(), leaves_[c].end(), rank.devices[0]))
          ++partition.stages[static_cast<std::size_t>(rank.hosts[0].stage)].ofClass[c];
    Plan plan = describePartition(graph_, cluster_, options_, partition, false);
    PlanCost cost = costOf(plan, options_);
    if (!cost.feasible) return;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = cost.warmup[s];
    cost.timeMs = std::max(cost.timeMs, simulate(plan, buildSchedule(shapeOf(plan))).timePerMinibatchMs);
    cost.loadMs = cost.timeMs;
    if (!best_ || cost.timeMs < best_->timeMs) best_ = cost;
  }

  const CostGraph& graph_;
  const Cluster& cluster_;
  const PlannerOptions& options_;
  std::size_t nodes_;
  std::vector<std::uint32_t> before_;                  ///< direct predecessors of each node
  std::vector<std::pair<double, std::int64_t>> kinds_; ///< speed and memory of each class of devices
  std::vector<std::vector<std::int64_t>> leaves_;      ///< of each class
  Plan plan_;                                          ///< so far
  std::optional<PlanCost> best_;
};

} // namespace

std::optional<PlanCost> pdc::bruteForce(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options) {
  return Enumeration(graph, cluster, options).run();
}
