// LINK: pdcPlanner
// A split for each stage: the cost model against the definition, and the solver against trying every plan.
#include "PlannerPdcChecks.h"
#include "PlannerPdcSplits.h"
#include "Rounds.h"
#include "pdc/Planner/Planner.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <iostream>

using namespace pdc;

namespace {

std::string whereOf(const PlannerInstance& instance) {
  return toLine(instance, std::nullopt) + "\n" + toJson(instance.graph);
}

/// Random stages of consecutive nodes while there are devices, each with a random split.
Partition randomPartition(const PlannerInstance& instance, RandomInstances& random) {
  const std::vector<DeviceClass> classes = deviceClasses(instance.cluster, instance.options);
  std::vector<int> left;
  for (const DeviceClass& c : classes) left.push_back(static_cast<int>(c.leaves.size()));
  Partition partition;
  for (std::int64_t v = 0; v < static_cast<std::int64_t>(instance.graph.nodes.size()); ++v) {
    PartitionStage stage;
    stage.split = static_cast<int>(random.between(0, instance.graph.splits() - 1));
    stage.team = instance.graph.in(stage.split).split.members;
    stage.recompute = random.between(0, 2) == 0;
    stage.shards = random.between(0, 1) > 0;
    stage.replicas = 0;
    if (v == 0 || random.between(0, 1))
      for (std::size_t c = 0; c < classes.size(); ++c) {
        stage.ofClass.push_back(static_cast<int>(random.between(0, std::min(left[c] / stage.team, 3))));
        stage.replicas += stage.ofClass.back();
      }
    if (v == 0 && stage.replicas == 0) {
      stage = {};
      stage.ofClass.assign(classes.size(), 0);
      stage.ofClass[0] = 1;
    }
    if (stage.replicas > 0) {
      for (std::size_t c = 0; c < classes.size(); ++c) left[c] -= stage.team * stage.ofClass[c];
      partition.stages.push_back(stage);
    }
    partition.stages.back().nodes.push_back(v);
  }
  return partition;
}

/// With a memory limit that the best plan without one does not keep to, in a half of the rounds.
std::optional<PlanCost> bestOf(PlannerInstance& instance, RandomInstances& random) {
  std::optional<PlanCost> best = bruteForce(instance.graph, instance.cluster, instance.options);
  if (!best || random.between(0, 1) == 0) return best;
  setMemory(instance.cluster, best->peakMemoryBytes * random.between(40, 99) / 100);
  return bruteForce(instance.graph, instance.cluster, instance.options);
}

} // namespace

TEST(PlannerPdcSplit, CostModelEqualsTheDefinition) {
  RandomInstances random(5);
  RandomSplits splits(5);
  int feasible = 0, mixed = 0;
  for (int round = 0; round < rounds(2000); ++round) {
    PlannerInstance instance = random.next();
    splits.divide(instance.graph, 3);
    if (random.between(0, 1)) instance.options.memoryBytes = random.between(1, 20) * 1000;
    const Partition partition = randomPartition(instance, random);
    const PlanCost cost = CostModel(instance.graph, instance.cluster, instance.options).costOf(partition);
    if (cost.warmup.empty()) continue; // no room for its teams, or no clean border: the solver test has these
    Plan plan = describePartition(instance.graph, instance.cluster, instance.options, partition);
    const std::string where = whereOf(instance);
    for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = cost.warmup[s];
    expectDefinition(instance, cost, plan, where);
    if (HasFailure()) return;
    feasible += cost.feasible;
    for (const PlanStage& stage : plan.stages)
      if (stage.split != plan.stages[0].split) {
        ++mixed;
        break;
      }
  }
  EXPECT_GT(feasible, rounds(2000) / 10);
  EXPECT_GT(mixed, rounds(2000) / 20);
}

TEST(PlannerPdcSplit, SolverFindsTheBestOfAllPlans) {
  std::uint64_t seed = 7;
  if (const char* text = std::getenv("PDC_TEST_SEED")) seed = std::strtoull(text, nullptr, 10);
  RandomInstances random(seed);
  RandomSplits splits(seed);
  int infeasible = 0, mixed = 0, divided = 0;
  const int count = rounds(150);
  for (int round = 0; round < count; ++round) {
    PlannerInstance instance = random.next();
    if (instance.graph.nodes.size() > 6) { // every plan is tried, for each split of each stage
      --round;
      continue;
    }
    splits.divide(instance.graph, 2);
    const std::optional<PlanCost> expected = bestOf(instance, random);
    infeasible += !expected;
    const std::string where = whereOf(instance);
    const std::optional<Solution> found = solve(instance.graph, instance.cluster, instance.options);
    ASSERT_EQ(found.has_value(), expected.has_value()) << where;
    if (!found) continue;
    const Plan plan = confirmed(instance, *found, where);
    ASSERT_NEAR(found->cost.timeMs, expected->timeMs, 2e-9 * expected->timeMs) << where << toJson(plan);
    EXPECT_NEAR(found->cost.loadMs, expected->loadMs, 2e-9 * expected->loadMs) << where;
    EXPECT_EQ(found->cost.peakMemoryBytes, expected->peakMemoryBytes) << where;
    EXPECT_EQ(found->cost.bytesMoved, expected->bytesMoved) << where;
    bool isDivided = false, isMixed = false;
    for (const PlanStage& stage : plan.stages) {
      isDivided |= !stage.split.isNone();
      isMixed |= stage.split != plan.stages[0].split;
    }
    divided += isDivided;
    mixed += isMixed;
    if ((round + 1) % 1000 == 0) std::cout << round + 1 << " instances" << std::endl;
  }
  EXPECT_GT(infeasible, 0);
  EXPECT_GT(divided, count / 10);
  EXPECT_GT(mixed, count / 50);
}

// Of schedules with batches the oracle executes every plan.
TEST(PlannerPdcSplit, PlansBatchesAsFastAsTheBestOfAll) {
  RandomInstances random(11);
  RandomSplits splits(11);
  int open = 0, divided = 0, round = 0;
  const int count = rounds(20);
  while (round < count) {
    PlannerInstance instance = random.next();
    if (instance.graph.nodes.size() > 4 || instance.cluster.deviceCount() > 4 || !instance.cluster.devices.empty() ||
        instance.cluster.levels.size() > 1)
      continue;
    splits.divide(instance.graph, 2);
    instance.cluster.device.cores = 0; // ranks that share some wait in an order that only the simulator knows
    PlannerOptions options;
    options.schedule = std::array{"1f1b-flush", "gpipe", "2bw", "zb-h1"}[static_cast<std::size_t>(round) % 4];
    options.microbatches = random.between(1, 6);
    ++round;
    const std::optional<PlanCost> expected = bruteForce(instance.graph, instance.cluster, options);
    Diagnostics diags(nullptr);
    const Expected<Plan> plan = planPipeline(instance.graph, instance.cluster, options, diags);
    ASSERT_TRUE(plan && expected) << whereOf(instance);
    EXPECT_EQ(verifyPlan(instance.graph, *plan, options), "") << whereOf(instance);
    EXPECT_LE(plan->lowerBoundMs, expected->timeMs * (1 + 1e-6)) << whereOf(instance);
    const double slack = options.schedule->inFlightFitsBatch ? 0.05 : 1e-6;
    open += plan->lowerBoundMs < expected->timeMs * (1 - slack);
    EXPECT_LE(plan->timeMs, 1.002 * expected->timeMs) << whereOf(instance);
    for (const PlanStage& stage : plan->stages) divided += !stage.split.isNone();
  }
  EXPECT_LE(open, count / 10);
  EXPECT_GT(divided, count / 4);
}

TEST(PlannerPdcSplit, KeepsTheSplitsThatAreGiven) {
  CostGraph graph;
  for (int v = 0; v < 4; ++v) graph.nodes.push_back({.name = "n" + std::to_string(v), .forwardMs = 4});
  for (std::int64_t v = 0; v < 3; ++v)
    graph.tensors.push_back({.name = "t" + std::to_string(v), .from = v, .to = {v + 1}, .bytes = 8});
  graph.divided = {graph};
  graph.divided[0].split.members = 2;
  for (CostNode& node : graph.divided[0].nodes) node.forwardMs = 2;
  graph.divided[0].tensors[2].isOwn = true; // no border before the last node
  Cluster cluster;
  cluster.levels.push_back({"machine", 3, 1e9, 0});
  cluster.device.memoryBytes = std::int64_t{1} << 40;
  PlannerOptions options;
  options.stageSplits = {{.members = 2}, {}};
  options.stageReplicas = {1, 1};
  Diagnostics diags(nullptr);
  const Expected<Plan> plan = planPipeline(graph, cluster, options, diags);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->stages[0].nodes, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(toText(plan->stages[0].split), "tp:2");
  EXPECT_TRUE(plan->stages[1].split.isNone());
  EXPECT_EQ(plan->ranks[0].devices, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(plan->ranks[1].devices, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(verifyPlan(graph, *plan, options), "");

  // Also where fewer stages, or other replicas, would be faster.
  options.stageReplicas.clear();
  cluster.levels[0].count = 5;
  const Expected<Plan> free = planPipeline(graph, cluster, options, diags);
  ASSERT_TRUE(free);
  ASSERT_EQ(free->stages.size(), 2u);
  EXPECT_EQ(toText(free->stages[0].split), "tp:2");
  EXPECT_TRUE(free->stages[1].split.isNone());
  EXPECT_EQ(verifyPlan(graph, *free, options), "");

  options.stageSplits = {{.members = 4}, {}};
  EXPECT_FALSE(planPipeline(graph, cluster, options, diags));
  EXPECT_EQ(diags.exitCode(), ExitCode::usage);
}

TEST(PlannerPdcSplit, GraphsOfSplitsAreWrittenAndRead) {
  RandomInstances random(3);
  RandomSplits splits(3);
  for (int round = 0; round < 20; ++round) {
    CostGraph graph = random.graph();
    splits.divide(graph, 3);
    Diagnostics diags(nullptr);
    const Expected<CostGraph> read = costGraphFromJson(toJson(graph), "graph.json", diags);
    ASSERT_TRUE(read);
    EXPECT_EQ(toJson(*read), toJson(graph));
    graph.divided[0].nodes[0].colour += 1;
    EXPECT_FALSE(costGraphFromJson(toJson(graph), "graph.json", diags));
  }
}
