// LINK: pdcSchedule
// Closed forms of docs/Semantics.md, reproduced by the simulator for p equal stages and m microbatches per batch.
#include "pdc/Schedule/Prediction.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace pdc;

namespace {

/// F = 1, B = 2, nothing else takes time.
Plan equalStages(int p, const std::string& schedule, std::int64_t microbatches) {
  Plan plan;
  plan.schedule = schedule;
  plan.microbatches = microbatches;
  plan.cluster.levels.push_back({"machine", p, 1e12, 0});
  for (int s = 0; s < p; ++s) {
    PlanStage stage;
    stage.forwardMs = stage.inputGradientMs = stage.weightGradientMs = 1;
    stage.warmup = p - 1 - s;
    plan.stages.push_back(stage);
    plan.ranks.push_back({.rank = s, .devices = {s}, .hosts = {{s, 0}}});
    if (s + 1 < p) plan.tensors.push_back({"t", s, s + 1, 0, true});
  }
  return plan;
}

template <class Visit>
void forEachSize(Visit visit) {
  for (int p : {2, 4, 8, 16})
    for (int m = p; m <= 8 * p; m += p) visit(p, m);
}

std::int64_t inFlight(const pdcrt::Schedule& schedule, int stage, std::int64_t minibatches) {
  return pdcrt::check(schedule, minibatches).hosts[stage].inFlight;
}

} // namespace

TEST(ClosedForm, FlushingBubbleIsPMinusOneOverM) {
  for (const char* name : {"1f1b-flush", "gpipe"})
    forEachSize([&](int p, int m) {
      Plan plan = equalStages(p, name, m);
      pdcrt::Schedule schedule = buildSchedule(shapeOf(plan));
      Prediction prediction = predict(plan, schedule, 3 * m);
      double ratio = static_cast<double>(p - 1) / m;
      EXPECT_NEAR(prediction.bubbleFraction, ratio / (1 + ratio), 1e-9) << name << " p " << p << " m " << m;
      EXPECT_NEAR(prediction.timePerMinibatchMs, 3 * (1 + ratio), 1e-9) << name << " p " << p << " m " << m;
      for (int s = 0; s < p; ++s)
        EXPECT_EQ(inFlight(schedule, s, 3 * m), std::string(name) == "gpipe" ? m : std::min(m, p - s));
    });
}

TEST(ClosedForm, FlushingKeepsOneVersionAndTwoBufferedWeightsTwo) {
  forEachSize([&](int p, int m) {
    for (const char* name : {"1f1b-flush", "gpipe", "2bw"}) {
      pdcrt::Schedule schedule = buildSchedule(shapeOf(equalStages(p, name, m)));
      pdcrt::CheckResult result = pdcrt::check(schedule, 4 * m);
      ASSERT_TRUE(result.passed) << result.problem;
      for (const pdcrt::HostUse& use : result.hosts)
        EXPECT_EQ(use.versions, std::string(name) == "2bw" ? 2 : 1) << name << " p " << p << " m " << m;
    }
  });
}

TEST(ClosedForm, WithoutAFlushThereIsNoBubble) {
  for (const char* name : {"1f1b", "2bw"})
    forEachSize([&](int p, int m) {
      Plan plan = equalStages(p, name, m);
      pdcrt::Schedule schedule = buildSchedule(shapeOf(plan));
      Prediction prediction = predict(plan, schedule, 8 * m);
      EXPECT_NEAR(prediction.timePerMinibatchMs, 3, 1e-9) << name << " p " << p << " m " << m;
      EXPECT_NEAR(prediction.bubbleFraction, 0, 1e-9) << name << " p " << p << " m " << m;
      for (int s = 0; s < p; ++s) EXPECT_EQ(inFlight(schedule, s, 8 * m), p - s);
    });
}

TEST(ClosedForm, TwoBufferedWeightsUseTheVersionBefore) {
  Plan plan = equalStages(4, "2bw", 5);
  pdcrt::Schedule schedule = buildSchedule(shapeOf(plan));
  for (std::int64_t k = 0; k < 40; ++k)
    EXPECT_EQ(schedule.versionUsed(2, k), std::max<std::int64_t>(0, k / 5 - 1)) << k;
  pdcrt::Schedule back;
  std::string error;
  ASSERT_TRUE(pdcrt::parseSchedule(toString(schedule), back, error)) << error;
  EXPECT_EQ(back, schedule);
}

// Every schedule with replicas that divide nothing.
TEST(ClosedForm, EveryScheduleRunsReplicated) {
  for (const char* name : scheduleNames())
    for (int m : {12, 13, 17}) {
      Plan plan = equalStages(3, name, m);
      plan.stages[0].replicas = 3;
      plan.stages[1].replicas = 2;
      plan.ranks.clear();
      for (int s = 0; s < 3; ++s)
        for (int q = 0; q < plan.stages[s].replicas; ++q) {
          int rank = static_cast<int>(plan.ranks.size());
          plan.ranks.push_back({.rank = rank, .devices = {rank}, .hosts = {{s, q}}});
        }
      pdcrt::Schedule schedule = buildSchedule(shapeOf(plan));
      std::string error;
      EXPECT_TRUE(pdcrt::isWellFormed(schedule, error)) << error;
      pdcrt::CheckResult result = pdcrt::checkEveryDrain(schedule);
      EXPECT_TRUE(result.passed) << name << " m " << m << ": " << result.problem;
      EXPECT_TRUE(result.proven) << name << " m " << m;
    }
}
