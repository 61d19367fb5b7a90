// LINK: pdcPlanner
// Every plan can be run: its schedule passes the check, its memory fits, and the simulator takes the time that the plan
// states.
#include "PlannerPdcInstances.h"
#include "Rounds.h"
#include "pdc/Planner/Verifier.h"
#include "pdc/Schedule/PlanSchedule.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

using namespace pdc;

TEST(PlannerPdcRunnable, PlansTakeTheTimeThatTheyState) {
  std::uint64_t seed = 5;
  if (const char* text = std::getenv("PDC_TEST_SEED")) seed = std::strtoull(text, nullptr, 10);
  RandomInstances random(seed);
  int replicated = 0, corrected = 0, plans = 0;
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
    double simulatedMs = simulate(*plan, *schedule).timePerMinibatchMs;
    EXPECT_NEAR(simulatedMs, plan->timeMs, 0.01 * plan->timeMs) << where;
    for (const PlanStage& stage : plan->stages) replicated += stage.replicas > 1;
    corrected += plan->timeMs > plan->lowerBoundMs * (1 + 1e-9);
    if (std::getenv("PDC_TEST_VERBOSE") && plan->timeMs > plan->lowerBoundMs * (1 + 1e-9))
      std::cout << plan->timeMs / plan->lowerBoundMs << " " << where << "\n";
  }
  std::cout << plans << " plans, " << replicated << " replicated stages, " << corrected
            << " plans slower than their bound\n";
  EXPECT_GT(replicated, 0);
}
