// LINK: pdcrt pdcSchedule
// Backwards in two halves, and ranks that host several stages, against the replay (Replay.h): whatever the order in
// which a schedule lets things happen, the bits are the same.
#include "LinearStages.h"
#include "MergedSchedule.h"
#include "Replay.h"
#include "Rounds.h"
#include "ThreadRun.h"

#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/Machine.h"

#include <gtest/gtest.h>

using namespace pdcrt;

namespace {

linear::NoiseData data;

struct Case {
  pdc::PipelineShape shape;
  Merge merge;
};

Training training() {
  Training result;
  result.optimizer = OptimizerKind::momentum;
  result.learningRate = 0.3;
  result.momentum = 0.9;
  result.weightDecay = 0.01;
  return result;
}

/// A random pipeline of one to four stages: its schedule, its ranks, and what is between the halves of its backwards.
Case randomCase(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  auto below = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
  Case c;
  std::vector<pdc::StageShape> stages(1 + static_cast<std::size_t>(below(4)));
  const bool flush = below(3) > 0;
  for (std::size_t s = stages.size(); s-- > 0;) {
    stages[s].replicas = 1 + below(4) / 3;
    stages[s].syncDelay = !flush && stages[s].replicas > 1 && stages.size() > 1;
    if (s + 1 == stages.size()) continue;
    const pdc::StageShape& next = stages[s + 1];
    stages[s].warmup = ((next.warmup + 2) * next.replicas + 2 * stages[s].replicas - 1) / stages[s].replicas;
  }
  c.shape = pdc::straightShape(stages);
  if (flush) {
    c.shape.kind = below(2) ? "gpipe" : "1f1b-flush";
    c.shape.microbatches = 1 + below(6);
  }
  // A rank hosts any stages, but no two replicas of one.
  for (std::size_t s = 0; s < stages.size(); ++s)
    for (int replica = 0; replica < stages[s].replicas; ++replica) {
      std::vector<std::vector<Host>*> free;
      for (std::vector<Host>& rank : c.merge.ranks)
        if (rank.back().stage != static_cast<int>(s)) free.push_back(&rank);
      const std::size_t chosen = random() % (free.size() + 1);
      if (chosen < free.size())
        free[chosen]->push_back({static_cast<int>(s), replica});
      else
        c.merge.ranks.push_back({{static_cast<int>(s), replica}});
    }
  c.merge.minibatches = 1 + below(30);
  c.merge.handovers = below(4);
  c.merge.seed = seed;
  return c;
}

ThreadRun runOf(const Schedule& schedule) {
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = linear::linearStages(static_cast<int>(schedule.stages.size()), !schedule.shared.empty());
  run.training = training();
  run.data = &data;
  run.readWeights = linear::readInitial;
  return run;
}

Replay replayOf(const Case& c) {
  ReplaySetup setup = {.stages = linear::linearStages(static_cast<int>(c.shape.stages.size()), !c.shape.shared.empty()),
                       .replicas = {},
                       .warmup = {},
                       .syncDelay = {},
                       .microbatches = c.shape.microbatches,
                       .training = training(),
                       .data = &data,
                       .readWeights = linear::readInitial};
  for (const pdc::StageShape& stage : c.shape.stages) {
    setup.replicas.push_back(stage.replicas);
    setup.warmup.push_back(stage.warmup);
    setup.syncDelay.push_back(stage.syncDelay);
  }
  return Replay(setup);
}

/// Whether the parameters and states of every replica agree bit for bit.
bool agree(const ThreadRun& run, const Replay& replay, const Case& c) {
  auto same = [](const auto& rows, const std::byte* a, const std::byte* b) {
    for (const auto& row : rows)
      if (std::memcmp(a + row.offset, b + row.offset, static_cast<std::size_t>(row.shape.elements()) * sizeof(float)))
        return false;
    return true;
  };
  for (std::size_t s = 0; s < c.shape.stages.size(); ++s)
    for (int r = 0; r < c.shape.stages[s].replicas; ++r) {
      const int stage = static_cast<int>(s);
      if (!same(run.stages[s]->parameters, run.weights(stage, r), replay.weights(s).data()) ||
          !same(run.stages[s]->states, run.hosted(stage, r).state, replay.state(s, r).data()))
        return false;
    }
  return true;
}

TEST(SplitBackward, TrainsTheBitsOfTheReplayInAnyOrderOnAnyRanks) {
  int split = 0, several = 0;
  for (int seed = 0; seed < pdc::rounds(150); ++seed) {
    SCOPED_TRACE(seed);
    const Case c = randomCase(static_cast<std::uint64_t>(seed));
    const Schedule schedule = MergedSchedule::of(pdc::buildSchedule(c.shape), c.merge);
    std::string error;
    ASSERT_TRUE(isWellFormed(schedule, error)) << error;
    const CheckResult checked = check(schedule, c.merge.minibatches);
    ASSERT_TRUE(checked.passed) << checked.problem;
    ThreadRun run = runOf(schedule);
    ASSERT_TRUE(run.run([&](Executor& executor, int) { return executor.train(0, c.merge.minibatches); }));
    Replay replay = replayOf(c);
    replay.run(c.merge.minibatches);
    ASSERT_TRUE(agree(run, replay, c)) << toString(schedule);
    split += c.merge.handovers > 1;
    several += std::any_of(c.merge.ranks.begin(), c.merge.ranks.end(), [](const auto& r) { return r.size() > 1; });
  }
  EXPECT_GT(split, 50);
  EXPECT_GT(several, 50);
}

TEST(SplitBackward, TrainsTheBitsOfTheReplayUnderEveryFlushingSchedule) {
  const std::pair<const char*, std::size_t> kinds[] = {{"gpipe", 1},         {"1f1b-flush", 1},    {"zb-h1", 1},
                                                       {"interleaved:2", 2}, {"interleaved:4", 4}, {"zb-v", 2},
                                                       {"bfs:2", 2},         {"bfs:4", 4}};
  for (const auto& [kind, stagesPerRank] : kinds)
    for (std::size_t stages = stagesPerRank; stages <= 4; stages += stagesPerRank)
      for (int replicas : {1, 2})
        for (auto [microbatches, tied] : {std::pair(std::int64_t{4}, false), {8, false}, {8, true}}) {
          SCOPED_TRACE(std::string(kind) + (", stages " + std::to_string(stages)) + ", replicas " +
                       std::to_string(replicas) + (tied ? ", tied" : ""));
          Case c;
          std::vector<pdc::StageShape> shapes;
          for (std::size_t s = 0; s < stages; ++s)
            shapes.push_back({.replicas = replicas, .warmup = static_cast<int>(stages - 1 - s)});
          c.shape = pdc::straightShape(shapes);
          c.shape.kind = kind;
          c.shape.microbatches = microbatches;
          for (std::size_t s = 1; tied && s < stages; ++s) c.shape.shared.push_back({0, static_cast<int>(s)});
          const Schedule schedule = pdc::buildSchedule(c.shape);
          EXPECT_EQ(schedule.ranks.size(), stages / stagesPerRank * static_cast<std::size_t>(replicas));
          ThreadRun run = runOf(schedule);
          const std::int64_t minibatches = 5 * microbatches - 2; // the last update averages fewer
          ASSERT_TRUE(run.run([&](Executor& executor, int) { return executor.train(0, minibatches); }));
          Replay replay = replayOf(c);
          replay.run(minibatches);
          EXPECT_TRUE(agree(run, replay, c));
        }
}

/// Two stages on one rank, a backward's halves up to three minibatches apart.
Case oneRank(std::int64_t minibatches) {
  return {.shape = {.microbatches = 6, .stages = {{.warmup = 2}, {.warmup = 0}}, .edges = {{.from = 0, .to = 1}}},
          .merge = {.ranks = {{{0, 0}, {1, 0}}}, .minibatches = minibatches, .handovers = 3, .seed = 1}};
}

TEST(SplitBackward, IsRefusedWhereAHandoverWouldBeOverwritten) {
  const Case c = oneRank(12);
  Schedule schedule = MergedSchedule::of(pdc::buildSchedule(c.shape), c.merge);
  ASSERT_TRUE(check(schedule, 12).passed);
  schedule.stages[0].handovers = 1;
  const CheckResult result = check(schedule, 12);
  EXPECT_FALSE(result.passed);
  EXPECT_NE(result.problem.find("waits for its weight gradients, the stage has 1 handovers"), std::string::npos)
      << result.problem;
}

TEST(SplitBackward, SendsNoBytesBetweenStagesOfOneRank) {
  const Case c = oneRank(12);
  const Schedule schedule = MergedSchedule::of(pdc::buildSchedule(c.shape), c.merge);
  ThreadRun run = runOf(schedule);
  ASSERT_TRUE(run.run([&](Executor& executor, int) { return executor.train(0, 12); }));
  EXPECT_EQ(run.bytesSent(Traffic::forward) + run.bytesSent(Traffic::backward), 0u);
}

TEST(SplitBackward, EvaluatesWithSeveralStagesOnARank) {
  for (const std::vector<std::vector<Host>>& ranks :
       std::vector<std::vector<std::vector<Host>>>{{{{0, 0}, {2, 0}}, {{1, 0}, {3, 0}}},
                                                   {{{0, 0}, {3, 0}}, {{1, 0}, {2, 0}}},
                                                   {{{3, 0}, {0, 0}, {1, 0}, {2, 0}}}}) {
    Case c = {.shape = pdc::straightShape({{.warmup = 6}, {.warmup = 4}, {.warmup = 2}, {}}),
              .merge = {.ranks = ranks, .minibatches = 8, .handovers = 0, .seed = 7}};
    const Schedule schedule = MergedSchedule::of(pdc::buildSchedule(c.shape), c.merge);
    const CheckResult checked = check(schedule, 9, {.evaluation = true});
    ASSERT_TRUE(checked.passed) << checked.problem;
    ThreadRun run = runOf(schedule);
    std::vector<std::int64_t> evaluated;
    ASSERT_TRUE(run.run([&](Executor& executor, int) -> Status {
      if (Status status = executor.train(0, 8); !status) return status;
      return executor.evaluate(9, data, [&](const HostedStage& hosted, std::int64_t minibatch, const std::byte*) {
        if (hosted.host.stage == 3) evaluated.push_back(minibatch);
        return Status();
      });
    }));
    EXPECT_EQ(evaluated, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  }
}

} // namespace
