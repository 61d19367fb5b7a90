// LINK: pdcrt pdcSchedule
// Clipping by the norm of all gradients, and gradients that are not finite, against the replay (Replay.h): the same
// bits. The norm itself: exact sums, over any number of ranks.
#include "OverflowingGradients.h"
#include "ReplayComparison.h"

#include <numeric>
#include <random>

using namespace pdcrt;

namespace {

struct Case {
  const char* kind = "1f1b-flush";
  std::vector<int> replicas;
  std::vector<int> warmup;
  double norm = 0.2;
  ClipScope scope = ClipScope::global;
  bool tied = false;
  std::int64_t microbatches = 6;
};

Training trainingOf(const Case& c) {
  Training training;
  training.optimizer = OptimizerKind::momentum;
  training.learningRate = 0.3;
  training.momentum = 0.9;
  training.clipNorm = c.norm;
  training.clipScope = c.scope;
  return training;
}

ComparisonCase comparisonOf(const Case& c) {
  return {.kind = c.kind,
          .replicas = c.replicas,
          .warmup = c.warmup,
          .microbatches = c.microbatches,
          .training = trainingOf(c),
          .gradientNorm = c.scope == ClipScope::global,
          .tied = c.tied};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (bool tied : {false, true})
    for (const char* kind : {"1f1b-flush", "gpipe", "2bw"})
      for (const auto& [replicas, warmup] : std::vector<std::pair<std::vector<int>, std::vector<int>>>{
               {{1, 1, 1}, {2, 1, 0}}, {{2, 1}, {1, 0}}, {{2, 3}, {1, 0}}})
        all.push_back({.kind = kind, .replicas = replicas, .warmup = warmup, .tied = tied});
  all.push_back({.replicas = {1}, .warmup = {0}});
  all.push_back({.replicas = {2}, .warmup = {0}});
  return all;
}

std::string textOf(const Case& c) {
  return std::string(c.kind) + " " + testing::PrintToString(c.replicas) + (c.tied ? " tied" : "");
}

TEST(Clipping, TrainsTheBitsOfTheReplayAndOfNoOther) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(textOf(c));
    for (std::int64_t minibatches : {24, 28}) {
      Comparison comparison(comparisonOf(c));
      comparison.train(minibatches);
      if (HasFatalFailure()) return;
      EXPECT_TRUE(comparison.agrees(trainingOf(c)));
      Training other = trainingOf(c);
      other.clipNorm = 0.21;
      EXPECT_FALSE(comparison.agrees(other)) << "the norm that it is clipped to";
      const bool byStage = comparison.agrees(trainingOf(c), {.clipEachStage = true});
      EXPECT_EQ(byStage, c.replicas.size() == 1);
    }
  }
}

TEST(Clipping, AnInfiniteNormClipsNothing) {
  const Case c{.replicas = {1, 1}, .warmup = {1, 0}, .norm = HUGE_VAL};
  Comparison comparison(comparisonOf(c));
  comparison.train(24);
  Training without = trainingOf(c);
  without.clipNorm.reset();
  EXPECT_TRUE(comparison.agrees(without));
}

TEST(Clipping, ByStageNeedsNoCommonNorm) {
  const Case c{.replicas = {1, 1, 1}, .warmup = {2, 1, 0}, .scope = ClipScope::stage};
  Comparison comparison(comparisonOf(c));
  comparison.train(24);
  EXPECT_TRUE(comparison.agrees(trainingOf(c)));
  Training global = trainingOf(c);
  global.clipScope = ClipScope::global;
  EXPECT_FALSE(comparison.agrees(global));
}

TEST(Clipping, GradientsThatAreNotFiniteSkipTheUpdateOfAllStages) {
  linear::FarData far;
  for (ClipScope scope : {ClipScope::global, ClipScope::stage}) {
    const Case c{.replicas = {1, 1}, .warmup = {1, 0}, .norm = HUGE_VAL, .scope = scope};
    Comparison comparison(comparisonOf(c), far);
    comparison.weights() = linear::overflowing;
    comparison.train(6);
    if (HasFatalFailure()) return;
    EXPECT_TRUE(comparison.agrees(trainingOf(c)));
    EXPECT_EQ(comparison.run().hosted(0, 0).versions.newest(), 1) << "it counts";
    for (int stage : {0, 1}) {
      std::vector<float> initial(linear::width);
      const std::string name = "g" + std::to_string(stage);
      ASSERT_TRUE(linear::overflowing(name.c_str(), Element::f32, {linear::width},
                                      {reinterpret_cast<std::byte*>(initial.data()), initial.size() * sizeof(float)}));
      const bool same = std::memcmp(comparison.run().weights(stage, 0) + linear::gainAt, initial.data(),
                                    initial.size() * sizeof(float)) == 0;
      EXPECT_EQ(same, stage == 0 || scope == ClipScope::global) << "stage " << stage;
    }
  }
}

TEST(Clipping, GlobalNeedsAScheduleWithTheNorm) {
  Case c{.replicas = {1, 1}, .warmup = {1, 0}, .scope = ClipScope::stage};
  const Schedule schedule = scheduleOf(comparisonOf(c));
  c.scope = ClipScope::global;
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = linear::linearStages(2, false);
  run.training = trainingOf(c);
  run.data = &noise;
  run.readWeights = linear::readInitial;
  EXPECT_FALSE(run.run([](Executor& executor, int) { return executor.train(0, 6); }));
  EXPECT_EQ(run.statuses[0].message(), "clip_norm over all stages needs a schedule that adds up their norms, "
                                       "schedule.txt has no line 'gradient-norm'");
}

TEST(Clipping, TheScheduleIsRefusedWithoutItsWait) {
  const Schedule whole = scheduleOf(ComparisonCase{.replicas = {1, 1}, .warmup = {1, 0}});
  auto problem = [&](auto removed) {
    Schedule schedule = whole;
    for (RankList& rank : schedule.ranks)
      for (std::vector<Action>* list : {&rank.start, &rank.repeat}) std::erase_if(*list, removed);
    return check(schedule, 12).problem;
  };
  auto is = [](const Action& action, bool wait, int stage) {
    return action.kind == ActionKind::gradientNorm && action.wait == wait && action.stage == stage;
  };
  EXPECT_NE(problem([&](const Action& a) { return is(a, true, 0); }).find("needs ?0GN1 before it"), std::string::npos);
  EXPECT_NE(problem([&](const Action& a) { return is(a, false, 1); }).find("waits for what is not started"),
            std::string::npos);
  // A stage that starts it a batch late keeps the others waiting.
  const std::string picture =
      problem([&](const Action& a) { return a.kind == ActionKind::gradientNorm && a.stage == 1; });
  EXPECT_NE(picture.find("needs ?1GN1 before it"), std::string::npos) << picture;
}

TEST(Clipping, ItsScheduleSurvivesItsText) {
  const Schedule schedule = scheduleOf(ComparisonCase{.replicas = {2, 1}, .warmup = {1, 0}});
  Schedule read;
  std::string error;
  ASSERT_TRUE(parseSchedule(toString(schedule), read, error)) << error;
  EXPECT_EQ(read, schedule);
  EXPECT_NE(toString(schedule).find("\ngradient-norm\n"), std::string::npos);
  Schedule without = schedule;
  without.gradientNorm = false;
  EXPECT_FALSE(isWellFormed(without, error));
  EXPECT_NE(error.find("needs a line 'gradient-norm'"), std::string::npos) << error;
}

TEST(ExactSum, DoesNotDependOnTheOrder) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> exponents(-298, 300), digits(1, 2);
  std::vector<double> numbers;
  for (int i = 0; i < 2000; ++i) numbers.push_back(std::ldexp(digits(random), static_cast<int>(exponents(random))));
  numbers.push_back(std::ldexp(1.0, -298));
  auto sum = [&] {
    ExactSum first, second;
    for (std::size_t i = 0; i < numbers.size(); ++i) (i % 3 ? first : second).add(numbers[i]);
    first.add(second);
    EXPECT_TRUE(first.finite());
    return first.value();
  };
  const double value = sum();
  std::sort(numbers.begin(), numbers.end());
  EXPECT_NEAR(value, std::accumulate(numbers.begin(), numbers.end(), 0.0), 1e-12 * value);
  for (int round = 0; round < 10; ++round) {
    std::shuffle(numbers.begin(), numbers.end(), random);
    EXPECT_EQ(sum(), value);
  }
}

TEST(ExactSum, IsExact) {
  ExactSum sum;
  for (int i = 0; i < 1 << 20; ++i) sum.add(0x1p-60);
  sum.add(1);
  EXPECT_EQ(sum.value(), 1 + 0x1p-40);
  for (double endless : {HUGE_VAL, std::nan("")}) {
    ExactSum other = sum;
    other.add(endless);
    EXPECT_FALSE(other.finite());
    sum.add(other);
    EXPECT_FALSE(sum.finite());
    sum.clear();
  }
}

TEST(ExactSum, SquaresAreThoseOfTheFloats) {
  std::vector<float> values(1003);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::ldexp(1.0f, static_cast<int>(i % 20) - 10);
  double expected = 0; // exact: all are powers of two
  for (float value : values) expected += static_cast<double>(value) * value;
  auto sumOf = [&](std::int64_t count) {
    Stream stream;
    const device::Floats of[] = {{values.data(), 3}, {values.data(), count}};
    constexpr std::int64_t block = 500;
    std::vector<double> sums(1 + device::blocksOfSquares(count, block), -1);
    EXPECT_TRUE(device::sumsOfSquares(stream, of, block, sums));
    EXPECT_EQ(sums[0], 21.0 / (1 << 20)); // of 1/1024, 2/1024 and 4/1024
    return std::accumulate(sums.begin() + 1, sums.end(), 0.0);
  };
  EXPECT_EQ(sumOf(1003), expected);
  values[1001] = HUGE_VALF;
  EXPECT_FALSE(std::isfinite(sumOf(1003)));
  EXPECT_EQ(sumOf(0), 0);
}

} // namespace
