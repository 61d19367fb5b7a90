// LINK: pdcrt pdcSchedule
// Schedules whose replicas do not take turns, through the check and the executor: the bits of the replay (Replay.h).
#include "ReplayComparison.h"

using namespace pdcrt;

namespace {

using Routes = std::vector<std::vector<int>>;

Training momentum() {
  Training training;
  training.optimizer = OptimizerKind::momentum;
  training.learningRate = 0.3;
  training.momentum = 0.9;
  return training;
}

std::vector<ComparisonCase> cases() {
  std::vector<ComparisonCase> all;
  for (const char* kind : {"1f1b-flush", "2bw"})
    for (bool tied : {false, true}) {
      auto add = [&](std::vector<int> replicas, std::vector<int> warmup, Routes routes) {
        all.push_back({.kind = kind,
                       .replicas = std::move(replicas),
                       .warmup = std::move(warmup),
                       .training = momentum(),
                       .gradientNorm = false,
                       .tied = tied,
                       .routes = std::move(routes)});
      };
      add({2, 1}, {1, 0}, {{0, 0, 1}, {}});
      add({2, 1}, {1, 0}, {{0, 0, 1, 1}, {}});
      add({2, 2}, {1, 0}, {{0, 1}, {1, 0}});
      add({1, 2}, {2, 0}, {{}, {0, 1, 1}});
    }
  return all;
}

std::string textOf(const ComparisonCase& c) {
  return std::string(c.kind) + " " + testing::PrintToString(c.routes) + (c.tied ? " tied" : "");
}

} // namespace

TEST(Routing, TrainsTheBitsOfTheReplayAndOfNoOther) {
  for (const ComparisonCase& c : cases()) {
    SCOPED_TRACE(textOf(c));
    Comparison comparison(c);
    ASSERT_NO_FATAL_FAILURE(comparison.train(20)); // the last update averages fewer
    EXPECT_TRUE(comparison.agrees(c.training));
  }
}

/// The order in which gradients are added depends on the route: a replay in which replicas take turns differs.
TEST(Routing, TheReplayOfAnotherRouteHasOtherBits) {
  const ComparisonCase c = cases()[0];
  Comparison comparison(c);
  ASSERT_NO_FATAL_FAILURE(comparison.train(20));
  const Routes turns(2);
  EXPECT_FALSE(comparison.agrees(c.training, {}, &turns));
}
