// LINK: pdcrt pdcSchedule
// The executor against the replay (Replay.h): the same bits for every plan, schedule, and number of minibatches.
#include "LinearStages.h"
#include "Replay.h"
#include "ThreadRun.h"

#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/FilterBlocks.h"
#include "pdcrt/Machine.h"

#include <gtest/gtest.h>

using namespace pdcrt;

namespace {

struct Case {
  std::vector<int> replicas, warmup;
  bool overlap = true;
  std::int64_t microbatches = 0;
  WeightPolicy weights = WeightPolicy::stash; ///< twoVersions: the schedule 2bw
  bool tied = false;                          ///< all stages use a parameter of stage 0
};

std::vector<int> syncDelay(const Case& c) {
  std::vector<int> delays;
  for (int r : c.replicas) delays.push_back(c.overlap && c.microbatches == 0 && r > 1 && c.replicas.size() > 1 ? 1 : 0);
  return delays;
}

Schedule scheduleOf(const Case& c) {
  std::vector<pdc::StageShape> stages;
  std::vector<int> delays = syncDelay(c);
  for (std::size_t s = 0; s < c.replicas.size(); ++s)
    stages.push_back({.replicas = c.replicas[s], .warmup = c.warmup[s], .syncDelay = delays[s]});
  pdc::PipelineShape shape = pdc::straightShape(stages);
  shape.weights = c.weights;
  shape.microbatches = c.microbatches;
  if (c.weights == WeightPolicy::twoVersions) shape.kind = "2bw";
  for (std::size_t s = 1; c.tied && s < c.replicas.size(); ++s) shape.shared.push_back({0, static_cast<int>(s)});
  return pdc::buildSchedule(shape);
}

Training momentumTraining() {
  Training training;
  training.optimizer = OptimizerKind::momentum;
  training.learningRate = 0.3;
  training.momentum = 0.9;
  training.weightDecay = 0.01;
  return training;
}

linear::NoiseData data;

ThreadRun runOf(const Schedule& schedule, const Case& c) {
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = linear::linearStages(static_cast<int>(c.replicas.size()), c.tied);
  run.training = momentumTraining();
  run.data = &data;
  run.readWeights = linear::readInitial;
  return run;
}

Replay replayOf(const Case& c, ReplayMistake mistake = {}) {
  return Replay({.stages = linear::linearStages(static_cast<int>(c.replicas.size()), c.tied),
                 .replicas = c.replicas,
                 .warmup = c.warmup,
                 .syncDelay = syncDelay(c),
                 .weights = c.weights,
                 .microbatches = c.microbatches,
                 .training = momentumTraining(),
                 .data = &data,
                 .readWeights = linear::readInitial},
                mistake);
}

/// Whether all parameters, of every replica, and all states agree bit for bit.
bool agree(const ThreadRun& run, const Replay& replay, const Case& c) {
  for (std::size_t s = 0; s < c.replicas.size(); ++s)
    for (int r = 0; r < c.replicas[s]; ++r) {
      const Stage& stage = *run.stages[s];
      const std::byte* weights = run.weights(static_cast<int>(s), r);
      for (const ParameterRow& row : stage.parameters)
        if (std::memcmp(weights + row.offset, replay.weights(s).data() + row.offset,
                        static_cast<std::size_t>(row.shape.elements()) * sizeof(float)) != 0)
          return false;
      const std::byte* state = run.hosted(static_cast<int>(s), r).state;
      for (const StateRow& row : stage.states)
        if (std::memcmp(state + row.offset, replay.state(s, r).data() + row.offset,
                        static_cast<std::size_t>(row.shape.elements()) * sizeof(float)) != 0)
          return false;
    }
  return true;
}

/// Warm-up of the straight chain of formulas, from the last stage backwards: enough to run at full speed.
std::vector<int> warmupOf(const std::vector<int>& replicas) {
  std::vector<int> warmup(replicas.size(), 0);
  for (std::size_t s = replicas.size() - 1; s-- > 0;)
    warmup[s] = ((warmup[s + 1] + 2) * replicas[s + 1] + 2 * replicas[s] - 1) / replicas[s];
  return warmup;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::vector<int>& replicas :
       std::vector<std::vector<int>>{{1}, {3}, {1, 1}, {1, 1, 1, 1}, {2, 1}, {1, 2}, {2, 2, 1}, {3, 2}})
    for (bool overlap : {true, false})
      all.push_back({.replicas = replicas, .warmup = warmupOf(replicas), .overlap = overlap});
  return all;
}

std::string nameOf(const testing::TestParamInfo<Case>& info) {
  std::string name;
  for (int r : info.param.replicas) name += (name.empty() ? "" : "_") + std::to_string(r);
  return name + (info.param.overlap ? "_overlap" : "_barrier");
}

class ExecutorPlans : public testing::TestWithParam<Case> {};

TEST_P(ExecutorPlans, TrainTheBitsOfTheReplay) {
  const Case& c = GetParam();
  const Schedule schedule = scheduleOf(c);
  for (std::int64_t minibatches : {1, 2, 47, 50, 53}) {
    Replay replay = replayOf(c);
    replay.run(minibatches);
    for (std::size_t floats : {std::size_t{1} << 20, std::size_t{4}}) {
      ThreadRun run = runOf(schedule, c);
      run.floatsOfReduction = floats;
      ASSERT_TRUE(run.run([&](Executor& executor, int) { return executor.train(0, minibatches); }));
      EXPECT_TRUE(agree(run, replay, c)) << minibatches << " minibatches, " << floats << " floats at a time";
      EXPECT_EQ(run.hosted(0, 0).versions.newest(), static_cast<std::int64_t>(replay.updates(0)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, ExecutorPlans, testing::ValuesIn(cases()), nameOf);

/// R_0·(w_0 + d_0) >= R_s·(w_s + d_s), which vertical sync needs, for every stage.
void raiseForVerticalSync(Case& c) {
  const std::vector<int> delay = syncDelay(c);
  for (std::size_t s = 1; s < c.replicas.size(); ++s)
    while (c.replicas[0] * (c.warmup[0] + delay[0]) < c.replicas[s] * (c.warmup[s] + delay[s])) ++c.warmup[0];
}

/// Runs of several lengths train the bits of the replay, and not those of a replay with the version before.
void expectBitsOfTheReplay(const Case& c, std::initializer_list<std::int64_t> lengths) {
  const Schedule schedule = scheduleOf(c);
  for (std::int64_t minibatches : lengths) {
    ASSERT_TRUE(check(schedule, minibatches).passed) << check(schedule, minibatches).problem;
    ThreadRun run = runOf(schedule, c);
    ASSERT_TRUE(run.run([&](Executor& executor, int) { return executor.train(0, minibatches); }))
        << run.statuses[0].message() << run.statuses.back().message();
    Replay replay = replayOf(c);
    replay.run(minibatches);
    EXPECT_TRUE(agree(run, replay, c)) << minibatches << " minibatches";
    EXPECT_EQ(run.hosted(0, 0).versions.newest(), static_cast<std::int64_t>(replay.updates(0)));
    if (minibatches < 40) continue;
    Replay wrong = replayOf(c, {.versionOff = 1});
    wrong.run(minibatches);
    EXPECT_FALSE(agree(run, wrong, c)) << minibatches << " minibatches";
  }
}

const std::vector<std::vector<int>> stalePlans = {{1, 1}, {1, 1, 1, 1}, {2, 1}, {1, 2}, {2, 2, 1}, {3, 2}};

TEST(Executor, TrainsTheBitsOfTheReplayUnderVerticalSync) {
  for (const std::vector<int>& replicas : stalePlans)
    for (bool overlap : {true, false}) {
      Case c{.replicas = replicas, .warmup = warmupOf(replicas), .overlap = overlap};
      c.weights = WeightPolicy::verticalSync;
      raiseForVerticalSync(c);
      SCOPED_TRACE(testing::PrintToString(replicas) + (overlap ? " overlap" : " barrier"));
      expectBitsOfTheReplay(c, {1, 47, 50, 53});
    }
}

TEST(Executor, TrainsTheBitsOfTheReplayWithTwoVersions) {
  for (const std::vector<int>& replicas : stalePlans)
    for (int more : {0, 1, 5}) { // than the microbatches in flight, which is the least
      Case c{.replicas = replicas, .warmup = warmupOf(replicas), .weights = WeightPolicy::twoVersions};
      for (std::size_t s = 0; s < replicas.size(); ++s)
        c.microbatches = std::max<std::int64_t>(c.microbatches, (c.warmup[s] + 1) * replicas[s]);
      c.microbatches += more;
      SCOPED_TRACE(testing::PrintToString(replicas) + ", m = " + std::to_string(c.microbatches));
      expectBitsOfTheReplay(c, {1, 4 * c.microbatches, 5 * c.microbatches + 1, 6 * c.microbatches - 1});
    }
}

const std::vector<std::vector<int>> tiedPlans = {{1}, {1, 1}, {1, 1, 1, 1}, {2, 1}, {1, 2}, {2, 2, 1}, {3, 2}, {2, 3}};

TEST(Executor, SharesParametersAsTheReplayDoes) {
  for (const std::vector<int>& replicas : tiedPlans)
    for (bool overlap : {true, false}) {
      SCOPED_TRACE(testing::PrintToString(replicas) + (overlap ? " overlap" : " barrier"));
      expectBitsOfTheReplay({.replicas = replicas, .warmup = warmupOf(replicas), .overlap = overlap, .tied = true},
                            {1, 2, 47, 50, 53});
    }
}

TEST(Executor, SharesParametersAsTheReplayDoesWithBatches) {
  for (const std::vector<int>& replicas : tiedPlans)
    for (WeightPolicy weights : {WeightPolicy::stash, WeightPolicy::twoVersions}) {
      Case c{.replicas = replicas, .warmup = warmupOf(replicas), .weights = weights, .tied = true};
      const bool flushes = weights == WeightPolicy::stash;
      for (std::size_t s = 0; s < replicas.size(); ++s)
        c.microbatches = std::max<std::int64_t>(c.microbatches, (c.warmup[s] + 1) * replicas[s]);
      SCOPED_TRACE(testing::PrintToString(replicas) + (flushes ? " flush" : " 2bw"));
      expectBitsOfTheReplay(c, {1, c.microbatches, 4 * c.microbatches, 5 * c.microbatches + 1});
    }
}

TEST(Executor, SharingDiffersFromAReplayWithAnyMistake) {
  const Case c{.replicas = {1, 1, 1}, .warmup = {4, 2, 0}, .tied = true};
  const Schedule schedule = scheduleOf(c);
  ThreadRun run = runOf(schedule, c);
  ASSERT_TRUE(run.run([](Executor& executor, int) { return executor.train(0, 50); }));
  for (const ReplayMistake& mistake : {ReplayMistake{.usersVersion = true}, ReplayMistake{.reverseUses = true}}) {
    Replay replay = replayOf(c, mistake);
    replay.run(50);
    EXPECT_FALSE(agree(run, replay, c));
  }
}

TEST(Executor, SendsSharedParametersOncePerUpdate) {
  for (const std::vector<int>& replicas : tiedPlans) {
    const Case c{.replicas = replicas, .warmup = warmupOf(replicas), .tied = true};
    const Schedule schedule = scheduleOf(c);
    ThreadRun run = runOf(schedule, c);
    const std::int64_t minibatches = 48; // whole updates of every stage
    ASSERT_TRUE(run.run([&](Executor& executor, int) { return executor.train(0, minibatches); }));
    std::uint64_t expected = 0;
    for (const SharedEdge& edge : schedule.shared)
      for (int q = 0; q < replicas[static_cast<std::size_t>(edge.user)]; ++q)
        for (std::int64_t version = 1; version <= schedule.updates(edge.owner, minibatches); ++version) {
          // The values, and the gradients of two uses.
          if (schedule.takesVersion(edge, q, version)) expected += linear::width * sizeof(float);
          if (schedule.hasPart(edge, q, version)) expected += 2 * linear::width * sizeof(float);
        }
    EXPECT_EQ(run.bytesSent(Traffic::shared), expected) << testing::PrintToString(replicas);
    EXPECT_EQ(run.bytesSent(Traffic::control), 0u);
  }
}

TEST(Executor, SharesTheNewestParametersAfterADrain) {
  const Case c{.replicas = {2, 3}, .warmup = warmupOf({2, 3}), .tied = true};
  const Schedule schedule = scheduleOf(c);
  ThreadRun run = runOf(schedule, c);
  constexpr std::int64_t evaluated = 6;
  using Gain = std::array<std::byte, linear::width * sizeof(float)>;
  std::array<Gain, evaluated> owners = {}; // by minibatch: written by the owner before it sends the minibatch on
  ASSERT_TRUE(run.run([&](Executor& executor, int) -> Status {
    if (Status status = executor.train(0, 11); !status) return status;
    Executor::Predicted predicted = [&](const HostedStage& hosted, std::int64_t b, const std::byte*) -> Status {
      // What the user computes with is what the owner has.
      Gain& owner = owners[static_cast<std::size_t>(b)];
      if (hosted.host.stage == 0) {
        std::memcpy(owner.data(), hosted.versions.at(hosted.versions.newest()) + linear::gainAt, owner.size());
        return {};
      }
      return std::memcmp(hosted.tied.chosen()[0], owner.data(), owner.size()) == 0
                 ? Status()
                 : Status(Exit::invalid, "an old version");
    };
    if (Status status = executor.evaluate(evaluated, data, predicted); !status) return status;
    return executor.train(11, 13);
  })) << run.statuses[0].message()
      << run.statuses.back().message();
}

TEST(Executor, RefusesToUseWhatOtherStagesShareBeforeItIsThere) {
  const Case c{.replicas = {1, 1}, .warmup = {1, 0}, .tied = true};
  for (auto [kind, rank, message] :
       {std::tuple(ActionKind::receivePart, 0u, "action 0U1 needs the gradients that stage 1 has of shared parameters"),
        std::tuple(ActionKind::receiveVersion, 1u,
                   "action 1F2 needs version 1 of the parameters that stage 0 shares, which is not here")}) {
    Schedule schedule = scheduleOf(c);
    for (RankList& list : schedule.ranks)
      for (std::vector<Action>* actions : {&list.start, &list.repeat})
        std::erase_if(*actions, [&](const Action& action) { return action.kind == kind && action.wait; });
    ThreadRun run = runOf(schedule, c);
    EXPECT_FALSE(run.run([](Executor& executor, int) { return executor.train(0, 4); }));
    EXPECT_EQ(run.statuses[rank].message(), message);
  }
}

TEST(Executor, RefusesASharingThatProgramAndScheduleDoNotAgreeOn) {
  const Case tied{.replicas = {1, 1}, .warmup = {1, 0}, .tied = true}, apart{.replicas = {1, 1}, .warmup = {1, 0}};
  for (bool program : {true, false}) {
    const Schedule schedule = scheduleOf(program ? apart : tied);
    ThreadRun run = runOf(schedule, program ? tied : apart);
    EXPECT_FALSE(run.run([](Executor& executor, int) { return executor.train(0, 4); }));
    EXPECT_EQ(run.statuses[0].message(), program ? "stage 0 shares parameters with stage 1, schedule.txt does not"
                                                 : "stage 0 shares no parameters with stage 1, schedule.txt does");
  }
}

TEST(Executor, RefusesAParameterInBlocksThatHasNone) {
  const Case c{.replicas = {1}, .warmup = {0}};
  const Schedule schedule = scheduleOf(c);
  ThreadRun run = runOf(schedule, c);
  Stage stage = *run.stages[0];
  std::vector<ParameterRow> rows(stage.parameters.begin(), stage.parameters.end());
  rows[0].inBlocks = true;
  stage.parameters = rows;
  run.stages = {&stage};
  EXPECT_FALSE(run.run([](Executor& executor, int) { return executor.train(0, 4); }));
  EXPECT_EQ(run.statuses[0].message(),
            "parameter 'w0' cannot lie in blocks, which are of f32 and have 16 outputs and 16 inputs");
}

TEST(Executor, PutsFiltersInBlocksThatAreRowMajorInFiles) {
  const Case c{.replicas = {1}, .warmup = {0}};
  const Schedule schedule = scheduleOf(c);
  ThreadRun run = runOf(schedule, c);
  const Shape shape = {32, 16, 2, 1};
  const std::size_t bytes = 32 * 16 * 2 * sizeof(float);
  const ParameterRow rows[] = {{"plain", Element::f32, shape, 0, 0, true, 1, 1},
                               {"blocks", Element::f32, shape, bytes, 0, true, 1, 1, false, true}};
  Stage stage = *run.stages[0];
  stage.parameters = rows;
  stage.gradients = {};
  stage.bytes.weights = 2 * bytes;
  run.stages = {&stage};
  ASSERT_TRUE(run.run([](Executor&, int) { return Status(); }));
  std::vector<float> expected(bytes / sizeof(float));
  for (const ParameterRow& row : rows) {
    const auto values = std::as_writable_bytes(std::span(expected));
    ASSERT_TRUE(linear::readInitial(row.name, row.element, row.shape, values));
    if (row.inBlocks) {
      ASSERT_TRUE(toFilterBlocks(row.shape, values));
    }
    EXPECT_EQ(std::memcmp(run.weights(0, 0) + row.offset, expected.data(), bytes), 0) << row.name;
  }
}

TEST(Executor, TrainsTheBitsOfTheReplayWithTheLatestWeights) {
  Case c = {.replicas = {1, 1, 1}, .warmup = {4, 2, 0}, .weights = WeightPolicy::latest};
  Schedule schedule = scheduleOf(c);
  ThreadRun run = runOf(schedule, c);
  ASSERT_TRUE(run.run([](Executor& executor, int) { return executor.train(0, 53); }));
  Replay replay = replayOf(c);
  replay.run(53);
  EXPECT_TRUE(agree(run, replay, c));
}

TEST(Executor, SumsMicrobatchesFromFirstToLastWhenFlushing) {
  for (const Case& c : {Case{.replicas = {1}, .warmup = {0}, .microbatches = 4},
                        Case{.replicas = {1, 1, 1}, .warmup = {2, 1, 0}, .microbatches = 4},
                        Case{.replicas = {2, 1}, .warmup = {1, 0}, .microbatches = 4},
                        Case{.replicas = {2, 3}, .warmup = {1, 0}, .microbatches = 4}}) {
    const Schedule schedule = scheduleOf(c);
    for (std::int64_t minibatches : {4, 40, 42}) {
      ThreadRun run = runOf(schedule, c);
      ASSERT_TRUE(run.run([&](Executor& executor, int) { return executor.train(0, minibatches); }));
      Replay replay = replayOf(c);
      replay.run(minibatches);
      EXPECT_TRUE(agree(run, replay, c)) << c.replicas.size() << " stages, " << minibatches << " minibatches";
    }
  }
}

TEST(Executor, DiffersFromAReplayWithAnyMistake) {
  const Case c = {.replicas = {3, 2}, .warmup = warmupOf({3, 2})};
  const Schedule schedule = scheduleOf(c);
  ThreadRun run = runOf(schedule, c);
  ASSERT_TRUE(run.run([](Executor& executor, int) { return executor.train(0, 50); }));
  for (const ReplayMistake& mistake :
       {ReplayMistake{.latest = true}, ReplayMistake{.versionOff = 1}, ReplayMistake{.reverseAllReduce = true},
        ReplayMistake{.learningRateAsIs = true}}) {
    Replay replay = replayOf(c, mistake);
    replay.run(50);
    EXPECT_FALSE(agree(run, replay, c));
  }
}

TEST(Executor, SendsTheBytesOfTheFormulas) {
  const Case c = {.replicas = {2, 2, 1}, .warmup = warmupOf({2, 2, 1})};
  const Schedule schedule = scheduleOf(c);
  ThreadRun run = runOf(schedule, c);
  const std::int64_t minibatches = 50;
  ASSERT_TRUE(run.run([&](Executor& executor, int) { return executor.train(0, minibatches); }));
  const std::uint64_t weights = (linear::width * linear::width + linear::width) * sizeof(float);
  EXPECT_EQ(run.bytesSent(Traffic::forward), 2 * minibatches * linear::valueBytes);
  EXPECT_EQ(run.bytesSent(Traffic::backward), 2 * minibatches * linear::valueBytes);
  EXPECT_EQ(run.bytesSent(Traffic::allReduce), 2 * (minibatches / 2) * 2 * (2 - 1) * weights);
}

TEST(Executor, GoesOnAfterADrain) {
  const Case c = {.replicas = {2, 1}, .warmup = warmupOf({2, 1})};
  const Schedule schedule = scheduleOf(c);
  ThreadRun run = runOf(schedule, c);
  std::vector<std::int64_t> evaluated;
  std::mutex mutex;
  ASSERT_TRUE(run.run([&](Executor& executor, int) -> Status {
    if (Status status = executor.train(0, 10); !status) return status;
    if (Status status = executor.averageState(); !status) return status;
    Executor::Predicted predicted = [&](const HostedStage&, std::int64_t minibatch, const std::byte*) {
      std::lock_guard lock(mutex);
      if (executor.hosted()[0].host.stage == 1) evaluated.push_back(minibatch);
      return Status();
    };
    if (Status status = executor.evaluate(5, data, predicted); !status) return status;
    return executor.train(10, 10);
  }));
  EXPECT_EQ(evaluated, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(std::memcmp(run.weights(0, 0), run.weights(0, 1), 2 * linear::block), 0);
  EXPECT_EQ(run.hosted(0, 0).updates, 10);
}

TEST(Executor, StopsWhereTheLossIsNotFinite) {
  const Case c = {.replicas = {1, 1}, .warmup = {2, 0}};
  const Schedule schedule = scheduleOf(c);
  ThreadRun run = runOf(schedule, c);
  run.training.learningRate = 1e30;
  EXPECT_FALSE(run.run([](Executor& executor, int) { return executor.train(0, 1000); }));
  EXPECT_EQ(run.statuses[1].code(), Exit::lossNotFinite);
  EXPECT_EQ(run.statuses[0].code(), Exit::again);
}

} // namespace
