// LINK: pdcPlanner
// Every plan can be run: its schedule passes the check, its memory fits, and the simulator takes the time that the plan
// states.
#include "PlannerPdcInstances.h"
#include "Rounds.h"
#include "pdc/Cost/PlanVerifier.h"
#include "pdc/Predict/Simulate.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>

using namespace pdc;

/// Whether transfers or common parameters lead from each stage to each other. Stages that nothing connects drift apart
/// where ranks share cores: there is no steady state then, only a mean over the whole run.
static bool isConnected(const Plan& plan) {
  std::vector<int> part(plan.stages.size());
  std::iota(part.begin(), part.end(), 0);
  auto connect = [&](int a, int b) { std::replace(part.begin(), part.end(), int{part[a]}, int{part[b]}); };
  for (const PlanTensor& tensor : plan.tensors) connect(tensor.from, tensor.to);
  for (const PlanSharedParameter& parameter : plan.sharedParameters)
    for (int user : parameter.stages) connect(parameter.stages[0], user);
  return std::count(part.begin(), part.end(), part[0]) == std::ssize(part);
}

namespace {

/// Stages of one node each in a batch, with times per minibatch.
struct Batches {
  explicit Batches(const std::vector<double>& stageMs) {
    std::vector<std::int64_t> ends;
    for (const double ms : stageMs) {
      CostNode node;
      node.forwardMs = node.inputGradientMs = node.weightGradientMs = ms / 3;
      node.savedBytes = 1000;
      if (!graph.nodes.empty()) {
        const auto v = static_cast<std::int64_t>(graph.nodes.size());
        graph.tensors.push_back({.name = "t" + std::to_string(v), .from = v - 1, .to = {v}, .bytes = 0});
      }
      graph.nodes.push_back(node);
      ends.push_back(static_cast<std::int64_t>(graph.nodes.size()));
    }
    const auto stages = static_cast<std::int64_t>(ends.size());
    cluster.levels = {{"device", stages, 1e9, 0}};
    setMemory(cluster, 1'000'000);
    options.schedule = "1f1b-flush";
    options.microbatches = 32;
    partition = partitionOfIntervals(ends, std::vector<int>(ends.size(), 1));
  }

  PlanCost cost() const { return costOf(described(), options); }
  Plan described() const { return describePartition(graph, cluster, options, partition); }
  double simulatedMs(const PlanCost& cost) const {
    Plan plan = described();
    for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = cost.warmup[s];
    return simulate(plan, buildSchedule(shapeOf(plan))).timePerMinibatchMs;
  }

  CostGraph graph;
  Cluster cluster;
  PlannerOptions options;
  Partition partition;
};

} // namespace

TEST(PlannerPdcRunnable, BatchesKeepTheirLoopsWhereMemoryIsShort) {
  Batches batches({3, 3, 3, 3, 3, 3});
  const PlanCost free = batches.cost();
  setMemory(batches.cluster, free.peakMemoryBytes * 60 / 100);
  const PlanCost shortened = batches.cost();
  ASSERT_TRUE(shortened.feasible);
  EXPECT_LT(shortened.warmup[0], free.warmup[0]);
  EXPECT_LT(batches.simulatedMs(shortened), 2 * batches.simulatedMs(free));
}

TEST(PlannerPdcRunnable, StagesComputeUntilTheirFirstGradientIsBack) {
  Batches batches({3, 2, 2, 2, 2, 2});
  const PlanCost cost = batches.cost();
  Plan plan = batches.described();
  for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = cost.warmup[s];
  const PlanCost filled = costWithFilledWarmup(plan, batches.options);
  ASSERT_TRUE(filled.feasible);
  EXPECT_LT(batches.simulatedMs(filled), 0.99 * batches.simulatedMs(cost));
  setMemory(batches.cluster, cost.peakMemoryBytes);
  plan.cluster = batches.cluster;
  EXPECT_FALSE(costWithFilledWarmup(plan, batches.options).feasible); // there is no room for more
}

TEST(PlannerPdcRunnable, PlansTakeTheTimeThatTheyState) {
  std::uint64_t seed = 5;
  if (const char* text = std::getenv("PDC_TEST_SEED")) seed = std::strtoull(text, nullptr, 10);
  RandomInstances random(seed);
  int replicated = 0, corrected = 0, plans = 0, compared = 0;
  for (int round = 0; round < rounds(150); ++round) {
    PlannerInstance instance = random.next();
    Diagnostics diags(nullptr);
    if (random.between(0, 1)) {
      Expected<Plan> without = planPipeline(instance.graph, instance.cluster, instance.options, diags);
      std::int64_t peak = 0;
      if (without)
        for (const PlanStage& stage : without->stages) peak = std::max(peak, stage.memoryBytes);
      if (peak > 0) setMemory(instance.cluster, peak * random.between(40, 99) / 100);
    }
    Expected<Plan> plan = planPipeline(instance.graph, instance.cluster, instance.options, diags);
    std::string where = toLine(instance, std::nullopt);
    if (!plan) {
      EXPECT_EQ(diags.exitCode(), ExitCode::noPlan) << where << (diags.all().empty() ? "" : diags.all().back().message);
      continue;
    }
    ++plans;
    EXPECT_EQ(verifyPlan(instance.graph, *plan, instance.options), "") << where;
    EXPECT_LE(plan->lowerBoundMs, plan->timeMs * (1 + 1e-12)) << where;
    Expected<pdcrt::Schedule> schedule = scheduleFor(*plan, diags);
    ASSERT_TRUE(schedule) << where;
    if (instance.cluster.device.cores == 0 || isConnected(*plan)) {
      double simulatedMs = simulate(*plan, *schedule).timePerMinibatchMs;
      EXPECT_NEAR(simulatedMs, plan->timeMs, 0.01 * plan->timeMs) << where;
      ++compared;
    }
    for (const PlanStage& stage : plan->stages) replicated += stage.replicas > 1;
    corrected += plan->timeMs > plan->lowerBoundMs * (1 + 1e-9);
    if (std::getenv("PDC_TEST_VERBOSE") && plan->timeMs > plan->lowerBoundMs * (1 + 1e-9))
      std::cout << plan->timeMs / plan->lowerBoundMs << " " << where << "\n";
  }
  std::cout << plans << " plans, " << compared << " compared, " << replicated << " replicated stages, " << corrected
            << " plans slower than their bound\n";
  EXPECT_GT(replicated, 0);
}

// Where memory does not allow all of the warm-up that the simulator asks for, a stage that uses a parameter of an
// earlier one gets no further ahead than that: its forwards would wait for a version that its own backwards lead to.
TEST(PlannerPdcRunnable, AWarmupThatMemoryCutsStaysRunnableWithSharedParameters) {
  std::optional<PlanCost> best;
  PlannerInstance instance =
      instanceOf(R"({"nodes":[[2.0,6.0,2.0,0.25,0,0,400,0,60,-1],[2.0,6.0,4.0,0.125,0,0,500,0,30,-1,80],)"
                 R"([2.0,2.0,6.0,0.125,300,300,200,0,30,-1,80],[4.0,4.0,0.0,0.375,200,200,100,100,60,-1],)"
                 R"([4.0,2.0,0.0,0.25,200,200,300,0,30,-1,80],[2.0,2.0,0.0,0.5,100,100,300,0,60,-1,40]],)"
                 R"("tensors":[[0,[1,2],600,true],[1,[3],600,true],[3,[4],700,true],[4,[5],300,true]],)"
                 R"("shared":[[[0,1,2,4],300]],"levels":[[4,600000.0,0.0]],"device":["test",10082,1000,0.5,2],)"
                 R"("options":["barrier","stash","hide",false,"auto",2.0],"best":null})",
                 best);
  Diagnostics diags(nullptr);
  Expected<Plan> plan = planPipeline(instance.graph, instance.cluster, instance.options, diags);
  ASSERT_TRUE(plan) << diags.all().back().message;
  EXPECT_TRUE(scheduleFor(*plan, diags));
}
