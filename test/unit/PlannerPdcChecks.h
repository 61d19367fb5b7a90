// What tests of the planner expect of every instance.
#pragma once

#include "PlannerPdcInstances.h"
#include "Search/Solver.h"
#include "pdc/Cost/PlanVerifier.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pdc {

/// The plan of a solution, which verifier and bound confirm.
inline Plan confirmed(const PlannerInstance& instance, const Solution& solution, const std::string& where) {
  Plan plan = describePartition(instance.graph, instance.cluster, instance.options, solution.partition);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = solution.cost.warmup[s];
  const std::vector<std::int64_t> memory = memoryOf(plan, instance.options);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].memoryBytes = memory[s];
  plan.timeMs = solution.cost.timeMs;
  EXPECT_EQ(verifyPlan(instance.graph, plan, instance.options), "") << where;
  EXPECT_NEAR(solution.lowerBoundMs, solution.cost.timeMs, 1e-9 * solution.cost.timeMs) << where;
  return plan;
}

/// The cost model's `cost` of a plan is what the definition says, and what follows from the plan.
inline void expectDefinition(const PlannerInstance& instance, const PlanCost& cost, const Plan& plan,
                             const std::string& where) {
  const PlanCost definition = evaluateByDefinition(instance.graph, plan, instance.options);
  EXPECT_EQ(cost.feasible, definition.feasible) << where;
  EXPECT_EQ(cost.peakMemoryBytes, definition.peakMemoryBytes) << where;
  EXPECT_EQ(cost.bytesMoved, definition.bytesMoved) << where;
  if (std::isfinite(definition.timeMs)) {
    EXPECT_NEAR(cost.timeMs, definition.timeMs, 1e-9 * definition.timeMs) << where;
    EXPECT_NEAR(cost.loadMs, definition.loadMs, 1e-9 * definition.loadMs) << where;
  } else {
    EXPECT_FALSE(std::isfinite(cost.timeMs)) << where;
  }
  const PlanCost fromPlan = costWithWarmup(plan, instance.options);
  EXPECT_EQ(fromPlan.timeMs, cost.timeMs) << where;
  EXPECT_EQ(fromPlan.peakMemoryBytes, cost.peakMemoryBytes) << where;
  EXPECT_EQ(fromPlan.bytesMoved, cost.bytesMoved) << where;
}

} // namespace pdc
