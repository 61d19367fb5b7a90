// LINK: pdcPlanner
// The solver of cost model `pdc` against trying every partition, each evaluated by the cost model.
#include "Rounds.h"
#include "Search/Solver.h"

#include "PlannerScale.h"
#include "pdc/Planner/Order/DownSets.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

using namespace pdc;

namespace {

struct Instance {
  CostGraph graph;
  Cluster cluster;
  PlannerOptions options;
};

class RandomInstances {
public:
  explicit RandomInstances(unsigned seed) : random_(seed) {}

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  bool oneIn(std::int64_t n) { return between(1, n) == 1; }
  double time() { return static_cast<double>(between(0, 40)) / 4; }

  CostGraph graph(std::int64_t nodes) {
    CostGraph graph;
    std::int64_t density = between(1, 4);
    for (std::int64_t v = 0; v < nodes; ++v) {
      CostNode node;
      node.name = "node" + std::to_string(v);
      node.forwardMs = time();
      node.inputGradientMs = time();
      node.weightGradientMs = oneIn(2) ? time() : 0;
      node.updateMs = static_cast<double>(between(0, 4)) / 8;
      node.parameterBytes = node.gradientBytes = between(0, 3) * 100;
      node.savedBytes = between(0, 5) * 100;
      node.scratchBytes = between(0, 2) * 50;
      node.workspaceBytes = between(0, 2) * 30;
      if (oneIn(8)) node.colour = between(0, 1);
      graph.nodes.push_back(node);
    }
    for (std::int64_t v = 0; v + 1 < nodes; ++v) {
      CostTensor tensor;
      tensor.name = "t" + std::to_string(v);
      tensor.from = v;
      for (std::int64_t user = v + 1; user < nodes; ++user)
        if (user == v + 1 ? !oneIn(3) : between(0, 4) < density - 1) tensor.to.push_back(user);
      tensor.bytes = between(0, 8) * 100;
      tensor.hasGradient = !oneIn(5);
      if (oneIn(3)) // some users have no part of its gradient
        for (std::int64_t user : tensor.to)
          if (oneIn(2)) tensor.gradientFrom.push_back(user);
      if (!tensor.to.empty()) graph.tensors.push_back(tensor);
    }
    if (oneIn(4)) {
      CostSharedParameter shared{"tied", {}, between(1, 4) * 100};
      for (std::int64_t v = 0; v < nodes; ++v)
        if (oneIn(2)) shared.nodes.push_back(v);
      if (shared.nodes.size() > 1) graph.sharedParameters.push_back(shared);
    }
    return graph;
  }

  Cluster cluster() {
    Cluster cluster;
    std::int64_t levels = between(1, 3), devices = 1;
    for (std::int64_t level = 0; level < levels && devices < 5; ++level) {
      std::int64_t count = level == 0 ? between(1, 5) : between(1, 2);
      cluster.levels.push_back({"level" + std::to_string(level), count, static_cast<double>(between(1, 10)) * 1e5,
                                oneIn(2) ? 0 : static_cast<double>(between(0, 10)) * 1e-4});
      devices *= count;
    }
    cluster.device.name = oneIn(4) ? "cpu" : "test";
    cluster.device.memoryBytes = 1 << 30;
    cluster.device.speed = static_cast<double>(between(1, 4)) / 2;
    if (oneIn(6)) cluster.device.cores = between(1, 3);
    if (oneIn(4) && devices > 1 && devices <= 4) {
      std::int64_t first = between(1, devices - 1);
      DeviceKind other = cluster.device;
      other.name = "other";
      other.speed = static_cast<double>(between(1, 4)) / 2;
      cluster.devices = {{cluster.device, first}, {other, devices - first}};
    }
    return cluster;
  }

  PlannerOptions options() {
    PlannerOptions options;
    options.sync = oneIn(2) ? SyncPolicy::overlap : SyncPolicy::barrier;
    options.weights = !oneIn(4)  ? pdcrt::WeightPolicy::stash
                      : oneIn(2) ? pdcrt::WeightPolicy::latest
                                 : pdcrt::WeightPolicy::verticalSync;
    options.warmupPolicy = oneIn(4) ? WarmupPolicy::paper : WarmupPolicy::hide;
    options.straight = oneIn(4);
    options.recompute = !oneIn(4)  ? RecomputePolicy::none
                        : oneIn(2) ? RecomputePolicy::automatic
                                   : RecomputePolicy::all;
    options.optimizerStatePerParameterByte = static_cast<double>(between(0, 2));
    if (oneIn(3)) options.shard = ShardPolicy::optimizer;
    if (oneIn(8)) options.stageReplicas = {static_cast<int>(between(0, 2)), static_cast<int>(between(0, 2))};
    return options;
  }

private:
  std::mt19937 random_;
};

/// Every chain of down-sets with every choice of replicas, devices and recomputation.
class Enumeration {
public:
  explicit Enumeration(const Instance& instance)
      : instance_(instance), model_(instance.graph, instance.cluster, instance.options),
        states_(*DownSets::all(Dag::of(instance.graph), 1000)) {
    for (const DeviceClass& deviceClass : deviceClasses(instance.cluster, instance.options))
      left_.push_back(static_cast<int>(deviceClass.leaves.size()));
  }

  void run() { extend(0); }

  std::optional<PlanCost> best;
  Partition bestPartition;

private:
  bool tearsColour(const NodeSet& set) const {
    const std::vector<CostNode>& nodes = instance_.graph.nodes;
    for (std::size_t u = 0; u < nodes.size(); ++u)
      for (std::size_t v = 0; v < nodes.size(); ++v)
        if (nodes[u].colour >= 0 && nodes[u].colour == nodes[v].colour && set.contains(u) != set.contains(v))
          return true;
    return false;
  }

  void extend(std::size_t i) {
    const PlannerOptions& options = instance_.options;
    if (i + 1 == states_.size()) {
      if (options.stageReplicas.empty() || options.stageReplicas.size() == partition_.stages.size()) evaluate();
      return;
    }
    std::size_t s = partition_.stages.size();
    if (!options.stageReplicas.empty() && s == options.stageReplicas.size()) return;
    for (std::size_t j = i + 1; j < states_.size(); ++j) {
      if (!states_[j].includes(states_[i]) || tearsColour(states_[j])) continue;
      PartitionStage stage;
      (states_[j] - states_[i]).forEach([&](std::size_t v) { stage.nodes.push_back(static_cast<std::int64_t>(v)); });
      partition_.stages.push_back(stage);
      for (bool recompute : {false, true}) {
        if (recompute ? options.recompute == RecomputePolicy::none : options.recompute == RecomputePolicy::all)
          continue;
        partition_.stages.back().recompute = recompute;
        choose(j, 0);
      }
      partition_.stages.pop_back();
    }
  }

  void choose(std::size_t j, std::size_t c) {
    PartitionStage& stage = partition_.stages.back();
    if (c == left_.size()) {
      int replicas = 0;
      for (int count : stage.ofClass) replicas += count;
      const PlannerOptions& options = instance_.options;
      if (replicas == 0 || (options.straight && replicas > 1)) return;
      const int given = options.stageReplicas.empty() ? 0 : options.stageReplicas[partition_.stages.size() - 1];
      if (given > 0 && given != replicas) return;
      stage.replicas = replicas;
      std::vector<int> ofClass = stage.ofClass;
      if (left_.size() == 1) stage.ofClass.clear();
      extend(j);
      partition_.stages.back().ofClass = ofClass;
      return;
    }
    int available = left_[c];
    for (int count = 0; count <= available; ++count) {
      partition_.stages.back().ofClass.push_back(count);
      left_[c] -= count;
      choose(j, c + 1);
      left_[c] += count;
      partition_.stages.back().ofClass.pop_back();
    }
  }

  void evaluate() {
    PlanCost cost = model_.costOf(partition_);
    if (!cost.feasible || (best && !isBetter(cost, partition_, *best, bestPartition))) return;
    best = cost;
    bestPartition = partition_;
  }

  const Instance& instance_;
  CostModel model_;
  DownSets states_;
  std::vector<int> left_;
  Partition partition_;
};

void expectEqual(const Instance& instance, const std::optional<Solution>& solution, int round) {
  Enumeration all(instance);
  all.run();
  ASSERT_EQ(solution.has_value(), all.best.has_value()) << "round " << round;
  if (!solution) return;
  const PlanCost &cost = solution->cost, &best = *all.best;
  EXPECT_NEAR(cost.timeMs, best.timeMs, 1e-9 * best.timeMs) << "round " << round;
  EXPECT_NEAR(cost.loadMs, best.loadMs, 1e-9 * best.loadMs) << "round " << round;
  EXPECT_NEAR(solution->lowerBoundMs, best.timeMs, 1e-9 * best.timeMs) << "round " << round;
  EXPECT_EQ(cost.peakMemoryBytes, best.peakMemoryBytes) << "round " << round;
  EXPECT_EQ(cost.bytesMoved, best.bytesMoved) << "round " << round;
  EXPECT_FALSE(isBetter(best, all.bestPartition, cost, solution->partition)) << "round " << round;
}

} // namespace

TEST(PlannerPdcSolver, EqualsTryingEveryPartition) {
  RandomInstances random(7);
  int limited = 0, infeasible = 0, replicated = 0;
  for (int round = 0; round < rounds(300); ++round) {
    Instance instance{random.graph(random.between(1, 6)), random.cluster(), random.options()};
    std::optional<Solution> solution = solve(instance.graph, instance.cluster, instance.options);
    expectEqual(instance, solution, round);
    if (!solution) continue;
    for (const PartitionStage& stage : solution->partition.stages) replicated += stage.replicas > 1;
    // And again with less memory than the best plan takes.
    instance.options.memoryBytes = solution->cost.peakMemoryBytes * random.between(30, 99) / 100;
    if (instance.options.memoryBytes == 0) continue;
    solution = solve(instance.graph, instance.cluster, instance.options);
    expectEqual(instance, solution, round);
    ++limited;
    infeasible += !solution;
  }
  EXPECT_GT(limited, 0);
  EXPECT_GT(infeasible, 0);
  EXPECT_GT(replicated, 0);
}

namespace {

Cluster scaleLevels(const std::vector<std::pair<std::int64_t, double>>& levels) {
  Cluster cluster;
  for (auto [count, bandwidth] : levels)
    cluster.levels.push_back({"level" + std::to_string(cluster.levels.size()), count, bandwidth, 5e-6});
  cluster.device.name = "device";
  cluster.device.memoryBytes = std::int64_t{80} << 30;
  return cluster;
}

} // namespace

// 10,000 nodes, 16,384 devices in three levels. The states are a sample, so only the bound that holds for all counts.
TEST(PlannerPdcSolver, ProvesLongChainsOnManyDevices) {
  CostGraph graph = test::scaleGraph("even", 10'000);
  Cluster cluster = scaleLevels({{8, 300e9}, {16, 25e9}, {128, 25e9}});
  std::optional<Solution> solution = solve(graph, cluster, {});
  ASSERT_TRUE(solution);
  EXPECT_LE(solution->cost.timeMs, solution->lowerBoundMs * (1 + 1e-6));
}

// With a slow outermost level the gap is larger, and stated.
TEST(PlannerPdcSolver, StatesTheGapThatItLeaves) {
  CostGraph graph = test::scaleGraph("even", 3'000);
  Cluster cluster = scaleLevels({{8, 300e9}, {16, 25e9}, {16, 5e9}});
  std::optional<Solution> solution = solve(graph, cluster, {});
  ASSERT_TRUE(solution);
  EXPECT_GT(solution->lowerBoundMs, 0);
  EXPECT_LE(solution->lowerBoundMs, solution->cost.timeMs);
  EXPECT_LE(solution->cost.timeMs, solution->lowerBoundMs * 1.2);
}

// Out of time at once, there is a plan nevertheless, and its bound holds for the best one.
TEST(PlannerPdcSolver, ReturnsAPlanWhenTimeIsUp) {
  RandomInstances random(11);
  for (int round = 0; round < rounds(20); ++round) {
    Instance instance{random.graph(6), random.cluster(), {}};
    std::optional<Solution> best = solve(instance.graph, instance.cluster, instance.options);
    instance.options.timeLimitS = 1e-9;
    std::optional<Solution> early = solve(instance.graph, instance.cluster, instance.options);
    ASSERT_TRUE(best && early) << "round " << round;
    EXPECT_LE(early->lowerBoundMs, best->cost.timeMs * (1 + 1e-9)) << "round " << round;
    EXPECT_GE(early->cost.timeMs, best->cost.timeMs * (1 - 1e-9)) << "round " << round;
  }
}

namespace {

/// Branches side by side between a first and a last node: more cuts than a search sees.
CostGraph wideGraph(RandomInstances& random, int branches, int length) {
  CostGraph graph;
  auto addNode = [&] {
    CostNode node;
    node.name = "node" + std::to_string(graph.nodes.size());
    node.forwardMs = 1 + random.time(), node.inputGradientMs = 1 + random.time();
    node.parameterBytes = node.gradientBytes = random.between(1, 30) * 1'000'000;
    graph.nodes.push_back(node);
    return static_cast<std::int64_t>(graph.nodes.size()) - 1;
  };
  auto connect = [&](std::int64_t from, std::vector<std::int64_t> to) {
    graph.tensors.push_back({"t" + std::to_string(from), from, std::move(to), random.between(1, 100) * 10'000, true});
  };
  const std::int64_t first = addNode();
  std::vector<std::int64_t> begins, ends;
  for (int b = 0; b < branches; ++b) {
    std::int64_t last = addNode();
    begins.push_back(last);
    for (int i = 1; i < length; ++i) {
      const std::int64_t node = addNode();
      connect(last, {node});
      last = node;
    }
    ends.push_back(last);
  }
  const std::int64_t join = addNode();
  connect(first, begins);
  for (std::int64_t end : ends) connect(end, {join});
  return graph;
}

} // namespace

TEST(PlannerPdcSolver, NobodyFindsABetterPlanByForbiddingReplicas) {
  RandomInstances random(21);
  int unproven = 0;
  for (int round = 0; round < rounds(2); ++round) {
    const CostGraph graph = wideGraph(random, 5, 8);
    Cluster cluster = scaleLevels({{random.between(3, 6), 1e9}});
    PlannerOptions options;
    options.schedule = "1f1b-flush";
    options.microbatches = 8;
    const std::optional<Solution> free = solve(graph, cluster, options);
    options.straight = true;
    const std::optional<Solution> straight = solve(graph, cluster, options);
    ASSERT_TRUE(free && straight);
    unproven += free->cost.timeMs > free->lowerBoundMs * (1 + 1e-9);
    EXPECT_LE(free->cost.timeMs, straight->cost.timeMs * (1 + 1e-9)) << "round " << round;
  }
  EXPECT_GT(unproven, 0);
}
