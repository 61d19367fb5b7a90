// LINK: pdcPlanner
// Chains whose down-sets are all prefixes: the bound that follows from memory against trying every partition, and plans
// of whole components against what is known of them.
#include "Chain/ChainBound.h"
#include "Chain/PlanChain.h"
#include "Chain/RackBound.h"
#include "PlannerScale.h"
#include "Rounds.h"
#include "pdc/Cost/Pipeline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>

using namespace pdc;

namespace {

struct Instance {
  CostGraph graph;
  Cluster cluster;
  PlannerOptions options;
};

class RandomChains {
public:
  explicit RandomChains(unsigned seed) : random_(seed), frozen_(seed) {}

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }

  Instance next() {
    Instance instance;
    std::int64_t nodes = between(1, 6), devices = 1;
    for (std::int64_t v = 0; v < nodes; ++v) {
      CostNode node;
      node.name = "node" + std::to_string(v);
      node.forwardMs = static_cast<double>(between(0, 20)) / 4;
      node.inputGradientMs = static_cast<double>(between(0, 20)) / 4;
      node.updateMs = static_cast<double>(between(0, 4)) / 8;
      node.parameterBytes = node.gradientBytes = between(0, 5) * 100;
      node.savedBytes = between(0, 5) * 100;
      if (frozen_() % 4 == 0) node.frozenBytes = static_cast<std::int64_t>(frozen_() % 8) * 100;
      instance.graph.nodes.push_back(node);
      if (v + 1 == nodes) break;
      CostTensor tensor;
      tensor.name = "tensor" + std::to_string(v);
      tensor.from = v;
      tensor.to = {v + 1};
      if (v + 2 < nodes && between(0, 3) == 0) tensor.to.push_back(between(v + 2, nodes - 1));
      tensor.bytes = between(0, 2) * 50;
      instance.graph.tensors.push_back(tensor);
    }
    for (std::int64_t level = between(1, 3); level > 0 && devices < 4; --level) {
      std::int64_t count = between(1, 3);
      instance.cluster.levels.push_back({"level" + std::to_string(level), count,
                                         static_cast<double>(between(1, 10)) * 1e6,
                                         static_cast<double>(between(0, 2)) * 2e-4});
      devices *= count;
    }
    instance.cluster.device.name = "test";
    instance.cluster.device.memoryBytes = between(500, 6'000);
    instance.cluster.device.speed = static_cast<double>(between(1, 4)) / 2;
    instance.options.sync = between(0, 1) ? SyncPolicy::overlap : SyncPolicy::barrier;
    instance.options.weights = between(0, 2) ? pdcrt::WeightPolicy::stash : pdcrt::WeightPolicy::latest;
    instance.options.recompute = between(0, 3)   ? RecomputePolicy::none
                                 : between(0, 1) ? RecomputePolicy::automatic
                                                 : RecomputePolicy::all;
    return instance;
  }

private:
  std::mt19937 random_, frozen_;
};

/// The smallest time of all partitions; infinity if none fits.
double bestTime(const Instance& instance) {
  CostModel model(instance.graph, instance.cluster, instance.options);
  auto nodes = static_cast<std::int64_t>(instance.graph.nodes.size());
  double best = std::numeric_limits<double>::infinity();
  Partition partition;
  std::function<void(std::int64_t, std::int64_t)> extend = [&](std::int64_t begin, std::int64_t devices) {
    if (begin == nodes) {
      PlanCost cost = model.costOf(partition);
      if (cost.feasible) best = std::min(best, cost.timeMs);
      return;
    }
    for (std::int64_t end = begin + 1; end <= nodes; ++end)
      for (int replicas = 1; replicas <= devices; ++replicas)
        for (bool recompute : {false, true}) {
          if (recompute ? instance.options.recompute == RecomputePolicy::none
                        : instance.options.recompute == RecomputePolicy::all)
            continue;
          PartitionStage& stage = partition.stages.emplace_back();
          for (std::int64_t v = begin; v < end; ++v) stage.nodes.push_back(v);
          stage.replicas = replicas;
          stage.recompute = recompute;
          extend(end, devices - replicas);
          partition.stages.pop_back();
        }
  };
  extend(0, instance.cluster.deviceCount());
  return best;
}

double workBound(const Instance& instance) {
  double workMs = 0;
  for (const CostNode& node : instance.graph.nodes) workMs += node.forwardMs + node.inputGradientMs + node.updateMs;
  return workMs / instance.cluster.device.speed / static_cast<double>(instance.cluster.deviceCount());
}

} // namespace

TEST(PlannerPdcChain, NoPartitionBeatsTheBoundFromMemory) {
  RandomChains random(5);
  int stronger = 0, close = 0;
  for (int round = 0; round < rounds(1'500); ++round) {
    Instance instance = random.next();
    SolverProblem problem = SolverProblem::of(instance.graph);
    double bound = chainMemoryBound(problem, instance.options, Machine(instance.cluster, instance.options));
    double best = bestTime(instance);
    ASSERT_LE(bound, best * (1 + 1e-12)) << "round " << round;
    stronger += bound > workBound(instance) * 1.01;
    close += bound > workBound(instance) * 1.01 && bound > 0.9 * best;
  }
  EXPECT_GT(stronger, 0);
  EXPECT_GT(close, 0);
}

// One pass at a time just above the best partition's must not rule it out, and the bisection must stay below it.
TEST(PlannerPdcChain, NoPartitionBeatsTheFewestLeaves) {
  RandomChains random(6);
  int proven = 0, stronger = 0;
  for (int round = 0; round < rounds(1'500); ++round) {
    Instance instance = random.next();
    SolverProblem problem = SolverProblem::of(instance.graph);
    Machine machine(instance.cluster, instance.options);
    double best = bestTime(instance);
    if (!isBoundable(problem, instance.options, machine) || !std::isfinite(best) || best <= 0) continue;
    ChainSums sums(problem, instance.options, machine);
    if (!sums.everyGradientReturns) continue;
    // Recomputation may be chosen stage by stage, which a bound without it allows for.
    EXPECT_LE(FewestLeaves(sums, instance.options, machine).need(best * (1 + 1e-9)),
              static_cast<double>(instance.cluster.deviceCount()))
        << "round " << round;
    double low = workBound(instance), bound = chainBound(sums, instance.options, machine, low, 1e3 * best);
    ASSERT_LE(bound, best * (1 + 1e-9)) << "round " << round;
    stronger += bound > low * 1.01;
    proven += bound > best * 0.99 && bound > low * 1.01;
  }
  EXPECT_GT(stronger, 100);
  EXPECT_GT(proven, 5);
}

// What all stages in a rack put on its link must not rule out the best partition either, and says more than each alone.
TEST(PlannerPdcChain, NoPartitionBeatsTheBoundOfRacks) {
  RandomChains random(8);
  int ruledOut = 0, stronger = 0; // than stage by stage
  constexpr std::int64_t enough = 100'000'000;
  for (int round = 0; round < rounds(1'000); ++round) {
    Instance instance = random.next();
    instance.cluster.levels = {{"server", random.between(1, 2), 1e7, 0},
                               {"rack", random.between(2, 4), static_cast<double>(random.between(1, 20)) * 1e4, 0}};
    SolverProblem problem = SolverProblem::of(instance.graph);
    Machine machine(instance.cluster, instance.options);
    double best = bestTime(instance);
    if (!isBoundable(problem, instance.options, machine) || !std::isfinite(best) || best <= 0) continue;
    ChainSums sums(problem, instance.options, machine);
    if (!sums.everyGradientReturns) continue;
    RackBound racks(sums, instance.options, machine);
    ASSERT_FALSE(racks.rulesOut(best * (1 + 1e-9), enough)) << "round " << round;
    ASSERT_FALSE(racks.rulesOut(best * 1.3, enough)) << "round " << round;
    if (!racks.rulesOut(best * 0.9, enough)) continue;
    ++ruledOut;
    stronger += FewestLeaves(sums, instance.options, machine).need(best * 0.9) <= machine.components(0);
  }
  EXPECT_GT(ruledOut, 100);
  EXPECT_GT(stronger, 5);
}

// A bound charges a stage for them, so no plan may move less.
TEST(PlannerPdcChain, NoStageMovesLessThanCrossesItsBorders) {
  RandomChains random(7);
  int stronger = 0;
  for (int round = 0; round < rounds(300); ++round) {
    Instance instance = random.next();
    SolverProblem problem = SolverProblem::of(instance.graph);
    Machine machine(instance.cluster, instance.options);
    if (!isBoundable(problem, instance.options, machine)) continue;
    ChainSums sums(problem, instance.options, machine);
    instance.cluster.levels = {{"devices", 3, 1e6, 0}};
    for (int i = 0; i < sums.n; ++i)
      for (int j = i + 1; j <= sums.n; ++j) {
        std::vector<int> ends, replicas, stageOf;
        for (int end : {i, j, sums.n})
          if (end > 0 && (ends.empty() || end > ends.back())) ends.push_back(end), replicas.push_back(1);
        Partition partition = sums.partitionOf(problem, instance.options, ends, replicas);
        Pipeline pipeline = pipelineOf(instance.graph, Machine(instance.cluster, instance.options), instance.options,
                                       partition, stageOf);
        const PipelineStage& stage = pipeline.stages[i > 0 ? 1 : 0];
        double in = sums.inBytes(i, j), out = sums.outBytes(i, j);
        ASSERT_LE(in, static_cast<double>(stage.bytes.valuesIn)) << "round " << round << ": " << i << " to " << j;
        ASSERT_LE(in, static_cast<double>(stage.bytes.gradientsOut)) << "round " << round << ": " << i << " to " << j;
        ASSERT_LE(out, static_cast<double>(stage.bytes.sent)) << "round " << round << ": " << i << " to " << j;
        ASSERT_LE(out, static_cast<double>(stage.bytes.gradientsIn + stage.bytes.gradientsPast))
            << "round " << round << ": " << i << " to " << j;
        stronger += in > sums.nextBytes[i] || out > sums.nextBytes[j];
      }
  }
  EXPECT_GT(stronger, 50);
}

// Of long chains with skips: what is found, what is proven.
TEST(PlannerPdcChain, PlansLongChainsWithinTheirBound) {
  for (const char* kind : {"uneven", "even"}) {
    CostGraph graph = test::scaleGraph(kind, 2'100);
    Cluster cluster = test::scaleCluster({8, 8, 8}, {300e9, 25e9, 5e9});
    PlannerOptions options;
    SolverProblem problem = SolverProblem::of(graph);
    Machine machine(cluster, options);
    Incumbent incumbent(graph, cluster, options, problem, machine);
    ASSERT_TRUE(incumbent.offer(partitionOfIntervals({2'100}, {512}))) << kind;
    double before = incumbent.limitMs(), low = ChainSums(problem, options, machine).workMs(0, 2'100) / 512;
    planChain(problem, options, machine, low, incumbent);
    EXPECT_LT(incumbent.limitMs(), before) << kind;
    EXPECT_LE(incumbent.limitMs(), 1.25 * low) << kind;
    EXPECT_LE(low, incumbent.limitMs()) << kind;
  }
}

TEST(PlannerPdcChain, KnowsNothingOfOtherGraphs) {
  Instance instance = RandomChains(1).next();
  instance.cluster.device.memoryBytes = 1'000;
  instance.graph = {};
  for (int v = 0; v < 3; ++v) {
    CostNode node;
    node.name = "node" + std::to_string(v);
    node.forwardMs = node.inputGradientMs = 1;
    node.parameterBytes = 400;
    instance.graph.nodes.push_back(node);
  }
  CostTensor first, second;
  first.name = "first", first.from = 0, first.to = {1}, second.name = "second", second.from = 1, second.to = {2};
  auto bound = [&] {
    return chainMemoryBound(SolverProblem::of(instance.graph), instance.options,
                            Machine(instance.cluster, instance.options));
  };
  instance.options = {};
  instance.graph.tensors = {first, second};
  EXPECT_GT(bound(), 0);
  instance.graph.tensors[1].hasGradient = false; // no loop from the last stage
  EXPECT_EQ(bound(), 0);
  instance.graph.tensors = {first}; // another order
  EXPECT_EQ(bound(), 0);
}

// Equal nodes, tensors that no rack can send but those behind each twelfth node: the racks' borders can only be there.
TEST(PlannerPdcChain, FindsTheCheapCutsBetweenRacks) {
  Instance instance;
  constexpr std::int64_t nodes = 2'400;
  for (std::int64_t v = 0; v < nodes; ++v) {
    CostNode node;
    node.name = "node" + std::to_string(v);
    node.forwardMs = 0.4, node.inputGradientMs = 0.6;
    node.parameterBytes = node.gradientBytes = 4'000'000;
    instance.graph.nodes.push_back(node);
    if (v + 1 == nodes) break;
    CostTensor tensor;
    tensor.name = "tensor" + std::to_string(v);
    tensor.from = v;
    tensor.to = {v + 1};
    tensor.bytes = v % 12 == 11 ? 1'000 : 100'000'000;
    instance.graph.tensors.push_back(tensor);
  }
  for (auto [count, bandwidth] : {std::pair<std::int64_t, double>{8, 300e9}, {4, 100e9}, {8, 5e9}})
    instance.cluster.levels.push_back({"level" + std::to_string(instance.cluster.levels.size()), count, bandwidth, 0});
  instance.cluster.device.name = "device";
  instance.cluster.device.memoryBytes = std::int64_t{80} << 30;
  // 2,400 nodes on 8 racks are 300 each, 25 times twelve.
  SolverProblem problem = SolverProblem::of(instance.graph);
  Machine machine(instance.cluster, instance.options);
  Incumbent incumbent(instance.graph, instance.cluster, instance.options, problem, machine);
  Partition uneven = partitionOfIntervals({12, nodes}, {32, 224});
  ASSERT_TRUE(incumbent.offer(uneven));
  double low = workBound(instance);
  planChain(problem, instance.options, machine, low, incumbent);
  EXPECT_LE(incumbent.limitMs(), workBound(instance) * 1.05);
  int leaves = 0, borders = 0;
  for (const PartitionStage& stage : incumbent.best().partition.stages) {
    leaves += stage.replicas;
    if (leaves % 32 != 0) continue;
    ++borders;
    EXPECT_EQ((stage.nodes.back() + 1) % 12, 0) << stage.nodes.back();
  }
  EXPECT_EQ(borders, 8);
}
