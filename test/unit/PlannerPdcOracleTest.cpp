// LINK: pdcPlanner
// Cost model pdc and its solver against the definition, and against trying every plan.
#include "PlannerPdcChecks.h"
#include "Rounds.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>

using namespace pdc;

namespace {

/// The cost of the best plan that the solver finds, as the definition sees it.
std::optional<PlanCost> solved(const PlannerInstance& instance, const std::string& where) {
  std::optional<Solution> solution = solve(instance.graph, instance.cluster, instance.options);
  if (!solution) return std::nullopt;
  const Plan plan = confirmed(instance, *solution, where);
  PlanCost cost = evaluateByDefinition(instance.graph, plan, instance.options);
  EXPECT_NEAR(cost.timeMs, solution->cost.timeMs, 1e-9 * cost.timeMs) << where;
  return cost;
}

/// Whether the solver's plan is the oracle's best.
void expectBest(const PlannerInstance& instance, const std::optional<PlanCost>& expected) {
  std::string where = toLine(instance, expected);
  std::optional<PlanCost> found = solved(instance, where);
  ASSERT_EQ(found.has_value(), expected.has_value()) << where;
  if (!found) return;
  ASSERT_NEAR(found->timeMs, expected->timeMs, 2e-9 * expected->timeMs) << where;
  EXPECT_NEAR(found->loadMs, expected->loadMs, 2e-9 * expected->loadMs) << where;
  EXPECT_EQ(found->peakMemoryBytes, expected->peakMemoryBytes) << where;
  EXPECT_EQ(found->bytesMoved, expected->bytesMoved) << where;
}

struct AnsweredInstance {
  PlannerInstance instance;
  std::optional<PlanCost> best;
};

/// With a memory limit that the best plan without one does not keep to, in two of three rounds.
AnsweredInstance nextInstance(RandomInstances& random) {
  PlannerInstance instance = random.next();
  std::optional<PlanCost> best = bruteForce(instance.graph, instance.cluster, instance.options);
  if (best && random.between(0, 2) > 0) {
    setMemory(instance.cluster, best->peakMemoryBytes * random.between(20, 99) / 100);
    best = bruteForce(instance.graph, instance.cluster, instance.options);
  }
  return {instance, best};
}

} // namespace

TEST(PlannerPdcOracle, SolverFindsTheBestOfAllPlans) {
  std::uint64_t seed = 1;
  if (const char* text = std::getenv("PDC_TEST_SEED")) seed = std::strtoull(text, nullptr, 10);
  RandomInstances random(seed);
  int infeasible = 0;
  std::ofstream file;
  if (const char* name = std::getenv("PDC_WRITE_INSTANCES")) file.open(name);
  for (int round = 0; round < rounds(200); ++round) {
    auto [instance, expected] = nextInstance(random);
    infeasible += !expected;
    if (file.is_open()) file << toLine(instance, expected) << "\n";
    expectBest(instance, expected);
    if (HasFatalFailure()) return;
    // Of long runs by hand.
    if ((round + 1) % 1000 == 0) std::cout << round + 1 << " instances" << std::endl;
  }
  EXPECT_GT(infeasible, 0);
}

// The same problems for ever, with the oracle's answers of the day when they were written. (After a change of the cost
// model that is meant, PDC_WRITE_INSTANCES=FILE with this test alone writes them with the answers of today.)
TEST(PlannerPdcOracle, SolvesTheKeptInstances) {
  std::ifstream file(PDC_SOURCE_DIR "/test/Planner/instances.jsonl");
  ASSERT_TRUE(file.is_open());
  int count = 0;
  std::ofstream written;
  if (const char* name = std::getenv("PDC_WRITE_INSTANCES")) written.open(name);
  for (std::string line; std::getline(file, line); ++count) {
    std::optional<PlanCost> best;
    PlannerInstance instance = instanceOf(line, best);
    ASSERT_EQ(toLine(instance, best), line);
    if (written.is_open()) {
      best = bruteForce(instance.graph, instance.cluster, instance.options);
      written << toLine(instance, best) << "\n";
    }
    expectBest(instance, best);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(count, 1008); // the last eight need a long search, or the smallest load where cores bound the time
}

// Any partition, with any warm-up: what the solver works with is what the definition says.
TEST(PlannerPdcOracle, CostModelEqualsTheDefinition) {
  RandomInstances random(2);
  for (int round = 0; round < rounds(2000); ++round) {
    PlannerInstance instance = random.next();
    const std::vector<DeviceClass> classes = deviceClasses(instance.cluster, instance.options);
    std::vector<int> left;
    for (const DeviceClass& c : classes) left.push_back(static_cast<int>(c.leaves.size()));
    Partition partition;
    auto nodes = static_cast<std::int64_t>(instance.graph.nodes.size());
    for (std::int64_t v = 0; v < nodes; ++v) {
      // A new stage at some nodes, while there are devices.
      std::vector<int> taken;
      int replicas = 0;
      if (v == 0 || random.between(0, 1))
        for (std::size_t c = 0; c < classes.size(); ++c) {
          taken.push_back(static_cast<int>(random.between(0, std::min(left[c], 3))));
          replicas += taken.back();
        }
      if (v == 0 && replicas == 0) replicas = taken[0] = 1;
      if (replicas > 0) {
        PartitionStage stage;
        stage.replicas = replicas;
        stage.ofClass = taken;
        stage.recompute = random.between(0, 2) == 0;
        for (std::size_t c = 0; c < classes.size(); ++c) left[c] -= taken[c];
        partition.stages.push_back(stage);
      }
      partition.stages.back().nodes.push_back(v);
    }
    if (random.between(0, 1)) {
      instance.options.warmupPolicy = WarmupPolicy::given;
      for (std::size_t s = 0; s < partition.stages.size(); ++s)
        instance.options.warmup.push_back(static_cast<int>(random.between(0, 5)));
    }
    if (random.between(0, 1)) instance.options.memoryBytes = random.between(1, 20) * 1000;
    PlanCost cost = CostModel(instance.graph, instance.cluster, instance.options).costOf(partition);
    Plan plan = describePartition(instance.graph, instance.cluster, instance.options, partition);
    std::string where = toLine(instance, std::nullopt);
    ASSERT_EQ(cost.warmup.size(), plan.stages.size()) << where;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = cost.warmup[s];
    expectDefinition(instance, cost, plan, where);
  }
}
