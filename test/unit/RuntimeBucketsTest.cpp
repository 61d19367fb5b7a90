// LINK: pdcrt pdcSchedule
// The all-reduce of a bucket begins in the backward that makes its gradients final. What it adds is what an all-reduce
// after the backward adds: the bits are compared in RuntimeExecutorTest and others, whose stages have buckets too.
#include "LinearStages.h"
#include "ThreadRun.h"

#include "pdc/Schedule/PipelineShape.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace pdcrt;

namespace {

linear::NoiseData data;

/// When backwards ended, and when the first bucket of each update was posted, by the clock of one thread.
class Recorder : public RunObserver {
public:
  std::vector<double> ended;  ///< by local minibatch
  std::vector<double> posted; ///< by update
  void acted(const Action& action, double, double end) override {
    if (action.kind == ActionKind::backward || action.kind == ActionKind::backwardWeight) ended.push_back(end);
  }
  void transferred(const Action& action, double began, double) override {
    if (action.kind == ActionKind::allReduce) posted.push_back(began);
  }
};

struct Case {
  int replicas = 2;
  std::int64_t microbatches = 0, minibatches = 0;
};

/// The recorders of stage 0's replicas, in a run of two stages.
std::vector<Recorder> record(const Case& c) {
  pdc::PipelineShape shape = pdc::straightShape({{.replicas = c.replicas, .warmup = 1}, {.replicas = 1}});
  if (c.microbatches > 0) shape.kind = "1f1b-flush";
  shape.microbatches = c.microbatches;
  const Schedule schedule = pdc::buildSchedule(shape);
  std::vector<Recorder> recorders(schedule.ranks.size());
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = linear::linearStages(2);
  run.training.learningRate = 0.1;
  run.data = &data;
  run.readWeights = linear::readInitial;
  run.observer = [&](int rank) { return &recorders[static_cast<std::size_t>(rank)]; };
  EXPECT_TRUE(run.run([&](Executor& executor, int) { return executor.train(0, c.minibatches); }));
  recorders.resize(static_cast<std::size_t>(c.replicas));
  return recorders;
}

TEST(Buckets, AreReducedFromTheBackwardOn) {
  for (const Recorder& replica : record({.minibatches = 8})) {
    ASSERT_EQ(replica.posted.size(), 4u);
    for (std::size_t update = 0; update < 4; ++update) EXPECT_LT(replica.posted[update], replica.ended[update]);
  }
}

TEST(Buckets, WaitForTheLastMinibatchOfAReplica) {
  // Batches of 5: three of each are replica 0's, then two, and the last batch, of 3 minibatches, has two of them.
  const std::vector<Recorder> replicas = record({.microbatches = 5, .minibatches = 13});
  const std::size_t last[2][3] = {{2, 4, 6}, {1, 4, 5}};
  for (std::size_t r = 0; r < 2; ++r) {
    ASSERT_EQ(replicas[r].posted.size(), 3u);
    for (std::size_t update = 0; update < 3; ++update) {
      const std::size_t backward = last[r][update];
      EXPECT_LT(replicas[r].posted[update], replicas[r].ended[backward]);
      EXPECT_GT(replicas[r].posted[update], replicas[r].ended[backward - 1]);
    }
  }
}

TEST(Buckets, OfAReplicaWithoutAMinibatchAreReducedByTheSchedule) {
  const std::vector<Recorder> replicas = record({.replicas = 3, .minibatches = 4});
  for (std::size_t r = 0; r < 3; ++r) {
    ASSERT_EQ(replicas[r].posted.size(), 2u);
    ASSERT_EQ(replicas[r].ended.size(), r == 0 ? 2u : 1u);
  }
  EXPECT_LT(replicas[0].posted[1], replicas[0].ended[1]); // minibatch 3
  EXPECT_GT(replicas[1].posted[1], replicas[1].ended[0]);
}

TEST(Buckets, OfSharedParametersWaitForOtherStages) {
  pdc::PipelineShape shape = pdc::straightShape({{.replicas = 2, .warmup = 1}, {.replicas = 1}});
  shape.shared.push_back({0, 1});
  const Schedule schedule = pdc::buildSchedule(shape);
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = linear::linearStages(2, /*tied=*/true);
  run.data = &data;
  run.readWeights = linear::readInitial;
  ASSERT_TRUE(run.run([&](Executor& executor, int) { return executor.train(0, 6); }));
  const auto& buckets = run.hosted(0, 0).gradients.buckets();
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_TRUE(buckets[0].early);
  EXPECT_FALSE(buckets[1].early);
}

TEST(Buckets, AreReducedSoManyFloatsAtATime) {
  const Schedule schedule = pdc::buildSchedule(pdc::straightShape({{.replicas = 2, .warmup = 1}, {.replicas = 1}}));
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = linear::linearStages(2);
  run.data = &data;
  run.readWeights = linear::readInitial;
  run.floatsOfReduction = 4;
  constexpr std::size_t updates = 3, floats = linear::width * linear::width + linear::width;
  ASSERT_TRUE(run.run([&](Executor& executor, int) { return executor.train(0, 2 * updates); }));
  const HostedStage& hosted = run.hosted(0, 0);
  EXPECT_EQ(hosted.gradients.buckets()[0].reductions, 7u) << "25 floats";
  EXPECT_EQ(hosted.gradients.buckets()[1].reductions, 2u) << "5 floats";
  EXPECT_EQ(hosted.gradients.sets()[0].allReduces.size(), 9u);
  std::uint64_t sent = 0;
  for (const auto& transport : run.transports)
    sent += transport->bytesSent[static_cast<std::size_t>(Traffic::allReduce)];
  EXPECT_EQ(sent, updates * 2 * floats * sizeof(float)) << "each float to its owner, and its sum back";
}

TEST(Buckets, AreNotAwaitedBeforeTheScheduleHasBegunTheirAllReduce) {
  Schedule schedule = pdc::buildSchedule(pdc::straightShape({{.replicas = 2, .warmup = 1}, {.replicas = 1}}));
  for (RankList& list : schedule.ranks)
    for (std::vector<Action>* actions : {&list.start, &list.repeat})
      std::erase_if(*actions, [](const Action& a) { return a.kind == ActionKind::allReduce && !a.wait; });
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = linear::linearStages(2);
  run.data = &data;
  run.readWeights = linear::readInitial;
  EXPECT_FALSE(run.run([](Executor& executor, int) { return executor.train(0, 6); }));
  // Of the replica that comes to it first: the other one is stopped, or says the same.
  EXPECT_TRUE(std::ranges::any_of(run.statuses,
                                  [](const Status& status) {
                                    return status.message() ==
                                           "action ?0AR1 comes before the all-reduce that it awaits";
                                  }))
      << run.statuses[0].message() << "; " << run.statuses[1].message();
}

} // namespace
