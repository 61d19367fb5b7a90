// LINK: pdcrt
// Optimizers against their formulas in double, over several steps; uses of a parameter; the arena.
#include "pdcrt/Arena.h"
#include "pdcrt/Optimizer.h"

#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <random>

using namespace pdcrt;

namespace {

// Three parameters: one with two uses, one frozen, one with scales of its own.
constexpr ParameterRow parameters[] = {{"a", Element::f32, {3}, 0, 0, true, 1, 1},
                                       {"frozen", Element::f32, {2}, 64, 0, false, 1, 1},
                                       {"b", Element::f32, {2, 2}, 128, 0, true, 0.5, 2}};
constexpr GradientRow gradients[] = {{2, 0}, {0, 64}, {2, 128}};
const Stage stage = {.index = 0,
                     .count = 1,
                     .bytes = {.weights = 192, .gradients = 192},
                     .parameters = parameters,
                     .gradients = gradients};

float* at(std::vector<float>& block, std::size_t offset) {
  return block.data() + offset / sizeof(float);
}

/// One element of a parameter in double: w, and the optimizer's state.
struct Element64 {
  double w, first = 0, second = 0;
};
using Step = std::function<void(Element64&, double g, double lr, double decay, int t)>;

struct Case {
  const char* name;
  Training training;
  Step step;
};

std::vector<Case> cases() {
  Training sgd, momentum, nesterov, adam;
  sgd.weightDecay = momentum.weightDecay = adam.weightDecay = 0.1;
  momentum.optimizer = nesterov.optimizer = OptimizerKind::momentum;
  momentum.momentum = nesterov.momentum = 0.9;
  nesterov.nesterov = true;
  adam.optimizer = OptimizerKind::adam;
  adam.epsilon = 1e-3;
  Training adamw = adam;
  adamw.optimizer = OptimizerKind::adamw;
  auto moments = [](Element64& e, double g, double lr, int t) {
    e.first = 0.9 * e.first + 0.1 * g;
    e.second = 0.999 * e.second + 0.001 * g * g;
    const double m = e.first / (1 - std::pow(0.9, t)), v = e.second / (1 - std::pow(0.999, t));
    e.w -= lr * m / (std::sqrt(v) + 1e-3);
  };
  return {
      {"sgd", sgd, [](Element64& e, double g, double lr, double decay, int) { e.w -= lr * (g + decay * e.w); }},
      {"momentum", momentum,
       [](Element64& e, double g, double lr, double decay, int) {
         e.first = 0.9 * e.first + g + decay * e.w;
         e.w -= lr * e.first;
       }},
      {"nesterov", nesterov,
       [](Element64& e, double g, double lr, double decay, int) {
         g += decay * e.w;
         e.first = 0.9 * e.first + g;
         e.w -= lr * (g + 0.9 * e.first);
       }},
      {"adam", adam,
       [=](Element64& e, double g, double lr, double decay, int t) { moments(e, g + decay * e.w, lr, t); }},
      {"adamw", adamw,
       [=](Element64& e, double g, double lr, double decay, int t) {
         e.w -= lr * decay * e.w;
         moments(e, g, lr, t);
       }},
  };
}

class Optimizers : public testing::TestWithParam<Case> {};

TEST_P(Optimizers, FollowTheirFormulas) {
  const Case& c = GetParam();
  const Optimizer optimizer(c.training, stage);
  Stream stream;
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> old(48), fresh(48), sums(48), state(96);
  for (float& w : old) w = uniform(random);
  fresh = old; // frozen parameters are in every version
  std::vector<std::vector<Element64>> expected;
  for (const ParameterRow& row : parameters) {
    expected.emplace_back();
    for (std::int64_t i = 0; i < row.shape.elements(); ++i) expected.back().push_back({.w = at(old, row.offset)[i]});
  }
  for (int t = 1; t <= 20; ++t) {
    for (float& g : sums) g = uniform(random);
    for (std::size_t p : {0u, 2u})
      for (std::size_t i = 0; i < expected[p].size(); ++i) {
        double g = p == 0 ? at(sums, 64)[i] : static_cast<double>(at(sums, 0)[i]) + at(sums, 128)[i];
        c.step(expected[p][i], g / 4, 0.2 * parameters[p].learningRateScale,
               c.training.weightDecay * parameters[p].weightDecayScale, t);
      }
    auto bytes = [](std::vector<float>& block) { return reinterpret_cast<std::byte*>(block.data()); };
    optimizer.addUses(stream, bytes(sums));
    optimizer.update(stream, {bytes(old), bytes(fresh), bytes(sums), bytes(state)},
                     {.learningRate = 0.2, .minibatches = 4, .count = t});
    std::swap(old, fresh);
  }
  for (std::size_t p = 0; p < expected.size(); ++p)
    for (std::size_t i = 0; i < expected[p].size(); ++i)
      EXPECT_NEAR(at(old, parameters[p].offset)[i], expected[p][i].w, 2e-6) << parameters[p].name << " " << i;
}

// A vocabulary of 7 rows over 2 members: the last row of member 1 is none.
TEST_P(Optimizers, KeepThePaddingOfPartsZero) {
  constexpr ParameterRow table[] = {{.name = "table",
                                     .element = Element::f32,
                                     .shape = {4, 2},
                                     .offset = 0,
                                     .trained = true,
                                     .part = {.axis = 0, .blocks = 1, .of = 2, .wholeSize = 7}}};
  constexpr GradientRow use[] = {{0, 0}};
  const Stage part = {
      .index = 0, .count = 1, .bytes = {.weights = 64, .gradients = 64}, .parameters = table, .gradients = use};
  Training training = GetParam().training;
  training.groups = {{"@vectors", {}, 0.0}, {"table", 0.3, 0.5}}; // a part has the rank of the whole
  const Optimizer optimizer(training, part);
  Stream stream;
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> old(16), fresh(16), sums(16), state(32);
  auto bytes = [](std::vector<float>& block) { return reinterpret_cast<std::byte*>(block.data()); };
  for (std::size_t i = 0; i < 6; ++i) old[i] = uniform(random);
  for (int t = 1; t <= 50; ++t) {
    for (std::size_t i = 0; i < 6; ++i) sums[i] = uniform(random);
    optimizer.update(stream, {bytes(old), bytes(fresh), bytes(sums), bytes(state)},
                     {.learningRate = 0.2, .minibatches = 4, .count = t, .gradientScale = 0.7});
    std::swap(old, fresh);
  }
  for (std::size_t i : {6u, 7u}) {
    EXPECT_EQ(old[i], 0.0f);
    EXPECT_EQ(state[i], 0.0f);
    EXPECT_EQ(state[16 + i], 0.0f);
    EXPECT_NE(old[i - 2], 0.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Optimizers, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

TEST(Optimizer, GroupsHaveRatesAndDecaysOfTheirOwn) {
  Training training = cases()[0].training; // sgd, decay 0.1
  training.groups = {{"^a$", 3.0, {}}, {"[ab]", {}, 0.0}, {"@vectors", {}, 0.5}, {"none of them", 9.0, 9.0}};
  const Optimizer optimizer(training, stage);
  Stream stream;
  std::vector<float> old(48, 1), fresh(48, 1), sums(48, 0), state(96);
  auto bytes = [](std::vector<float>& block) { return reinterpret_cast<std::byte*>(block.data()); };
  *at(sums, 64) = 4; // of a: a mean gradient of 2, clipped to 1
  optimizer.update(stream, {bytes(old), bytes(fresh), bytes(sums), bytes(state)},
                   {.learningRate = 0.125, .rateFactor = 0.25, .minibatches = 2, .count = 1, .gradientScale = 0.5});
  EXPECT_EQ(*at(fresh, 0), 1 - 0.75f * (1 + 0.5f)); // a: its own rate, the decay of vectors
  EXPECT_EQ(*at(fresh, 64), 1);                     // frozen
  EXPECT_EQ(*at(fresh, 128), 1);                    // b is a matrix: no decay, and it has no gradient
}

TEST(Training, GroupsAndOptionsSurviveTheirText) {
  Training training, read;
  training.groups = {{"^a\\.", 3.0, {}}, {"@vectors", {}, 0.0}};
  training.classWeights = {1, 0.25};
  training.labelSmoothing = 0.1;
  training.clipNorm = HUGE_VAL;
  training.clipScope = ClipScope::stage;
  ASSERT_TRUE(parseTraining(toJson(training), "training.json", read));
  EXPECT_EQ(toJson(read), toJson(training));
  ASSERT_EQ(read.groups.size(), 2u);
  EXPECT_FALSE(read.groups[0].weightDecay);
  EXPECT_TRUE(matches(read.groups[0], "layer.a.weight", 2) == false && matches(read.groups[0], "a.weight", 2));
  EXPECT_TRUE(matches(read.groups[1], "any", 1) && !matches(read.groups[1], "any", 2));
}

TEST(Training, WrongGroupsAreNamed) {
  auto problem = [](const std::string& groups) {
    Training training;
    return parseTraining("{\"parameter_groups\": " + groups + "}", "training.json", training).message();
  };
  EXPECT_EQ(problem("3"), "training.json: /parameter_groups is 3, expected a list");
  EXPECT_EQ(problem(R"([{"match": "("}])"),
            R"(training.json: /parameter_groups/0/match is "(", expected a regular expression or "@vectors")");
  EXPECT_EQ(problem(R"([{"match": "a", "rate": 1}])"),
            "training.json: /parameter_groups/0/rate is 1, expected no such key");
  EXPECT_EQ(problem(R"([{"match": "a", "lr": -1}])"),
            "training.json: /parameter_groups/0/lr is -1, expected a number of at least 0.0");
}

TEST(Optimizer, CountsTrainedBytes) {
  EXPECT_EQ(Optimizer(Training(), stage).trainedBytes(), 7 * sizeof(float));
}

TEST(Optimizer, KeepsPiecesLikeTheWeightsOneAfterTheOther) {
  const ParameterRow row = {"w", Element::f32, {4}, 32, 0, true, 1, 1};
  auto names = [&](std::size_t i) { return OptimizerLayout(cases()[i].training, 100).pieces(row); };
  EXPECT_EQ(names(0), (std::vector<std::string>{}));
  EXPECT_EQ(names(1), (std::vector<std::string>{"velocity"}));
  EXPECT_EQ(names(4), (std::vector<std::string>{"first_moment", "second_moment"}));
  const OptimizerLayout adam(cases()[4].training, 100);
  EXPECT_EQ(adam.bytes(), 2u * 128) << "each piece begins at a multiple of 64";
  EXPECT_EQ(adam.offsetOf(0, row), 32u);
  EXPECT_EQ(adam.offsetOf(1, row), 128u + 32);
  EXPECT_TRUE(updateOf(cases()[4].training, row).mayBeEarly());
}

// ---- Arena ----

TEST(Arena, AddsUpTheFormulaOfOneRank) {
  // Stage 1 of 3, two replicas: w = 2, d = 1, adam; see pdcrt/Arena.h.
  Schedule schedule;
  schedule.stages = {{.replicas = 1}, {.replicas = 2, .warmup = 2, .syncDelay = 1, .slots = 3, .versions = 3}, {}};
  schedule.edges = {{.from = 0, .to = 1}, {.from = 1, .to = 2}};
  schedule.rings = {{.forwardSend = 4, .forwardReceive = 4, .backwardSend = 2, .backwardReceive = 2},
                    {.forwardSend = 3, .forwardReceive = 2, .backwardSend = 2, .backwardReceive = 5}};
  const EdgeRow edges[] = {{Direction::forward, 0, 1, 100},
                           {Direction::forward, 1, 2, 0},
                           {Direction::backward, 1, 0, 100},
                           {Direction::backward, 2, 1, 200}};
  const ArenaStage stages[] = {
      {.stage = 1,
       .bytes = {.weights = 1000, .state = 10, .gradients = 2000, .slot = 300, .scratch = 70, .workspace = 64},
       .edges = edges,
       .trainedBytes = 4 * 9,
       .optimizerBytes = 2 * 1024}};
  const Arena arena = layoutArena(schedule, stages);
  EXPECT_EQ(arena.bytes, 3u * 1024 + 64 + 2 * 1024 + 2 * 2048 + 3 * 320 // weights, state, adam, gradients, slots
                             + 4 * 128 + 0 + 2 * 128 + 5 * 256          // edges
                             + 1 * 64     // staging: ceil(9 / 2) floats of one other replica
                             + 128 + 64); // scratch, workspace
  const ArenaHost& host = arena.hosts[0];
  EXPECT_EQ(host.weights, 0u);
  EXPECT_EQ(host.state, 3u * 1024);
  EXPECT_EQ(host.edges[3] - host.edges[2], 2u * 128);
  EXPECT_EQ(arena.workspace, arena.bytes - 64);

  ArenaStage adapted = stages[0]; // what never changes is there once, and the optimizer knows nothing of it
  adapted.bytes.frozen = 5000;
  const Arena withFrozen = layoutArena(schedule, {&adapted, 1});
  EXPECT_EQ(withFrozen.bytes, arena.bytes + 5056);
  EXPECT_EQ(withFrozen.hosts[0].frozen, 3u * 1024);
  EXPECT_EQ(withFrozen.hosts[0].state, 3u * 1024 + 5056);

  ArenaStage onGpu = stages[0];
  onGpu.bytes.dataStaging = 130;
  const Arena withStaging = layoutArena(schedule, {&onGpu, 1});
  EXPECT_EQ(withStaging.bytes, arena.bytes + 192);
  EXPECT_EQ(withStaging.hosts[0].dataStaging, host.staging + 64);
  EXPECT_EQ(withStaging.scratch, arena.scratch + 192);

  schedule.minibatchesPerUpdate = 4; // two minibatches of a replica per update: one set to spare
  EXPECT_EQ(layoutArena(schedule, stages).bytes, arena.bytes + 2048);
  schedule.minibatchesPerUpdate = 2;
  EXPECT_EQ(layoutArena(schedule, stages).bytes, arena.bytes);
}

} // namespace
