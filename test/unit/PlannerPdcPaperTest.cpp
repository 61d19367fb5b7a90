// LINK: pdcPlanner
// PipeDream's warm-up: plans by labels from the last stage on, and what minibatches in flight allow.
#include "PlannerPdcChecks.h"
#include "PlannerPdcSplits.h"
#include "Rounds.h"
#include "pdc/Predict/Simulate.h"
#include "pdc/Predict/Warmup.h"
#include "pdc/Schedule/PlanSchedule.h"

#include <gtest/gtest.h>

using namespace pdc;

namespace {

/// Stages of consecutive nodes of a chain, each on one to three replicas of equal devices.
PlannerInstance randomChain(RandomInstances& random) {
  PlannerInstance instance;
  const std::int64_t nodes = random.between(2, 5);
  for (std::int64_t v = 0; v < nodes; ++v)
    instance.graph.nodes.push_back({.name = "n" + std::to_string(v),
                                    .forwardMs = static_cast<double>(random.between(1, 9)),
                                    .inputGradientMs = static_cast<double>(random.between(1, 9))});
  for (std::int64_t v = 0; v + 1 < nodes; ++v)
    instance.graph.tensors.push_back({.name = "t" + std::to_string(v), .from = v, .to = {v + 1}, .bytes = 8});
  instance.cluster.levels.push_back({"machine", 3 * nodes, 1e12, 0});
  instance.cluster.device.memoryBytes = std::int64_t{1} << 40;
  instance.options.schedule = "2bw";
  instance.options.microbatches = 24;
  return instance;
}

} // namespace

TEST(PlannerPdcPaper, NothingIsExecutedFasterThanWhatIsInFlightAllows) {
  RandomInstances random(5);
  int decides = 0, count = 0;
  for (int round = 0; round < rounds(300); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    PlannerInstance instance = randomChain(random);
    std::vector<std::int64_t> ends;
    std::vector<int> replicas;
    for (std::int64_t v = 1; v <= std::ssize(instance.graph.nodes); ++v)
      if (v == std::ssize(instance.graph.nodes) || random.between(0, 2) > 0) {
        ends.push_back(v);
        replicas.push_back(static_cast<int>(random.between(1, 3)));
      }
    const Partition partition = partitionOfIntervals(ends, replicas);
    Plan plan = describePartition(instance.graph, instance.cluster, instance.options, partition);
    const std::vector<int> warmup = paperWarmup(plan);
    for (std::size_t s = 0; s < warmup.size(); ++s) plan.stages[s].warmup = warmup[s];
    const double simulatedMs = simulate(plan, buildSchedule(shapeOf(plan))).timePerMinibatchMs;
    const double inFlight = inFlightMs(plan, instance.options);
    EXPECT_LE(inFlight, simulatedMs * (1 + 1e-6));
    const double busiest = costWithWarmup(plan, instance.options).timeMs;
    decides += inFlight > busiest * 1.01;
    ++count;
    if (HasFailure()) return;
  }
  EXPECT_GT(decides, count / 60);
}

TEST(PlannerPdcPaper, SolverFindsTheBestOfAllPlans) {
  RandomInstances random(13);
  RandomSplits splits(13);
  int tight = 0, infeasible = 0, count = 0;
  while (count < rounds(120)) {
    PlannerInstance instance = random.next();
    if (instance.graph.nodes.size() > 5 || !instance.cluster.devices.empty()) continue;
    instance.options.warmupPolicy = WarmupPolicy::paper;
    instance.options.stageReplicas.clear();
    instance.options.shard = ShardPolicy::none;
    splits.divide(instance.graph, 2);
    ++count;
    std::optional<PlanCost> expected = bruteForce(instance.graph, instance.cluster, instance.options);
    if (expected && random.between(0, 1)) {
      setMemory(instance.cluster, expected->peakMemoryBytes * random.between(40, 99) / 100);
      expected = bruteForce(instance.graph, instance.cluster, instance.options);
      ++tight;
    }
    const std::string where = toLine(instance, std::nullopt) + "\n" + toJson(instance.graph);
    const std::optional<Solution> found = solve(instance.graph, instance.cluster, instance.options);
    ASSERT_EQ(found.has_value(), expected.has_value()) << where;
    infeasible += !found;
    if (!found) continue;
    ASSERT_NEAR(found->cost.timeMs, expected->timeMs, 2e-9 * expected->timeMs) << where;
    ASSERT_NEAR(found->lowerBoundMs, found->cost.timeMs, 1e-9 * found->cost.timeMs) << where;
    EXPECT_EQ(found->cost.peakMemoryBytes, expected->peakMemoryBytes) << where;
  }
  EXPECT_GT(tight, count / 5);
  EXPECT_GT(infeasible, 0);
}

// A plan of more replicas than a batch has microbatches would wait for what is not in flight.
TEST(PlannerPdcPaper, StagesHaveNoMoreReplicasThanABatch) {
  RandomInstances random(3);
  PlannerInstance instance = randomChain(random);
  instance.options.warmupPolicy = WarmupPolicy::paper;
  instance.options.microbatches = 300;
  instance.cluster.levels[0].count = 400;
  const std::optional<Solution> found = solve(instance.graph, instance.cluster, instance.options);
  ASSERT_TRUE(found);
  int replicas = 0;
  for (const PartitionStage& stage : found->partition.stages) replicas += stage.replicas;
  EXPECT_EQ(replicas, 300);
}
