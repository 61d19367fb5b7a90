// LINK: pdcrt pdcSchedule
// Replicas that divide the optimizer's state and the updates: which elements each owns, and that every run trains the
// bits of its replay (Replay.h), which knows no shards.
#include "OverflowingGradients.h"
#include "RandomRun.h"
#include "ReplayComparison.h"
#include "Rounds.h"

#include "pdcrt/Shards.h"

#include <numeric>

using namespace pdcrt;

namespace {

timed::NoiseData timedNoise;

TEST(Shards, AreEveryElementOnceInWholeUnits) {
  std::mt19937 random(3);
  auto between = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  for (int round = 0; round < 200; ++round) {
    std::vector<ShardedParameter> parameters;
    std::int64_t all = 0, largestUnit = squaresBlock;
    for (int i = 0, count = between(1, 6); i < count; ++i) {
      const bool inBlocks = between(0, 3) == 0;
      const std::int64_t outputs = 16 * between(1, 40), each = 16 * between(1, 9);
      parameters.push_back(inBlocks ? shardedParameter(i, outputs * each, outputs)
                                    : shardedParameter(i, between(1, 3'000'000), 0));
      all += parameters.back().elements;
      largestUnit = std::max(largestUnit, parameters.back().unit);
      if (inBlocks) {
        EXPECT_EQ(parameters.back().unit % (each * 16), 0);
      }
    }
    const int owners = between(2, 5), groups = between(1, 3), replicas = owners * groups;
    const Shards shards(parameters, replicas, groups > 1 ? owners : 0);
    EXPECT_EQ(shards.owners(), owners);
    std::vector<std::vector<Shards::Range>> byRow(parameters.size());
    for (int shard = 0; shard < owners; ++shard) {
      std::int64_t at = 0;
      for (const Shards::Range& range : shards.of(shard)) {
        EXPECT_EQ(range.at, at) << "one after the other in the shard";
        EXPECT_EQ(range.begin % parameters[static_cast<std::size_t>(range.row)].unit, 0);
        at += range.count;
        byRow[static_cast<std::size_t>(range.row)].push_back(range);
      }
      EXPECT_LE(at, shards.most());
      EXPECT_LE(std::abs(at - all / owners), 2 * groups * largestUnit) << "even, but for units";
      // What its owners sum of each chunk is what they have of it.
      std::vector<std::int64_t> summed(static_cast<std::size_t>(groups));
      std::int64_t next = 0;
      for (const Shards::Chunk& chunk : shards.chunks())
        for (int group = 0; group < groups; ++group) {
          const Shards::Range& range = chunk.of[static_cast<std::size_t>(group * owners + shard)];
          EXPECT_EQ(range.at, next);
          next += range.count;
          summed[static_cast<std::size_t>(group)] += range.count;
        }
      EXPECT_EQ(next, at);
      for (std::int64_t elements : summed) {
        EXPECT_LE(elements, shards.mostSummed());
        EXPECT_LE(std::abs(elements - all / replicas), 2 * largestUnit) << "even, but for units";
      }
    }
    for (std::size_t row = 0; row < byRow.size(); ++row) {
      std::sort(byRow[row].begin(), byRow[row].end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
      std::int64_t end = 0;
      for (const Shards::Range& range : byRow[row]) {
        EXPECT_EQ(range.begin, end);
        end += range.count;
      }
      EXPECT_EQ(end, parameters[row].elements);
    }
  }
}

TEST(Shards, OfWholeUnitsAreEqual) {
  for (int replicas : {2, 3, 4}) {
    std::vector<ShardedParameter> parameters;
    for (int i = 0; i < 5; ++i) parameters.push_back(shardedParameter(i, 12 * squaresBlock * (i + 1), 0));
    EXPECT_EQ(Shards(parameters, replicas).most(), 12 * squaresBlock * 15 / replicas);
    const Shards groups(parameters, 2 * replicas, replicas);
    EXPECT_EQ(groups.most(), 12 * squaresBlock * 15 / replicas);
    EXPECT_LE(groups.mostSummed() - groups.most() / 2, squaresBlock);
  }
}

bool isSharded(const Schedule& schedule) {
  return std::ranges::any_of(schedule.stages, [](const ScheduleStage& stage) { return stage.isSharded(); });
}

/// The newest weights and states of all replicas.
std::string bitsOf(const RandomRun& random, const Schedule& schedule, const Training& training) {
  const timed::Stages stages(random.model);
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = stages.all();
  run.training = training;
  run.data = &timedNoise;
  run.readWeights = timed::readInitial;
  if (random.minibatches % 2) run.floatsOfReduction = 2048;
  EXPECT_TRUE(run.run([&](Executor& executor, int) { return executor.train(0, random.minibatches); }))
      << run.statuses[0].message();
  std::string bits;
  for (std::size_t s = 0; s < schedule.stages.size(); ++s)
    for (int r = 0; r < schedule.stages[s].replicas; ++r) {
      const Stage& stage = *stages.all()[s];
      bits.append(reinterpret_cast<const char*>(run.weights(static_cast<int>(s), r)), stage.bytes.weights);
      bits.append(reinterpret_cast<const char*>(run.hosted(static_cast<int>(s), r).state), stage.bytes.state);
    }
  return bits;
}

/// The newest weights of each replica as the replay has them, which knows sgd and momentum.
std::string replayed(const RandomRun& random) {
  const timed::Stages stages(random.model);
  Replay replay = random.replay(stages, timedNoise);
  replay.run(random.minibatches);
  std::string bits;
  for (std::size_t s = 0; s < random.shape.stages.size(); ++s)
    for (int r = 0; r < random.shape.stages[s].replicas; ++r)
      bits.append(reinterpret_cast<const char*>(replay.weights(s).data()), stages.all()[s]->bytes.weights);
  return bits;
}

// Under every schedule, with every optimizer, replicas that divide the updates train what whole ones train.
TEST(ShardedRuns, TrainTheBitsOfWholeReplicas) {
  const OptimizerKind kinds[] = {OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::adam,
                                 OptimizerKind::adamw};
  std::map<std::string, int> schedules;
  int runs = 0;
  for (unsigned seed = 0; runs < pdc::rounds(60); ++seed) {
    RandomRun random(seed, 6);
    if (!isSharded(random.schedule)) continue;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + random.description());
    random.training.optimizer = kinds[runs++ % 4];
    random.model.values = random.model.parameters = 4096;
    pdc::PipelineShape whole = random.shape;
    for (pdc::StageShape& stage : whole.stages) stage.sharding = Sharding::none;
    const std::string sharded = bitsOf(random, random.schedule, random.training);
    EXPECT_EQ(sharded == bitsOf(random, pdc::buildSchedule(whole), random.training), true) << toString(random.schedule);
    Training other = random.training;
    other.weightDecay = 0.02;
    EXPECT_FALSE(sharded == bitsOf(random, random.schedule, other));
    ++schedules[random.schedule.kind.substr(0, random.schedule.kind.find(':'))];
  }
  EXPECT_GE(schedules.size(), 6u);
}

TEST(ShardedRuns, TrainTheBitsOfTheReplay) {
  int runs = 0;
  for (unsigned seed = 1000; runs < pdc::rounds(20); ++seed) {
    RandomRun random(seed, 6);
    if (!isSharded(random.schedule)) continue;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + random.description());
    random.training.optimizer = runs++ % 2 ? OptimizerKind::sgd : OptimizerKind::momentum;
    random.model.values = random.model.parameters = 4096;
    const timed::Stages stages(random.model);
    const std::string bits = bitsOf(random, random.schedule, random.training), expected = replayed(random);
    const std::size_t weights = stages.all()[0]->bytes.weights, one = weights + stages.all()[0]->bytes.state;
    for (std::size_t at = 0, i = 0; at < bits.size(); at += one, ++i)
      EXPECT_TRUE(bits.substr(at, weights) == expected.substr(i * weights, weights)) << "replica " << i << " of all";
  }
}

struct Sizes {
  std::size_t arena = 0, optimizer = 0;
  std::uint64_t sent = 0;
};

Sizes sizesOf(int replicas, Sharding sharding, std::int64_t updates) {
  timed::Model model;
  model.stages.resize(1);
  model.values = model.parameters = 12 * squaresBlock;
  const timed::Stages stages(model);
  pdc::PipelineShape shape = pdc::straightShape({{.replicas = replicas, .sharding = sharding}});
  const Schedule schedule = pdc::buildSchedule(shape);
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = stages.all();
  run.training.optimizer = OptimizerKind::adam;
  run.data = &timedNoise;
  run.readWeights = timed::readInitial;
  EXPECT_TRUE(run.run([&](Executor& executor, int) { return executor.train(0, updates * replicas); }))
      << run.statuses[0].message();
  return {run.executors[0]->arena().bytes, run.hosted(0, 0).optimizer->layout().bytes(),
          run.bytesSent(Traffic::allReduce)};
}

TEST(ShardedRuns, TakeAShareOfTheStateAndSendAsMuch) {
  constexpr std::int64_t updates = 5;
  constexpr std::size_t weights = 2 * 12 * squaresBlock * sizeof(float);
  for (int replicas : {2, 3, 4}) {
    const auto r = static_cast<std::size_t>(replicas);
    const Sizes whole = sizesOf(replicas, Sharding::none, updates),
                sharded = sizesOf(replicas, Sharding::optimizer, updates);
    EXPECT_EQ(whole.optimizer, 2 * weights);
    EXPECT_EQ(sharded.optimizer, 2 * weights / r);
    EXPECT_EQ(whole.arena - sharded.arena, 2 * weights - 2 * weights / r);
    EXPECT_EQ(sharded.sent, updates * 2 * (r - 1) * weights) << "over all replicas";
    EXPECT_EQ(whole.sent, sharded.sent);
  }
}

TEST(ShardedRuns, AreClippedByTheNormOfAllReplicas) {
  for (const char* kind : {"1f1b-flush", "gpipe", "2bw", "zb-h1", "1f1b"})
    for (const std::vector<int>& replicas : {std::vector{2}, {3}, {2, 1}, {1, 3}, {2, 2}})
      for (ClipScope scope : {ClipScope::global, ClipScope::stage}) {
        const bool alone = std::string_view(kind) == "1f1b";
        if (alone && replicas.size() > 1 && scope == ClipScope::global) continue; // no common updates
        SCOPED_TRACE(std::string(kind) + " " + testing::PrintToString(replicas) +
                     (scope == ClipScope::stage ? " by stage" : ""));
        const std::vector<int> warmup = replicas.size() == 1 ? std::vector{0} : std::vector{2, 0};
        Comparison comparison({.kind = kind,
                               .replicas = replicas,
                               .warmup = warmup,
                               .microbatches = alone ? 0 : 6,
                               .training = clipping(scope),
                               .gradientNorm = true,
                               .sharded = true});
        comparison.train(30);
        if (testing::Test::HasFatalFailure()) return;
        EXPECT_TRUE(comparison.agrees(clipping(scope)));
        Training other = clipping(scope);
        other.clipNorm = 0.21;
        EXPECT_FALSE(comparison.agrees(other));
        if (replicas.size() > 1 && !alone && scope == ClipScope::stage) {
          EXPECT_FALSE(comparison.agrees(clipping(ClipScope::global)));
        }
      }
}

TEST(ShardedRuns, SkipUpdatesTogether) {
  linear::FarData far;
  for (const char* kind : {"1f1b-flush", "2bw"}) {
    Training training = clipping(ClipScope::global);
    training.clipNorm = HUGE_VAL;
    Comparison comparison({.kind = kind, .replicas = {2, 2}, .warmup = {1, 0}, .training = training, .sharded = true},
                          far);
    comparison.weights() = linear::overflowing;
    comparison.train(18);
    if (HasFatalFailure()) return;
    EXPECT_TRUE(comparison.agrees(training)) << kind;
    EXPECT_GT(comparison.run().hosted(0, 0).skipped, 0);
    EXPECT_EQ(comparison.run().hosted(0, 0).skipped, comparison.run().hosted(0, 1).skipped);
  }
}

TEST(ShardedRuns, NeedTheNormWhereGradientsAreLookedAt) {
  Comparison comparison({.replicas = {2},
                         .warmup = {0},
                         .training = clipping(ClipScope::global),
                         .gradientNorm = false,
                         .sharded = true});
  EXPECT_FALSE(comparison.run().run([](Executor& executor, int) { return executor.train(0, 6); }));
  EXPECT_EQ(comparison.run().statuses[0].message(),
            "the replicas of stage 0 have sums of a part of its gradients each, and must tell each other whether all "
            "are finite and how large they are; schedule.txt has no line 'gradient-norm'");
}

} // namespace
