// LINK: pdcPredict
// Closed forms of docs/Semantics.md, reproduced by the simulator for p equal stages and m microbatches per batch.
#include "pdc/Predict/Prediction.h"
#include "pdcrt/Verify.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace pdc;

namespace {

/// ms of a forward, of input gradients, of weight gradients.
struct Parts {
  double F = 1, I = 1, W = 1;
};

/// Nothing but computation takes time. `p` ranks; the times are those of a stage.
Plan equalStages(int p, const std::string& schedule, std::int64_t microbatches, Parts ms = {}) {
  Plan plan;
  plan.schedule = schedule;
  plan.microbatches = microbatches;
  plan.cluster.levels.push_back({"machine", p, 1e12, 0});
  int n = p * ScheduleKind(schedule)->stagesPerRank;
  for (int s = 0; s < n; ++s) {
    PlanStage stage;
    stage.forwardMs = ms.F;
    stage.inputGradientMs = ms.I;
    stage.weightGradientMs = ms.W;
    stage.warmup = n - 1 - s;
    plan.stages.push_back(stage);
    int rank = schedule == "zb-v" ? std::min(s, n - 1 - s) : s % p;
    if (s < p) plan.ranks.push_back({.rank = s, .devices = {s}, .hosts = {}});
    plan.ranks[rank].hosts.push_back({s, 0});
    if (s + 1 < n) plan.tensors.push_back({"t", s, s + 1, 0, true});
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

/// Minibatches between their forward and their input gradient, at most, in a run of three batches.
std::int64_t mostAheadOfInputGradient(const pdcrt::Schedule& schedule, int stage) {
  std::int64_t ahead = 0, most = 0;
  for (const pdcrt::Action& action :
       pdcrt::expand(schedule, schedule.rankOf(stage, 0), 3 * schedule.minibatchesPerUpdate)) {
    if (action.stage != stage) continue;
    if (action.kind == pdcrt::ActionKind::forward) most = std::max(most, ++ahead);
    if (action.kind == pdcrt::ActionKind::backwardInput) --ahead;
  }
  return most;
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

// ZB-H1: (p - 1)(F + I - W) where W is the shortest, a third of 1F1B's when all are equal.
TEST(ClosedForm, ZeroBubbleH1HasAThirdOfTheBubble) {
  for (Parts ms : {Parts{1, 1, 1}, Parts{2, 3, 1}, Parts{3, 2, 2}, Parts{1, 4, 1}})
    forEachSize([&](int p, int m) {
      Plan plan = equalStages(p, "zb-h1", m, ms);
      Prediction prediction = predict(plan, buildSchedule(shapeOf(plan)), 3 * m);
      double whole = ms.F + ms.I + ms.W, ratio = (p - 1) * (ms.F + ms.I - ms.W) / (m * whole);
      EXPECT_NEAR(prediction.bubbleFraction, ratio / (1 + ratio), 1e-9) << "p " << p << " m " << m;
      EXPECT_NEAR(prediction.timePerMinibatchMs, whole * (1 + ratio), 1e-9) << "p " << p << " m " << m;
      EXPECT_NEAR(prediction.finishMs, 3 * (m * whole + (p - 1) * (ms.F + ms.I - ms.W)), 1e-9);
    });
}

// Every stage holds as many minibatches as the first does under 1F1B; between forward and input gradient no more than
// there.
TEST(ClosedForm, ZeroBubbleH1HoldsWhatTheFirstStageHolds) {
  forEachSize([&](int p, int m) {
    pdcrt::Schedule schedule = buildSchedule(shapeOf(equalStages(p, "zb-h1", m)));
    for (int s = 0; s < p; ++s) {
      EXPECT_EQ(inFlight(schedule, s, 3 * m), std::min(m, p)) << "stage " << s << " p " << p << " m " << m;
      EXPECT_EQ(mostAheadOfInputGradient(schedule, s), std::min(m, p - s)) << "stage " << s << " p " << p << " m " << m;
      EXPECT_EQ(schedule.stages[s].handovers, s + 1);
    }
  });
}

// Times are of a stage: a rank's ideal time is V of them per minibatch.
TEST(ClosedForm, InterleavedBubbleIsPMinusOneOverVM) {
  for (int V : {2, 3, 4})
    forEachSize([&](int p, int m) {
      if (V == 4 && p == 16) return;
      Plan plan = equalStages(p, "interleaved:" + std::to_string(V), m);
      Prediction prediction = predict(plan, buildSchedule(shapeOf(plan)), 3 * m);
      double ratio = (p - 1.0) / (V * m);
      EXPECT_NEAR(prediction.bubbleFraction, ratio / (1 + ratio), 1e-9) << "p " << p << " m " << m << " V " << V;
      EXPECT_NEAR(prediction.timePerMinibatchMs, 3 * V * (1 + ratio), 1e-9) << "p " << p << " m " << m << " V " << V;
    });
}

TEST(ClosedForm, BreadthFirstHasTheBubbleOfInterleavedAndHoldsAllOfABatch) {
  for (int V : {2, 3, 4})
    forEachSize([&](int p, int m) {
      if (V == 4 && p == 16) return;
      Plan plan = equalStages(p, "bfs:" + std::to_string(V), m);
      pdcrt::Schedule schedule = buildSchedule(shapeOf(plan));
      Prediction prediction = predict(plan, schedule, 3 * m);
      double ratio = (p - 1.0) / (V * m);
      EXPECT_NEAR(prediction.bubbleFraction, ratio / (1 + ratio), 1e-9) << "p " << p << " m " << m << " V " << V;
      EXPECT_NEAR(prediction.timePerMinibatchMs, 3 * V * (1 + ratio), 1e-9) << "p " << p << " m " << m << " V " << V;
      EXPECT_EQ(inFlight(schedule, 0, 3 * m), m);
    });
}

TEST(ClosedForm, ZeroBubbleVLeavesNoRankIdle) {
  for (int p : {2, 4, 8, 16})
    for (int m : {2 * p - 1, 2 * p, 2 * p + 1, 3 * p, 5 * p + 3, 8 * p}) {
      Plan plan = equalStages(p, "zb-v", m);
      Prediction prediction = predict(plan, buildSchedule(shapeOf(plan)), 3 * m);
      EXPECT_NEAR(prediction.rankIdleFraction, 0, 1e-12) << "p " << p << " m " << m;
      // The last rank begins p - 1 forwards after the first.
      EXPECT_NEAR(prediction.bubbleFraction, (p - 1.0) / (6 * m + p - 1), 1e-9) << "p " << p << " m " << m;
    }
}

// As many stashes as 1F1B's first stage, which holds p of stages that are twice as large.
TEST(ClosedForm, ZeroBubbleVHoldsWhatOneFOneBHolds) {
  forEachSize([&](int p, int m) {
    pdcrt::Schedule schedule = buildSchedule(shapeOf(equalStages(p, "zb-v", m)));
    for (int s = 0; s < 2 * p; ++s)
      EXPECT_EQ(inFlight(schedule, s, 3 * m), std::min(m, 2 * p - s)) << "stage " << s << " p " << p << " m " << m;
    for (int r = 0; r < p; ++r) {
      int stashes = 0, most = 0;
      for (const pdcrt::Action& action : pdcrt::expand(schedule, r, 3 * m)) {
        if (action.kind == pdcrt::ActionKind::forward) most = std::max(most, ++stashes);
        if (action.kind == pdcrt::ActionKind::backwardWeight) --stashes;
      }
      EXPECT_LE(most, 2 * p) << "rank " << r << " p " << p << " m " << m;
    }
  });
}

TEST(ClosedForm, FlushingKeepsOneVersionAndTwoBufferedWeightsTwo) {
  forEachSize([&](int p, int m) {
    for (const char* name : {"1f1b-flush", "gpipe", "zb-h1", "zb-v", "interleaved:2", "2bw"}) {
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

// Every schedule whose stages may be replicated each for itself, with replicas that divide nothing.
TEST(ClosedForm, EveryScheduleRunsReplicated) {
  for (const char* name : {"1f1b", "1f1b-flush", "gpipe", "2bw", "zb-h1"})
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
