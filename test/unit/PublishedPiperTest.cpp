// LINK: pdcPublished
// Cost model `piper`: the published results, random problems against trying every plan, and what goes wrong.
#include "PublishedPiperProblems.h"
#include "Rounds.h"
#include "pdc/Published/Foreign.h"

#include "Piper/BruteForce.h"
#include "Piper/Definition.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

using namespace pdc;

namespace {

double peakMemory(const Plan& plan) {
  double peak = 0;
  for (const PlanStage& stage : plan.stages) peak = std::max(peak, static_cast<double>(stage.memoryBytes));
  return peak;
}

double movedBytes(const PiperProblem& problem, const Plan& plan) {
  double moved = 0;
  std::vector<PiperStageCost> costs = piperStageCosts(problem, plan);
  for (std::size_t s = 0; s < costs.size(); ++s)
    moved += costs[s].edgeBytes + plan.stages[s].replicas * costs[s].resyncBytes;
  return moved;
}

int devices(const Plan& plan) {
  int sum = 0;
  for (const PlanStage& stage : plan.stages) sum += stage.replicas * stage.tensorParallel;
  return sum;
}

/// Whether what a node sends depends on its stage and degrees only.
bool choicesMoveTheSame(const PiperProblem& problem) {
  for (const PiperNode& node : problem.nodes)
    for (const auto& [t, choices] : node.choices)
      for (const PiperChoice& choice : choices)
        if (choice.parameterBytes != choices[0].parameterBytes || choice.syncForward != choices[0].syncForward ||
            choice.syncBackward != choices[0].syncBackward)
          return false;
  return true;
}

void expectOptimal(const PiperProblem& problem, bool straight) {
  Diagnostics diags(nullptr);
  PlannerOptions options;
  options.straight = straight;
  Expected<Plan> plan = planPiper(problem, options, diags);
  std::optional<PiperOptimum> optimum = bruteForcePiper(problem, !straight);
  ASSERT_EQ(static_cast<bool>(plan), optimum.has_value());
  if (!plan) {
    EXPECT_EQ(diags.exitCode(), ExitCode::noPlan);
    return;
  }
  EXPECT_EQ(piperPlanErrors(problem, *plan), "");
  EXPECT_TRUE(plan->optimal);
  EXPECT_EQ(plan->lowerBoundMs, plan->timeMs);
  EXPECT_NEAR(plan->timeMs, optimum->tps, 1e-12 * optimum->tps);
  EXPECT_EQ(peakMemory(*plan), optimum->memoryBytes);
  if (!choicesMoveTheSame(problem)) return;
  EXPECT_NEAR(movedBytes(problem, *plan), optimum->movedBytes, 1e-12 * optimum->movedBytes);
  EXPECT_EQ(devices(*plan), optimum->devices);
}

} // namespace

TEST(PlannerPiper, RandomProblemsAgainstTryingEveryPlan) {
  RandomProblems random(7);
  for (int round = 0; round < rounds(4000); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    expectOptimal(random.problem(round % 10 == 0 ? 8 : 6), round % 7 == 0);
    if (HasFailure()) return;
  }
}
