// LINK: pdcrt pdcPredict
// Plans on which PipeDream's own warm-up deadlocks, or halves the rate, because input gradients leave after a blocking
// all-reduce: here they run to the end and train the weights of the replay. Kernels sleep, so up to 16 ranks need no
// more cores than there are. How fast they run is measured by utils/bench-schedules.
#include "PipeDreamOrder.h"
#include "Replay.h"
#include "TimedPipeline.h"
#include "pdcrt/Verify.h"

#include <cstring>
#include <gtest/gtest.h>

using namespace pdcrt;

namespace {

struct Case {
  std::vector<int> replicas;
  bool pipedreamDeadlocks = true;
};

timed::NoiseData data;

TimedPipeline pipelineOf(const Case& c) {
  TimedPipeline pipeline = {.name = "", .replicas = c.replicas, .computeMs = {}, .transferMs = 0.3, .allReduceMs = 0.5};
  for (int r : c.replicas) pipeline.computeMs.push_back(r);
  return pipeline;
}

class PipeDreamPlans : public testing::TestWithParam<Case> {};

TEST_P(PipeDreamPlans, DeadlockInPipeDreamsOrder) {
  TimedPipeline pipeline = pipelineOf(GetParam());
  pipeline.warmup = "paper";
  pipeline.sync = pdc::SyncPolicy::barrier;
  Schedule schedule = pdc::buildSchedule(pdc::shapeOf(pipeline.plan()));
  EXPECT_TRUE(checkEveryDrain(schedule).passed);
  pdc::sendGradientAfterUpdate(schedule);
  EXPECT_EQ(checkEveryDrain(schedule).deadlock, GetParam().pipedreamDeadlocks);
}

TEST_P(PipeDreamPlans, RunToTheEndWithTheWeightsOfTheReplay) {
  const TimedPipeline pipeline = pipelineOf(GetParam());
  const pdc::Plan plan = pipeline.plan();
  pdc::Diagnostics diags(nullptr);
  const pdc::Expected<Schedule> schedule = pdc::scheduleFor(plan, diags);
  ASSERT_TRUE(schedule);
  const timed::Stages stages(pipeline.model(plan));
  ThreadRun run;
  run.stages = stages.all();
  run.data = &data;
  run.readWeights = timed::readInitial;
  TimedResult result;
  const std::int64_t minibatches = 133;
  ASSERT_TRUE(runInThreads(pipeline, *schedule, minibatches, run, result));

  ReplaySetup setup = {.stages = run.stages, .replicas = {}, .warmup = {}, .syncDelay = {}};
  for (const pdc::PlanStage& stage : plan.stages) {
    setup.replicas.push_back(stage.replicas);
    setup.warmup.push_back(stage.warmup);
    setup.syncDelay.push_back(stage.syncDelay);
  }
  setup.data = &data;
  setup.readWeights = timed::readInitial;
  Replay replay(std::move(setup));
  replay.run(minibatches);
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (int r = 0; r < plan.stages[s].replicas; ++r)
      EXPECT_EQ(std::memcmp(run.weights(static_cast<int>(s), r), replay.weights(s).data(), replay.weights(s).size()), 0)
          << "stage " << s << ", replica " << r;
}

INSTANTIATE_TEST_SUITE_P(Plans, PipeDreamPlans,
                         testing::Values(Case{{8, 5, 3}}, Case{{7, 1, 7, 1}}, Case{{8, 5, 2, 1}},
                                         Case{{1, 1, 1, 1, 1, 10, 1}}, Case{{1, 3, 1}}, Case{{2, 6}, false}),
                         [](const testing::TestParamInfo<Case>& test) {
                           std::string name;
                           for (int r : test.param.replicas) name += (name.empty() ? "" : "_") + std::to_string(r);
                           return name;
                         });

} // namespace
