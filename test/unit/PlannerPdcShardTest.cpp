// LINK: pdcPlanner
// A choice of shards for each stage (--shard=auto): the cost model against the definition, and the solver against
// trying every plan.
#include "PlannerPdcChecks.h"
#include "PlannerPdcSplits.h"
#include "Rounds.h"
#include "pdc/Planner/OptionText.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <iostream>

using namespace pdc;

namespace {

std::string whereOf(const PlannerInstance& instance) {
  return toLine(instance, std::nullopt) + "\n" + toJson(instance.graph);
}

/// One with updates, states and parameters that make shards matter, on several devices.
PlannerInstance instanceFor(RandomInstances& random) {
  while (true) {
    PlannerInstance instance = random.next();
    if (instance.graph.nodes.size() > 5 || instance.cluster.deviceCount() < 2) continue;
    instance.options.shard = ShardPolicy::automatic;
    instance.options.straight = false;
    instance.options.optimizerStatePerParameterByte = static_cast<double>(random.between(1, 2));
    const std::int64_t longer = random.between(1, 8);
    for (CostNode& node : instance.graph.nodes) node.updateMs *= static_cast<double>(longer);
    return instance;
  }
}

/// Stages of consecutive nodes while there are devices, each with shards or without.
Partition randomPartition(const PlannerInstance& instance, RandomInstances& random) {
  const std::vector<DeviceClass> classes = deviceClasses(instance.cluster, instance.options);
  std::vector<int> left;
  for (const DeviceClass& c : classes) left.push_back(static_cast<int>(c.leaves.size()));
  Partition partition;
  for (std::int64_t v = 0; v < static_cast<std::int64_t>(instance.graph.nodes.size()); ++v) {
    PartitionStage stage{.shards = random.between(0, 1) > 0};
    stage.replicas = 0;
    if (v == 0 || random.between(0, 1))
      for (int& free : left) {
        stage.ofClass.push_back(
            static_cast<int>(random.between(v == 0 && stage.replicas == 0 ? 1 : 0, std::min(free, 3))));
        free -= stage.ofClass.back();
        stage.replicas += stage.ofClass.back();
      }
    if (stage.replicas > 0) partition.stages.push_back(stage);
    partition.stages.back().nodes.push_back(v);
  }
  return partition;
}

struct Counts {
  int sharded = 0, mixed = 0, infeasible = 0;
  void add(const Plan& plan) {
    bool has = false, lacks = false;
    for (const PlanStage& stage : plan.stages)
      if (stage.replicas > 1) (stage.isSharded() ? has : lacks) = true;
    sharded += has;
    mixed += has && lacks;
  }
};

/// The solver's plan is the best of all plans, in all that they are compared by.
void expectBest(const PlannerInstance& instance, const std::optional<PlanCost>& expected, Counts& counts) {
  const std::string where = whereOf(instance);
  const std::optional<Solution> found = solve(instance.graph, instance.cluster, instance.options);
  ASSERT_EQ(found.has_value(), expected.has_value()) << where;
  counts.infeasible += !found;
  if (!found) return;
  const Plan plan = confirmed(instance, *found, where);
  ASSERT_NEAR(found->cost.timeMs, expected->timeMs, 2e-9 * expected->timeMs) << where << toJson(plan);
  EXPECT_NEAR(found->cost.loadMs, expected->loadMs, 2e-9 * expected->loadMs) << where;
  EXPECT_EQ(found->cost.peakMemoryBytes, expected->peakMemoryBytes) << where;
  EXPECT_EQ(found->cost.bytesMoved, expected->bytesMoved) << where;
  counts.add(plan);
}

/// With a memory limit that the best plan without one does not keep to, in most of the rounds: then some stages need
/// shards.
std::optional<PlanCost> bestOf(PlannerInstance& instance, RandomInstances& random) {
  std::optional<PlanCost> best = bruteForce(instance.graph, instance.cluster, instance.options);
  if (!best || random.between(0, 2) == 0) return best;
  setMemory(instance.cluster, best->peakMemoryBytes * random.between(50, 99) / 100);
  return bruteForce(instance.graph, instance.cluster, instance.options);
}

std::uint64_t seedOr(std::uint64_t seed) {
  const char* text = std::getenv("PDC_TEST_SEED");
  return text ? std::strtoull(text, nullptr, 10) : seed;
}

/// Two stages of two replicas: the first has parameters, the second computes longer.
CostGraph twoStages() {
  CostGraph graph;
  graph.nodes.push_back(
      {.name = "table", .forwardMs = 2, .updateMs = 1, .parameterBytes = 8000, .gradientBytes = 8000});
  graph.nodes.push_back({.name = "layers", .forwardMs = 8, .updateMs = 1, .parameterBytes = 100, .gradientBytes = 100});
  graph.tensors.push_back({.name = "t", .from = 0, .to = {1}, .bytes = 8});
  return graph;
}

Cluster devices(std::int64_t count) {
  Cluster cluster;
  cluster.levels.push_back({"machine", count, 1e9, 0});
  cluster.device.memoryBytes = std::int64_t{1} << 40;
  return cluster;
}

} // namespace

TEST(PlannerPdcShard, CostModelEqualsTheDefinition) {
  RandomInstances random(31);
  RandomSplits splits(31);
  int feasible = 0;
  Counts counts;
  for (int round = 0; round < rounds(1000); ++round) {
    PlannerInstance instance = instanceFor(random);
    if (random.between(0, 1)) instance.options.memoryBytes = random.between(1, 20) * 1000;
    const Partition partition = randomPartition(instance, random);
    const PlanCost cost = CostModel(instance.graph, instance.cluster, instance.options).costOf(partition);
    if (cost.warmup.empty()) continue;
    Plan plan = describePartition(instance.graph, instance.cluster, instance.options, partition);
    for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = cost.warmup[s];
    expectDefinition(instance, cost, plan, whereOf(instance));
    if (HasFailure()) return;
    feasible += cost.feasible;
    counts.add(plan);
  }
  EXPECT_GT(feasible, rounds(1000) / 4);
  EXPECT_GT(counts.mixed, rounds(1000) / 20);
}

TEST(PlannerPdcShard, SolverFindsTheBestOfAllPlans) {
  RandomInstances random(seedOr(37));
  Counts counts;
  const int count = rounds(150);
  for (int round = 0; round < count; ++round) {
    PlannerInstance instance = instanceFor(random);
    const std::optional<PlanCost> expected = bestOf(instance, random);
    expectBest(instance, expected, counts);
    if (HasFatalFailure()) return;
    if ((round + 1) % 1000 == 0) std::cout << round + 1 << " instances" << std::endl;
  }
  EXPECT_GT(counts.infeasible, 0);
  EXPECT_GT(counts.sharded, count / 5);
  EXPECT_GT(counts.mixed, 0);
}

// Each stage may have a team, and shards of what the replicas of a member have.
TEST(PlannerPdcShard, SolverFindsTheBestOfAllPlansWithTeams) {
  RandomInstances random(seedOr(41));
  RandomSplits splits(seedOr(41));
  Counts counts;
  int both = 0;
  const int count = rounds(60);
  for (int round = 0; round < count;) {
    PlannerInstance instance = instanceFor(random);
    if (instance.graph.nodes.size() > 4) continue;
    ++round;
    splits.divide(instance.graph, 1);
    const std::optional<PlanCost> expected = bestOf(instance, random);
    expectBest(instance, expected, counts);
    if (HasFatalFailure()) return;
    const std::optional<Solution> found = solve(instance.graph, instance.cluster, instance.options);
    for (std::size_t s = 0; found && s < found->partition.stages.size(); ++s)
      both += found->partition.stages[s].shards && found->partition.stages[s].team > 1;
  }
  EXPECT_GT(counts.sharded, count / 10);
  EXPECT_GT(both, 0);
}

TEST(PlannerPdcShard, SolverFindsTheBestOfAllPlansForGivenStages) {
  RandomInstances random(seedOr(43));
  Counts counts;
  const int count = rounds(60);
  for (int round = 0; round < count; ++round) {
    PlannerInstance instance = instanceFor(random);
    const std::int64_t stages =
        random.between(1, std::min<std::int64_t>(2, static_cast<std::int64_t>(instance.graph.nodes.size())));
    for (std::int64_t s = 0; s < stages; ++s) instance.options.stageShards.push_back(random.between(0, 1) > 0);
    const std::optional<PlanCost> expected = bruteForce(instance.graph, instance.cluster, instance.options);
    expectBest(instance, expected, counts);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(counts.sharded, count / 10);
}

// Of schedules with batches the oracle executes every plan.
TEST(PlannerPdcShard, PlansBatchesAsFastAsTheBestOfAll) {
  RandomInstances random(47);
  Counts counts;
  int round = 0;
  const int count = rounds(20);
  while (round < count) {
    PlannerInstance instance = instanceFor(random);
    if (instance.graph.nodes.size() > 4 || instance.cluster.deviceCount() > 4 || !instance.cluster.devices.empty() ||
        instance.cluster.levels.size() > 1)
      continue;
    instance.cluster.device.cores = 0; // ranks that share some wait in an order that only the simulator knows
    PlannerOptions options;
    options.shard = ShardPolicy::automatic;
    options.optimizerStatePerParameterByte = 2;
    options.schedule = std::array{"1f1b-flush", "gpipe", "2bw", "zb-h1"}[static_cast<std::size_t>(round) % 4];
    options.microbatches = random.between(1, 6);
    ++round;
    const std::optional<PlanCost> expected = bruteForce(instance.graph, instance.cluster, options);
    Diagnostics diags(nullptr);
    const Expected<Plan> plan = planPipeline(instance.graph, instance.cluster, options, diags);
    ASSERT_TRUE(plan && expected) << whereOf(instance);
    EXPECT_EQ(verifyPlan(instance.graph, *plan, options), "") << whereOf(instance);
    EXPECT_LE(plan->lowerBoundMs, expected->timeMs * (1 + 1e-6)) << whereOf(instance);
    EXPECT_LE(plan->timeMs, 1.002 * expected->timeMs) << whereOf(instance);
    counts.add(*plan);
  }
  EXPECT_GT(counts.sharded, 0);
}

// Whole states of both stages do not fit, and shards in both would not be needed.
TEST(PlannerPdcShard, DividesTheStateOfTheStageThatNeedsIt) {
  const CostGraph graph = twoStages();
  PlannerOptions options;
  options.shard = ShardPolicy::automatic;
  options.sync = SyncPolicy::barrier;
  options.optimizerStatePerParameterByte = 2;
  options.stageReplicas = {2, 2};
  options.schedule = "gpipe";
  options.microbatches = 4;
  Diagnostics diags(nullptr);
  const auto bytesWith = [&](bool first, bool second) {
    PlannerOptions given = options;
    given.stageShards = {first, second};
    const Expected<Plan> plan = planPipeline(graph, devices(4), given, diags);
    EXPECT_TRUE(plan);
    return plan->stages[0].memoryBytes;
  };
  EXPECT_EQ(bytesWith(false, true) - bytesWith(true, false), 8000) << "a half of two states of 8,000 bytes";
  options.memoryBytes = bytesWith(false, false) - 1;
  const Expected<Plan> plan = planPipeline(graph, devices(4), options, diags);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->stages[0].sharding, pdcrt::Sharding::optimizer);
  EXPECT_EQ(plan->stages[1].sharding, pdcrt::Sharding::none) << "its all-gather would be exposed";
  EXPECT_EQ(verifyPlan(graph, *plan, options), "");
  options.shard = ShardPolicy::none;
  EXPECT_FALSE(planPipeline(graph, devices(4), options, diags));
}

TEST(PlannerPdcShard, AListNamesTheStages) {
  PlannerOptions options;
  Diagnostics diags(nullptr);
  ASSERT_TRUE(parseShard("optimizer,none", options, diags));
  EXPECT_EQ(options.shard, ShardPolicy::automatic);
  EXPECT_EQ(options.stageShards, (std::vector<bool>{true, false}));
  options.stageReplicas = {2, 2};
  const Expected<Plan> plan = planPipeline(twoStages(), devices(4), options, diags);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->stages[0].isSharded());
  EXPECT_FALSE(plan->stages[1].isSharded());
  options.stageReplicas = {2};
  EXPECT_FALSE(planPipeline(twoStages(), devices(4), options, diags));
  EXPECT_EQ(diags.exitCode(), ExitCode::usage);
  EXPECT_FALSE(parseShard("optimizer,weights", options, diags));
}
