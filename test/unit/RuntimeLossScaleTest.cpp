// LINK: pdcrt pdcSchedule
// The dynamic loss scale, and updates whose gradients are not finite, against the replay (Replay.h): the same bits.
#include "OverflowingGradients.h"
#include "ReplayComparison.h"

#include <cmath>

using namespace pdcrt;

namespace {

Training trainingWith(double scale, std::int64_t interval) {
  Training training;
  training.optimizer = OptimizerKind::momentum;
  training.learningRate = 0.3;
  training.momentum = 0.9;
  training.lossScale = scale;
  training.lossScaleInterval = interval;
  return training;
}

/// Noise with far targets in one minibatch: the loss is finite, and so are its gradients until they are scaled.
class SpikeData : public linear::NoiseData {
public:
  explicit SpikeData(std::int64_t minibatch, float target = 1e18f) : spike_(minibatch), target_(target) {}
  Status read(const DataRow& row, std::int64_t minibatch, std::byte* destination) override {
    Status status = NoiseData::read(row, minibatch, destination);
    auto* values = reinterpret_cast<float*>(destination);
    for (std::int64_t i = 0; row.label && minibatch == spike_ && i < row.shape.elements(); ++i) values[i] = target_;
    return status;
  }

private:
  std::int64_t spike_;
  float target_;
};

constexpr double huge = 0x1p80;

/// The bits of weights and of the optimizer's state of every stage.
std::vector<std::string> bitsOf(const ThreadRun& run) {
  std::vector<std::string> bits;
  for (std::size_t s = 0; s < run.stages.size(); ++s) {
    const HostedStage& hosted = run.hosted(static_cast<int>(s), 0);
    const std::size_t bytes = run.stages[s]->bytes.weights;
    const auto text = [&](const std::byte* from) { return std::string(reinterpret_cast<const char*>(from), bytes); };
    bits.push_back(text(run.weights(static_cast<int>(s), 0)));
    for (std::size_t at = 0; at < hosted.optimizer->layout().bytes(); at += arenaBytes(bytes))
      bits.push_back(text(hosted.optimizerState + at));
  }
  return bits;
}

TEST(LossScale, GrowsAndChangesNoBitWhereNothingOverflows) {
  for (const char* kind : {"1f1b-flush", "gpipe"})
    for (const auto& [replicas, warmup] : std::vector<std::pair<std::vector<int>, std::vector<int>>>{
             {{1, 1, 1}, {2, 1, 0}}, {{2, 1}, {1, 0}}, {{2}, {0}}}) {
      Comparison comparison({.kind = kind, .replicas = replicas, .warmup = warmup, .training = trainingWith(1024, 2)});
      comparison.train(24);
      if (HasFatalFailure()) return;
      EXPECT_TRUE(comparison.agrees(trainingWith(1, 0))) << kind << " " << testing::PrintToString(replicas);
      for (std::size_t s = 0; s < replicas.size(); ++s) {
        const HostedStage& hosted = comparison.run().hosted(static_cast<int>(s), 0);
        EXPECT_EQ(hosted.lossScale.scale, 4096) << "4 updates: doubled twice";
        EXPECT_EQ(hosted.skipped, 0);
      }
    }
}

TEST(LossScale, AnOverflowSkipsOneUpdateOfAllStages) {
  SpikeData spike(7); // in the second of four updates
  const ComparisonCase c{.replicas = {1, 2}, .warmup = {1, 0}, .training = trainingWith(huge, 100)};
  Comparison before(c, spike), after(c, spike), whole(c, spike);
  before.train(6);
  after.train(12);
  whole.train(24);
  if (HasFatalFailure()) return;
  EXPECT_EQ(bitsOf(before.run()), bitsOf(after.run())) << "weights and velocities, in every stage";
  EXPECT_TRUE(whole.agrees(c.training));
  EXPECT_FALSE(whole.agrees(trainingWith(1, 0))) << "without a scale nothing overflows";
  for (int stage : {0, 1}) {
    const HostedStage& hosted = whole.run().hosted(stage, 0);
    EXPECT_EQ(hosted.lossScale.scale, huge / 2);
    EXPECT_EQ(hosted.skipped, 1);
    EXPECT_EQ(hosted.versions.newest(), 4) << "a skipped update counts";
  }
}

TEST(LossScale, HalvesUntilTheGradientsOfAllStagesAreFinite) {
  linear::FarData far;
  ComparisonCase c{.replicas = {1, 1}, .warmup = {1, 0}, .training = trainingWith(1, 100)};
  c.training.clipNorm = 0.2; // keeps the first finite update from blowing up the weights
  c.training.clipScope = ClipScope::stage;
  Comparison comparison(c, far);
  comparison.run().readWeights = linear::overflowing;
  comparison.train(90);
  if (HasFatalFailure()) return;
  const HostedStage &first = comparison.run().hosted(0, 0), &second = comparison.run().hosted(1, 0);
  EXPECT_GT(first.skipped, 2);
  EXPECT_LT(first.skipped, 15);
  EXPECT_EQ(first.skipped, second.skipped);
  EXPECT_EQ(second.lossScale.scale, std::ldexp(1, -static_cast<int>(second.skipped)));
  EXPECT_TRUE(comparison.agrees(c.training));
  EXPECT_FALSE(comparison.agrees(c.training, {.skipEachStage = true}));
}

// PyTorch's GradScaler does not call the optimizer for a step that it skips.
TEST(LossScale, AdamDoesNotCountSkippedUpdates) {
  SpikeData spike(2);
  ComparisonCase c{.replicas = {1, 1}, .warmup = {1, 0}, .training = trainingWith(huge, 100)};
  c.training.optimizer = OptimizerKind::adam;
  Comparison skipping(c, spike), later(c, spike);
  skipping.train(12);
  ASSERT_TRUE(later.run().run([](Executor& executor, int) { return executor.train(6, 6); }));
  if (HasFatalFailure()) return;
  EXPECT_EQ(skipping.run().hosted(0, 0).skipped, 1);
  EXPECT_EQ(bitsOf(skipping.run()), bitsOf(later.run()));
}

TEST(LossScale, IsDividedOutBeforeClipping) {
  ComparisonCase c{.replicas = {1, 1}, .warmup = {1, 0}, .training = trainingWith(1024, 3)};
  c.training.clipNorm = 0.2;
  Comparison comparison(c);
  comparison.train(24);
  if (HasFatalFailure()) return;
  Training unscaled = trainingWith(1, 0);
  unscaled.clipNorm = 0.2;
  EXPECT_TRUE(comparison.agrees(unscaled));
}

std::string refusalOf(const ComparisonCase& c) {
  Comparison comparison(c);
  EXPECT_FALSE(comparison.run().run([](Executor& executor, int) { return executor.train(0, 12); }));
  return comparison.run().statuses[0].message();
}

TEST(LossScale, NeedsASchedule) {
  const Training dynamic = trainingWith(1024, 2);
  EXPECT_EQ(refusalOf({.kind = "2bw", .replicas = {1, 1}, .warmup = {1, 0}, .training = dynamic}),
            "a dynamic loss scale needs a schedule that flushes, '2bw' does not");
  EXPECT_EQ(refusalOf({.kind = "1f1b",
                       .replicas = {1, 1},
                       .warmup = {1, 0},
                       .microbatches = 0,
                       .training = dynamic,
                       .gradientNorm = false}),
            "a dynamic loss scale needs a schedule that flushes, '1f1b' does not");
  EXPECT_EQ(refusalOf({.replicas = {1, 1}, .warmup = {1, 0}, .training = dynamic, .gradientNorm = false}),
            "a dynamic loss scale needs a schedule that tells all stages of gradients that are not finite, "
            "schedule.txt has no line 'gradient-norm'");
}

TEST(LossScale, NeedsAProgramThatTakesIt) {
  const ComparisonCase c{.replicas = {1}, .warmup = {0}, .training = trainingWith(1024, 2)};
  Comparison comparison(c);
  Stage fixed = *comparison.run().stages[0];
  fixed.data = fixed.data.first(2); // without the scale
  comparison.run().stages[0] = &fixed;
  EXPECT_FALSE(comparison.run().run([](Executor& executor, int) { return executor.train(0, 12); }));
  EXPECT_EQ(comparison.run().statuses[0].message(),
            "stage 0 was generated for a fixed loss scale, training.json has a dynamic one");
}

Training without(NonFinite what) {
  Training training = trainingWith(1, 0);
  training.nonFinite = what;
  return training;
}

TEST(NonFiniteGradients, SkipAllStagesWhereTheyUpdateTogetherElseOne) {
  linear::FarData far;
  for (bool flush : {true, false}) {
    const ComparisonCase c{.kind = flush ? "1f1b-flush" : "1f1b",
                           .replicas = {1, 1},
                           .warmup = {1, 0},
                           .microbatches = flush ? 6 : 0,
                           .training = without(NonFinite::skip),
                           .gradientNorm = flush};
    Comparison comparison(c, far);
    comparison.run().readWeights = linear::overflowing;
    comparison.train(flush ? 6 : 2);
    if (HasFatalFailure()) return;
    EXPECT_TRUE(comparison.agrees(c.training)) << c.kind;
    EXPECT_GT(comparison.run().hosted(0, 0).skipped, 0);
    EXPECT_EQ(comparison.run().hosted(1, 0).skipped > 0, flush);
  }
}

TEST(NonFiniteGradients, AreTakenUnlessSomebodyAsks) {
  linear::FarData far;
  Comparison comparison({.replicas = {1, 1}, .warmup = {1, 0}, .training = without(NonFinite::take)}, far);
  comparison.run().readWeights = linear::overflowing;
  comparison.train(6);
  if (HasFatalFailure()) return;
  EXPECT_FALSE(std::isfinite(reinterpret_cast<const float*>(comparison.run().weights(0, 0) + linear::weightAt)[0]));
}

TEST(NonFiniteGradients, StopTheRun) {
  linear::FarData far;
  for (bool clips : {false, true}) {
    ComparisonCase c{.replicas = {1, 1}, .warmup = {1, 0}, .training = without(NonFinite::stop)};
    if (clips) c.training.clipNorm = 1;
    Comparison comparison(c, far);
    comparison.run().readWeights = linear::overflowing;
    EXPECT_FALSE(comparison.run().run([](Executor& executor, int) { return executor.train(0, 6); }));
    EXPECT_EQ(comparison.run().statuses[0].code(), Exit::lossNotFinite);
    EXPECT_EQ(comparison.run().statuses[0].message(), "the gradients of update 1 of stage 0 are not finite");
  }
}

} // namespace
