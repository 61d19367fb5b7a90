// Branch and bound over the intervals of the program order.
//
// A table holds, for every start of a suffix and every number of devices left, the smallest bottleneck that the rest
// can have when each stage is charged what depends on its interval alone (PipeDream's dynamic programme, O(N²·D²)).
// What that leaves out (copies of a value to several later stages, the warm-up that fits into memory) only raises the
// cost, so the table is a lower bound, which guides and prunes a depth-first search whose leaves are evaluated by the
// cost model.
#include "Pdc/Solver.h"

#include "pdc/Schedule/PlanSchedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

using namespace pdc;

static constexpr double infinity = std::numeric_limits<double>::infinity();

bool pdc::isBetter(const PlanCost& a, const Partition& partitionA, const PlanCost& b, const Partition& partitionB) {
  // Times that differ by rounding only are equal.
  if (std::abs(a.loadMs - b.loadMs) > 1e-9 * std::max(a.loadMs, b.loadMs)) return a.loadMs < b.loadMs;
  auto devices = [](const Partition& p) { return std::accumulate(p.replicas.begin(), p.replicas.end(), 0); };
  return std::tuple(a.peakMemoryBytes, a.bytesMoved, devices(partitionA), partitionA.ends, partitionA.replicas) <
         std::tuple(b.peakMemoryBytes, b.bytesMoved, devices(partitionB), partitionB.ends, partitionB.replicas);
}

namespace {

/// What an interval of nodes costs as a stage, whatever the other stages are.
struct Interval {
  double computeMs = 0, updateMs = 0;
  double parameterBytes = 0;
  double linkBytes = 0; ///< the busier direction, without all-reduces
  std::int64_t memoryBytes = 0;
};

class Search {
public:
  Search(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options)
      : graph_(graph), cluster_(cluster), options_(options), nodes_(static_cast<std::int64_t>(graph.nodes.size())),
        most_(options.stageReplicas.empty() ? static_cast<int>(std::min<std::int64_t>(cluster.deviceCount(), 1 << 12))
                                            : static_cast<int>(options.stageReplicas.size())) {
    for (const ClusterLevel& level : cluster.levels)
      if (level.count > 1) bandwidth_ = level.bandwidthBytesPerS / 1e3, latencyMs_ = level.latencyS * 1e3;
    flush_ = options.schedule == "1f1b-flush";
    computeBefore_.push_back(0);
    for (const CostNode& node : graph.nodes)
      computeBefore_.push_back(computeBefore_.back() +
                               (node.forwardMs + node.inputGradientMs + node.weightGradientMs) / cluster.device.speed);
    findCuts();
    fillIntervals();
    fillTable();
  }

  std::optional<Solution> run() {
    tryOneStage();
    bound_ = table(0, most_);
    // First the smallest time, which prunes well, then the best of equally fast plans, as far as the budget reaches.
    descend(0, most_, 0, false);
    bool exhausted = visited_ < budget_;
    visited_ = budget_ / 2;
    if (found_) descend(0, most_, 0, true);
    if (!found_) return std::nullopt;
    best_.lowerBoundMs =
        exhausted ? best_.cost.timeMs : std::min(best_.cost.timeMs, std::max(lowestBound(), coresMs()));
    return best_;
  }

private:
  /// Sum over cores, which no partition changes.
  double coresMs() const {
    if (cluster_.device.cores <= 0) return 0;
    double sum = 0;
    for (const CostNode& node : graph_.nodes)
      sum += (node.forwardMs + node.inputGradientMs + node.weightGradientMs + node.updateMs) / cluster_.device.speed;
    return sum / static_cast<double>(cluster_.device.cores);
  }

  double lowestBound() const { return std::min(bound_, oneStageMs_); }

  /// cut_[v]: whether a stage may end before node v.
  void findCuts() {
    cut_.assign(nodes_ + 1, 1);
    std::vector<std::pair<std::int64_t, std::int64_t>> seen; // colour, first node
    for (std::int64_t v = 0; v < nodes_; ++v) {
      std::int64_t colour = graph_.nodes[v].colour;
      if (colour < 0) continue;
      auto first = std::find_if(seen.begin(), seen.end(), [&](const auto& entry) { return entry.first == colour; });
      if (first == seen.end())
        seen.push_back({colour, v});
      else
        std::fill(cut_.begin() + first->second + 1, cut_.begin() + v + 1, 0);
    }
  }

  Interval& interval(std::int64_t begin, std::int64_t end) { return intervals_[begin * (nodes_ + 1) + end]; }

  void fillIntervals() {
    intervals_.resize((nodes_ + 1) * (nodes_ + 1));
    for (std::int64_t begin = 0; begin < nodes_; ++begin) {
      if (!cut_[begin]) continue;
      Interval sum;
      std::int64_t memory = 0, scratch = 0, workspace = 0;
      for (std::int64_t end = begin + 1; end <= nodes_; ++end) {
        const CostNode& node = graph_.nodes[end - 1];
        sum.computeMs += (node.forwardMs + node.inputGradientMs + node.weightGradientMs) / cluster_.device.speed;
        sum.updateMs += node.updateMs / cluster_.device.speed;
        sum.parameterBytes += static_cast<double>(node.parameterBytes);
        memory += node.parameterBytes + node.gradientBytes + node.savedBytes;
        auto state = static_cast<std::int64_t>(options_.optimizerStatePerParameterByte * sum.parameterBytes);
        scratch = std::max(scratch, node.scratchBytes);
        workspace = std::max(workspace, node.workspaceBytes);
        if (!cut_[end]) continue;
        Interval& entry = interval(begin, end) = sum;
        entry.memoryBytes = memory + state + scratch + workspace;
        addTensors(entry, begin, end);
      }
    }
  }

  /// Tensors that cross the borders of [begin, end), each sent to one later stage at least. Its gradient comes back
  /// once, from the next stage that uses it, and goes on once, to the stage before.
  void addTensors(Interval& entry, std::int64_t begin, std::int64_t end) const {
    std::int64_t in = 0, out = 0;
    for (const CostTensor& tensor : graph_.tensors) {
      if (tensor.to.empty() || tensor.from >= end) continue;
      bool here = tensor.from >= begin, usedHere = false, usedLater = false;
      for (std::int64_t user : tensor.to) {
        usedHere |= user >= begin && user < end;
        usedLater |= user >= end;
      }
      if (here && usedLater) {
        out += tensor.bytes;
        in += tensor.hasGradient ? tensor.bytes : 0;
        entry.memoryBytes += tensor.bytes * (tensor.hasGradient ? 3 : 1); // in the slot; its gradient, twice
      } else if (!here && usedHere) {
        in += tensor.bytes + (tensor.hasGradient && usedLater ? tensor.bytes : 0);
        out += tensor.hasGradient ? tensor.bytes : 0;
        entry.memoryBytes += tensor.bytes * (tensor.hasGradient ? 4 : 2);
      }
    }
    entry.linkBytes = static_cast<double>(std::max(in, out));
  }

  /// At least the load of an interval that begins at `begin` as one of several stages; infinite if it cannot fit.
  double loadOf(std::int64_t begin, const Interval& entry, int replicas) const {
    double r = replicas;
    bool overlap = !flush_ && options_.sync == "overlap";
    double sync = replicas > 1 ? 2 * (r - 1) * (entry.parameterBytes / (r * bandwidth_) + latencyMs_) : 0;
    if (entry.memoryBytes > memoryLimit(cluster_)) return infinity;
    if (flush_) {
      auto m = static_cast<double>(options_.microbatches);
      double own = std::ceil(m / r) * entry.computeMs;
      return std::max({own + sync + entry.updateMs, computeBefore_[begin] + own, computeBefore_[nodes_]}) / m;
    }
    double reduced = 2 * (r - 1) / r * entry.parameterBytes;
    return std::max({(entry.computeMs + entry.updateMs + (overlap ? 0 : sync)) / r, sync / r,
                     (entry.linkBytes + reduced) / bandwidth_ / r});
  }

  /// Calls visit(replicas, what is left) for each replica count of a stage when `left` devices (or, with given
  /// replicas, stages) are left.
  template <class Visit>
  void forEachReplicas(int left, Visit visit) const {
    if (left == 0) return;
    if (!options_.stageReplicas.empty()) {
      visit(options_.stageReplicas[options_.stageReplicas.size() - left], left - 1);
      return;
    }
    for (int r = 1; r <= (options_.straight ? 1 : left); ++r) visit(r, left - r);
  }

  double& table(std::int64_t begin, int left) { return table_[begin * (most_ + 1) + left]; }

  void fillTable() {
    table_.assign((nodes_ + 1) * (most_ + 1), infinity);
    for (int left = 0; left <= most_; ++left)
      if (options_.stageReplicas.empty() || left == 0) table(nodes_, left) = 0;
    for (std::int64_t begin = nodes_ - 1; begin >= 0; --begin) {
      if (!cut_[begin]) continue;
      for (std::int64_t end = begin + 1; end <= nodes_; ++end) {
        if (!cut_[end]) continue;
        for (int left = 1; left <= most_; ++left)
          forEachReplicas(left, [&](int replicas, int rest) {
            double load = std::max(loadOf(begin, interval(begin, end), replicas), table(end, rest));
            table(begin, left) = std::min(table(begin, left), load);
          });
      }
    }
  }

  void evaluate() {
    Plan plan = describePartition(graph_, cluster_, options_, current_, false);
    PlanCost cost = costOf(plan, options_);
    if (!cost.feasible) return;
    if (flush_) {
      if (found_ && cost.loadMs >= best_.cost.loadMs) return;
      visited_ += simulationPrice_;
      simulateBatches(plan, cost);
    }
    if (found_ && !isBetter(cost, current_, best_.cost, best_.partition)) return;
    found_ = true;
    best_.partition = current_;
    best_.cost = cost;
  }

  /// The time of a flushing schedule is what the simulator executes, without and with shared cores.
  static void simulateBatches(Plan& plan, PlanCost& cost) {
    for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = cost.warmup[s];
    pdcrt::Schedule schedule = buildSchedule(shapeOf(plan));
    std::int64_t minibatches = pdcrt::minibatchesInFlight(schedule) + 6 * pdcrt::periodMinibatches(schedule);
    cost.timeMs = std::max(cost.timeMs, simulate(plan, schedule, minibatches).timePerMinibatchMs);
    plan.cluster.device.cores = 0;
    cost.loadMs = std::max(cost.loadMs, simulate(plan, schedule, minibatches).timePerMinibatchMs);
  }

  /// A plan of one stage never overlaps its all-reduce, so the table does not bound it.
  void tryOneStage() {
    if (!options_.stageReplicas.empty() && options_.stageReplicas.size() != 1) return;
    int last = options_.stageReplicas.empty() ? (options_.straight ? 1 : most_) : options_.stageReplicas[0];
    for (int r = options_.stageReplicas.empty() ? 1 : last; r <= last; ++r) {
      current_ = {{nodes_}, {r}};
      PlanCost cost = costOf(describePartition(graph_, cluster_, options_, current_, false), options_);
      if (cost.feasible) oneStageMs_ = std::min(oneStageMs_, cost.loadMs);
      evaluate();
    }
    current_ = {};
  }

  bool isHopeless(double load, bool ties) const {
    if (load == infinity) return true;
    if (!found_) return false;
    double margin = 1e-9 * best_.cost.loadMs;
    return ties ? load > best_.cost.loadMs + margin : load >= best_.cost.loadMs - margin;
  }

  /// Whether a partition may have so many stages so far; a given warm-up says how many it has in all.
  bool allowsStages(std::size_t stages, bool complete) const {
    if (options_.warmupPolicy != WarmupPolicy::given) return true;
    return complete ? stages == options_.warmup.size() : stages < options_.warmup.size();
  }

  /// Extends the current partition, whose loads so far are `load`, by every stage that begins at `begin`.
  void descend(std::int64_t begin, int left, double load, bool ties) {
    if (visited_ >= budget_) return;
    if (begin == nodes_) {
      if (current_.ends.size() == 1 || (!options_.stageReplicas.empty() && left > 0)) return;
      visited_ += leafPrice_;
      evaluate();
      return;
    }
    struct Step {
      double bound, load;
      std::int64_t end;
      int replicas, rest;
    };
    std::vector<Step> steps;
    for (std::int64_t end = begin + 1; end <= nodes_; ++end) {
      if (!cut_[end] || !allowsStages(current_.ends.size() + 1, end == nodes_)) continue;
      forEachReplicas(left, [&](int replicas, int rest) {
        double own = std::max(load, loadOf(begin, interval(begin, end), replicas));
        double bound = std::max(own, table(end, rest));
        if (!isHopeless(bound, ties)) steps.push_back({bound, own, end, replicas, rest});
      });
    }
    std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
      return std::tuple(a.bound, a.load, a.end, a.replicas) < std::tuple(b.bound, b.load, b.end, b.replicas);
    });
    for (const Step& step : steps) {
      if (isHopeless(step.bound, ties)) break;
      if (++visited_ >= budget_) return;
      current_.ends.push_back(step.end);
      current_.replicas.push_back(step.replicas);
      descend(step.end, step.rest, step.load, ties);
      current_.ends.pop_back();
      current_.replicas.pop_back();
    }
  }

  const CostGraph& graph_;
  const Cluster& cluster_;
  const PlannerOptions& options_;
  std::int64_t nodes_;
  int most_;                    ///< devices, or stages when their replicas are given
  double bandwidth_ = infinity; ///< bytes per ms
  double latencyMs_ = 0;
  bool flush_ = false;
  std::vector<double> computeBefore_; ///< ms of a minibatch in the nodes before each
  std::vector<char> cut_;
  std::vector<Interval> intervals_;
  std::vector<double> table_;
  Partition current_;
  bool found_ = false;
  Solution best_;
  double bound_ = infinity, oneStageMs_ = infinity;
  // Counted in steps, not seconds, so that the answer is the same on every machine. The prices are about what a leaf
  // and a simulation cost beside an inner step.
  static constexpr std::int64_t budget_ = 1'000'000, leafPrice_ = 100, simulationPrice_ = 2'000;
  std::int64_t visited_ = 0;
};

} // namespace

std::optional<Solution> pdc::solve(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options) {
  return Search(graph, cluster, options).run();
}
