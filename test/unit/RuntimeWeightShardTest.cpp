// LINK: pdcrt pdcSchedule
// Weights that lie in shards and are gathered stage by stage: the bits of whole replicas, the bytes that are sent, the
// arena, evaluation, and what lists without the needed actions are told. (RuntimeShardTest has random runs, the
// checkpoints are in RuntimeShardCheckpointTest.)
#include "OverflowingGradients.h"
#include "RandomRun.h"
#include "ReplayComparison.h"

#include "pdcrt/Shards.h"

using namespace pdcrt;

namespace {

timed::NoiseData timedNoise;

/// Stages in a row, all on each rank, with weights of 2·12 units of 1,024 elements each.
struct Units {
  explicit Units(int count) {
    model.stages.resize(static_cast<std::size_t>(count));
    for (int s = 1; s < count; ++s) model.edges.push_back({.from = s - 1, .to = s});
    model.values = model.parameters = 12 * squaresBlock;
  }
  timed::Model model;
  static constexpr std::size_t weights = 2 * 12 * squaresBlock * sizeof(float), gradients = weights / 2 * 3;

  Schedule schedule(int replicas, Sharding sharding, std::int64_t microbatches, int degree = 0) const {
    pdc::PipelineShape shape =
        pdc::straightShape(std::vector<pdc::StageShape>(model.stages.size(), {.replicas = replicas}));
    for (pdc::StageShape& stage : shape.stages) stage.sharding = sharding, stage.shardDegree = degree;
    shape.kind = "bfs:" + std::to_string(model.stages.size());
    shape.microbatches = microbatches;
    return pdc::buildSchedule(shape);
  }
};

/// Keeps the stages of a run for as long as it is looked at.
struct UnitRun {
  UnitRun(const Units& units, Schedule lists, OptimizerKind optimizer = OptimizerKind::adam)
      : schedule(std::move(lists)), stages(units.model) {
    run.schedule = &schedule;
    run.stages = stages.all();
    run.training.optimizer = optimizer;
    run.training.learningRate = 0.01;
    run.data = &timedNoise;
    run.readWeights = timed::readInitial;
  }
  Schedule schedule;
  timed::Stages stages;
  ThreadRun run;

  void train(std::int64_t minibatches) {
    EXPECT_TRUE(run.run([&](Executor& executor, int) { return executor.train(0, minibatches); }))
        << run.statuses[0].message();
  }
  std::string bits() const {
    std::string all;
    for (std::size_t s = 0; s < run.stages.size(); ++s)
      for (int r = 0; r < schedule.stages[s].replicas; ++r)
        all.append(reinterpret_cast<const char*>(run.weights(static_cast<int>(s), r)), run.stages[s]->bytes.weights);
    return all;
  }
};

// The last unit is gathered once, the others twice, and gradients are summed once: whatever the number of microbatches.
TEST(WeightShards, SendWhatTheFormulaSays) {
  constexpr std::int64_t batches = 3, units = 12;
  const Units model(units);
  for (int replicas : {2, 3, 4})
    for (std::int64_t each : {1, 8}) {
      UnitRun run(model, model.schedule(replicas, Sharding::weights, each * replicas));
      run.train(batches * each * replicas);
      const auto r = static_cast<std::size_t>(replicas);
      for (const auto& transport : run.run.transports)
        EXPECT_EQ(transport->bytesSent[static_cast<std::size_t>(Traffic::allReduce)],
                  batches * (r - 1) * (3 * units - 1) * Units::weights / r)
            << replicas << " replicas, " << each << " microbatches of each";
    }
}

// Groups of D replicas have everything together: gathers are inside of a group, a sum goes over all replicas, and from
// those that make a part of it to the others that own the shard. The bits are those of whole replicas.
TEST(WeightShards, OfGroupsSendWhatTheFormulaSays) {
  constexpr std::int64_t batches = 3, units = 5;
  const Units model(units);
  for (const auto& [replicas, degree] : {std::pair(4, 2), std::pair(6, 2), std::pair(6, 3)})
    for (std::int64_t each : {1, 3}) {
      UnitRun run(model, model.schedule(replicas, Sharding::weights, each * replicas, degree)),
          whole(model, model.schedule(replicas, Sharding::none, each * replicas));
      run.train(batches * each * replicas);
      whole.train(batches * each * replicas);
      EXPECT_EQ(run.bits() == whole.bits(), true) << replicas << " replicas in groups of " << degree;
      const auto r = static_cast<std::size_t>(replicas), d = static_cast<std::size_t>(degree);
      const std::size_t sum = units * Units::weights, gathers = (2 * units - 1) * Units::weights;
      for (const auto& transport : run.run.transports)
        EXPECT_EQ(transport->bytesSent[static_cast<std::size_t>(Traffic::allReduce)],
                  batches * (sum / r * (r - 1) + sum / r * (r / d - 1) + gathers / d * (d - 1)))
            << replicas << " replicas in groups of " << degree << ", " << each << " microbatches of each";
      // A shard is 1/d of the weights, its sum and Adam's state; staging is what others send of 1/r.
      const std::size_t shard = Units::weights / d, sets = each > 1 ? 2 : 1;
      const std::size_t wholeBytes =
                            units * (3 * Units::weights + sets * Units::gradients + Units::weights / r * (r - 1)),
                        dividedBytes = units * 4 * shard +
                                       2 * (Units::weights + Units::gradients + Units::weights / r * (r - 1)) +
                                       (sets - 1) * Units::gradients;
      EXPECT_EQ(whole.run.executors[0]->arena().bytes - run.run.executors[0]->arena().bytes, wholeBytes - dividedBytes);
    }
}

// To the byte: what lies in shards, two places for weights and two for gradients with their staging, and one spare.
TEST(WeightShards, TakeTheMemoryOfShardsAndOfTwoUnits) {
  constexpr std::size_t units = 12;
  const Units model(units);
  for (int replicas : {2, 3, 4})
    for (std::int64_t each : {1, 4}) {
      UnitRun whole(model, model.schedule(replicas, Sharding::none, each * replicas)),
          divided(model, model.schedule(replicas, Sharding::weights, each * replicas));
      whole.train(each * replicas);
      divided.train(each * replicas);
      const auto r = static_cast<std::size_t>(replicas);
      const std::size_t shard = Units::weights / r, sets = each > 1 ? 2 : 1;
      const std::size_t wholeBytes = units * (3 * Units::weights + sets * Units::gradients + (r - 1) * shard),
                        dividedBytes = units * 4 * shard + 2 * (Units::weights + Units::gradients + (r - 1) * shard) +
                                       (sets - 1) * Units::gradients;
      EXPECT_EQ(whole.run.executors[0]->arena().bytes - divided.run.executors[0]->arena().bytes,
                wholeBytes - dividedBytes)
          << replicas << " replicas, " << each << " microbatches of each";
      EXPECT_EQ(whole.bits() == divided.bits(), true);
    }
}

/// The values of the last stage in an evaluation in the middle of a run, and the weights at its end.
std::string evaluated(const Units& model, Sharding sharding, int replicas, std::int64_t minibatches) {
  UnitRun run(model, model.schedule(replicas, sharding, 4));
  const int last = static_cast<int>(model.model.stages.size()) - 1;
  std::mutex mutex;
  std::map<std::int64_t, std::string> values;
  const Executor::Predicted predicted = [&](const HostedStage& hosted, std::int64_t minibatch,
                                            const std::byte* slot) -> Status {
    if (hosted.host.stage != last) return {};
    std::lock_guard lock(mutex);
    values[minibatch].assign(reinterpret_cast<const char*>(slot) + model.model.valueBytes(), model.model.valueBytes());
    return {};
  };
  EXPECT_TRUE(run.run.run([&](Executor& executor, int) -> Status {
    if (Status status = executor.train(0, 12); !status) return status;
    if (Status status = executor.evaluate(minibatches, timedNoise, predicted); !status) return status;
    return executor.train(12, 5);
  })) << run.run.statuses[0].message();
  std::string all;
  EXPECT_EQ(values.size(), static_cast<std::size_t>(minibatches));
  for (const auto& [minibatch, value] : values) all += value;
  return all + run.bits();
}

TEST(WeightShards, AreEvaluatedAsWholeOnesAre) {
  const Units model(3);
  for (int replicas : {2, 3})
    for (std::int64_t minibatches : {1, 7, 26}) {
      const std::string whole = evaluated(model, Sharding::none, replicas, minibatches);
      EXPECT_EQ(whole == evaluated(model, Sharding::weights, replicas, minibatches), true) << minibatches;
    }
}

ComparisonCase inShards(int replicas, std::int64_t microbatches, const Training& training, int degree = 0) {
  return {.kind = "bfs:2",
          .replicas = {replicas, replicas},
          .warmup = {0, 0},
          .microbatches = microbatches,
          .training = training,
          .sharding = Sharding::weights,
          .shardDegree = degree};
}

TEST(WeightShards, AreClippedByTheNormOfAllReplicas) {
  for (int replicas : {2, 3, 4})
    for (std::int64_t microbatches : {1, 4, 7})
      for (ClipScope scope : {ClipScope::global, ClipScope::stage}) {
        Comparison comparison(inShards(replicas, microbatches, clipping(scope)));
        comparison.train(29);
        if (testing::Test::HasFatalFailure()) return;
        EXPECT_TRUE(comparison.agrees(clipping(scope))) << replicas << " replicas, " << microbatches;
        Training other = clipping(scope);
        other.clipNorm = 0.21;
        EXPECT_FALSE(comparison.agrees(other));
      }
}

TEST(WeightShards, OfGroupsAreClippedByTheNormOfAllReplicas) {
  for (ClipScope scope : {ClipScope::global, ClipScope::stage}) {
    Comparison comparison(inShards(4, 8, clipping(scope), /*degree=*/2));
    comparison.train(29);
    if (testing::Test::HasFatalFailure()) return;
    EXPECT_TRUE(comparison.agrees(clipping(scope)));
    Training other = clipping(scope);
    other.clipNorm = 0.21;
    EXPECT_FALSE(comparison.agrees(other));
  }
}

TEST(WeightShards, SkipUpdatesTogether) {
  linear::FarData far;
  Training training = clipping(ClipScope::global);
  training.clipNorm = HUGE_VAL;
  for (int degree : {0, 2}) {
    const int replicas = degree > 0 ? 4 : 2;
    Comparison comparison(inShards(replicas, 8, training, degree), far);
    comparison.weights() = linear::overflowing;
    comparison.train(24);
    if (HasFatalFailure()) return;
    EXPECT_TRUE(comparison.agrees(training));
    EXPECT_GT(comparison.run().hosted(0, 0).skipped, 0);
    EXPECT_EQ(comparison.run().hosted(0, 0).skipped, comparison.run().hosted(1, replicas - 1).skipped);
  }
}

TEST(WeightShards, GoWithADynamicLossScale) {
  Training training = clipping(ClipScope::global);
  training.lossScale = 1024;
  training.lossScaleInterval = 2;
  Comparison comparison(inShards(2, 6, training));
  comparison.train(24);
  if (HasFatalFailure()) return;
  EXPECT_TRUE(comparison.agrees(clipping(ClipScope::global)));
  EXPECT_EQ(comparison.run().hosted(1, 1).lossScale.scale, 4096) << "4 updates: doubled twice";
}

/// What the executor says of the list of rank 0, in which something has been changed.
std::string refusal(const std::function<void(std::vector<Action>&)>& change) {
  const Units model(3);
  Schedule schedule = model.schedule(2, Sharding::weights, 2);
  for (RankList& rank : schedule.ranks)
    rank.start = expand(schedule, static_cast<int>(&rank - schedule.ranks.data()), 4);
  change(schedule.ranks[0].start);
  for (RankList& rank : schedule.ranks) rank.repeat.clear();
  UnitRun run(model, schedule);
  EXPECT_FALSE(check(schedule, 4, {.picture = false}).passed);
  EXPECT_FALSE(run.run.run([&](Executor& executor, int) { return executor.train(0, 4); }));
  return run.run.statuses[0].message();
}

auto without(const char* text) {
  return [=](std::vector<Action>& list) {
    std::erase_if(list, [&](const Action& action) { return toString(action) == text; });
  };
}

TEST(WeightShards, AreRefusedWhereSomethingIsMissing) {
  EXPECT_EQ(refusal(without("?1UN1")), "action 1F0 needs version 0 of its weights, of which other replicas have parts");
  EXPECT_EQ(refusal(without("1RE1")), "action 1UN2 finds no place for the weights of stage 1, all are taken");
  EXPECT_EQ(refusal(without("0RE2")), "action 0U1 changes weights that are gathered for the version before");
  EXPECT_EQ(refusal(without("?2RS1")), "action 0B0 overwrites the gradients of stage 2");
}

} // namespace
