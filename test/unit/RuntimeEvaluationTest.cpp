// LINK: pdcrt
// Metrics of an evaluation, training.json, and the learning rate by step.
#include "data/Evaluation.h"
#include "data/Loads.h"
#include "pdcrt/Part.h"
#include "pdcrt/Training.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <span>
#include <vector>

using namespace pdcrt;

namespace {

TEST(TrainingFile, HasAxesOfTheBatch) {
  Training training;
  training.batchAxes = {{"mask", noBatchAxis}, {"state", 1}};
  Training read;
  ASSERT_TRUE(parseTraining(toJson(training), "t.json", read));
  EXPECT_EQ(read.batchAxes, training.batchAxes);
  EXPECT_EQ(read.batchAxisOf("x"), 0);
  for (const char* wrong : {"[1]", "{\"x\": -1}", "{\"x\": 1.5}", "{\"x\": 8}", "{\"x\": \"none\"}"})
    EXPECT_EQ(parseTraining("{\"batch_axes\": " + std::string(wrong) + "}", "t.json", read).code(), Exit::invalid)
        << wrong;
}

TEST(TrainingFile, NamesWhatRunsReport) {
  Training training, read;
  training.terms = {"balance_loss", "z \"loss\""};
  training.loads = {"blocks.0.experts"};
  ASSERT_TRUE(parseTraining(toJson(training), "t.json", read));
  EXPECT_EQ(read.terms, training.terms);
  EXPECT_EQ(read.loads, training.loads);
  EXPECT_EQ(toJson(Training()).find("terms"), std::string::npos) << "older programs know no such key";
  for (const char* wrong : {"{\"terms\": \"x\"}", "{\"loads\": [1]}"})
    EXPECT_EQ(parseTraining(wrong, "t.json", read).code(), Exit::invalid) << wrong;
}

// ---- Evaluation ----

TEST(Evaluation, LeavesOutSamplesThatFillUpAlongTheirAxis) {
  constexpr OutputRow prediction = {OutputKind::prediction, "y", Element::f32, {2, 3, 2}, 0};
  constexpr DataRow label = {"label", Element::i64, {2, 3}, 64, true, 2};
  alignas(64) std::byte slot[128] = {};
  const float scores[] = {1, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1};
  const std::int64_t labels[] = {0, 0, 0, 1, 0, 0}; // right for both steps of sample 0, and step 0 of sample 1
  std::memcpy(slot, scores, sizeof scores);
  std::memcpy(slot + 64, labels, sizeof labels);
  Training training;
  training.batchAxes = {{"label", 1}};
  EvaluationSums sums;
  addMinibatch(sums, training, prediction, label, slot, 2);
  EXPECT_EQ(sums.samples, 4);
  EXPECT_EQ(sums.correct, 3);
  sums = {};
  addMinibatch(sums, training, prediction, label, slot, 1);
  EXPECT_EQ(sums.samples, 2);
  EXPECT_EQ(sums.correct, 2);
}

TEST(Evaluation, CountsClassesAndTheLossOfSoftmax) {
  constexpr OutputRow prediction = {OutputKind::prediction, "y", Element::f32, {3, 4}, 0};
  constexpr DataRow label = {"label", Element::i64, {3}, 64, true, 4};
  alignas(64) std::byte slot[128] = {};
  const float scores[] = {1, 2, 0, -1, 5, 5, 0, 0, 9, 9, 9, 9};
  const std::int64_t labels[] = {1, 1, 0};
  std::memcpy(slot, scores, sizeof scores);
  std::memcpy(slot + 64, labels, sizeof labels);
  Training training;
  EvaluationSums sums;
  addMinibatch(sums, training, prediction, label, slot, 2); // the third sample only fills up
  EXPECT_EQ(sums.samples, 2);
  EXPECT_EQ(sums.correct, 1); // of two equal scores the first one counts
  const double first = std::log(std::exp(1.0) + std::exp(2.0) + 1 + std::exp(-1.0)) - 2;
  const double second = std::log(2 * std::exp(5.0) + 2) - 5;
  EXPECT_NEAR(lossOf(sums), (first + second) / 2, 1e-12);
  EXPECT_EQ(metricOf(sums, training), 0.5);
  training.metric = "top5";
  EXPECT_EQ(metricOf(sums, training), 1);
}

TEST(Evaluation, TakesClassesFromAxis1OfImages) {
  constexpr OutputRow prediction = {OutputKind::prediction, "y", Element::f32, {1, 2, 1, 3}, 0};
  constexpr DataRow label = {"label", Element::i32, {1, 1, 3}, 64, true, 2};
  alignas(64) std::byte slot[128] = {};
  const float scores[] = {1, 0, 0, 0, 1, 1}; // class 0 at the first place, class 1 at the others
  const std::int32_t labels[] = {0, 1, 0};
  std::memcpy(slot, scores, sizeof scores);
  std::memcpy(slot + 64, labels, sizeof labels);
  Training training;
  EvaluationSums sums;
  addMinibatch(sums, training, prediction, label, slot, 1);
  EXPECT_EQ(sums.samples, 3);
  EXPECT_EQ(sums.correct, 2);
  training.ignoreIndex = 1;
  sums = {};
  addMinibatch(sums, training, prediction, label, slot, 1);
  EXPECT_EQ(sums.samples, 2);
}

TEST(Evaluation, CountsAllPositionsOfASampleWhereTheModelMadeThemOneAxis) {
  constexpr OutputRow prediction = {OutputKind::prediction, "y", Element::f32, {6, 2}, 0};
  constexpr DataRow label = {"label", Element::i64, {2, 3}, 64, true, 2};
  alignas(64) std::byte slot[128] = {};
  const float scores[] = {1, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1};
  const std::int64_t labels[] = {0, 1, 1, 1, 1, 0};
  std::memcpy(slot, scores, sizeof scores);
  std::memcpy(slot + 64, labels, sizeof labels);
  Training training;
  EvaluationSums sums;
  addMinibatch(sums, training, prediction, label, slot, 1);
  EXPECT_EQ(sums.samples, 3);
  EXPECT_EQ(sums.correct, 2);
  addMinibatch(sums, training, prediction, label, slot, 2);
  EXPECT_EQ(sums.samples, 9);
  EXPECT_EQ(sums.correct, 6);
  training.metric = "perplexity";
  const double right = std::log1p(std::exp(-1.0)), wrong = std::log1p(std::exp(1.0));
  EXPECT_NEAR(metricOf(sums, training), std::exp((6 * right + 3 * wrong) / 9), 1e-6);
}

TEST(Evaluation, AnOutputOfTheModelCountsInWholeMinibatches) {
  Training training;
  training.metric = "output:score";
  training.batch = 3;
  const OutputRow outputs[] = {{OutputKind::loss, "score", Element::f32, {}, 8},
                               {OutputKind::prediction, "other", Element::f32, {}, 8},
                               {OutputKind::prediction, "score", Element::f32, {}, 4}};
  const Stage scored = {.index = 0, .count = 1, .outputs = outputs};
  EvaluationSums sums;
  const auto evaluate = [&](float score, std::int64_t valid) {
    const float slot[] = {-1, score, -2};
    addStage(sums, training, scored, reinterpret_cast<const std::byte*>(slot), valid);
  };
  EXPECT_EQ(checkSums(sums, training).code(), Exit::badData);
  evaluate(0.5, 3);
  evaluate(0.75, 3);
  evaluate(9, 2);
  EXPECT_TRUE(checkSums(sums, training));
  EXPECT_EQ(metricOf(sums, training), 0.625);
  EXPECT_EQ(sums.lossWeight, 0) << "there is no test loss";
}

TEST(Evaluation, AddsUpLoadsOfLayersInWholeMinibatches) {
  Training training;
  training.batch = 2;
  training.loads = {"none", "large", "small"};
  constexpr int experts = 40; // more than one message has room for
  const OutputRow outputs[] = {{OutputKind::load, "small", Element::f32, {3}, 0},
                               {OutputKind::load, "large", Element::f32, {experts + 1}, 16},
                               {OutputKind::load, "unknown", Element::f32, {3}, 0},
                               {OutputKind::prediction, "none", Element::f32, {3}, 0}};
  const Stage stage = {.index = 0, .count = 1, .outputs = outputs};
  std::vector<float> slot = {3, 1, 5, 0};
  for (int e = 0; e < experts; ++e) slot.push_back(e == 7 ? 11.0f : 1.0f);
  slot.push_back(experts + 10);
  Loads here, there, all;
  const auto* bytes = reinterpret_cast<const std::byte*>(slot.data());
  here.add(training, stage, bytes, 2);
  here.add(training, stage, bytes, 1); // half of a minibatch
  slot[0] = 0, slot[1] = 4;
  there.add(training, stage, bytes, 2);
  for (const Loads* part : {&here, &there})
    for (const Message& message : part->messages()) all.add(message);
  std::string large = "{\"dropped\":0.0,\"shares\":[";
  for (int e = 0; e < experts; ++e) large += std::string(e == 0 ? "" : ",") + (e == 7 ? "0.22" : "0.02");
  EXPECT_EQ(all.text(training), "{\"large\":" + large + "],\"fullest\":8.8}," +
                                    "\"small\":{\"dropped\":0.2,\"shares\":[0.375,0.625],"
                                    "\"fullest\":1.25}}");
  EXPECT_EQ(Loads().text(training), "");
}

TEST(Evaluation, MeasuresSquaredErrorAndBinaryCrossEntropy) {
  constexpr OutputRow prediction = {OutputKind::prediction, "y", Element::f32, {1, 2}, 0};
  constexpr DataRow label = {"t", Element::f32, {1, 2}, 64, true, 0};
  alignas(64) std::byte slot[128] = {};
  const float scores[] = {2, -1000}, targets[] = {1, 0};
  std::memcpy(slot, scores, sizeof scores);
  std::memcpy(slot + 64, targets, sizeof targets);
  Training training;
  training.loss = "bce-with-logits";
  EvaluationSums sums;
  addMinibatch(sums, training, prediction, label, slot, 1);
  EXPECT_NEAR(lossOf(sums), std::log1p(std::exp(-2.0)) / 2, 1e-12);
  EXPECT_EQ(metricOf(sums, training), 1);
  training.metric = "mse";
  EXPECT_EQ(metricOf(sums, training), (1 + 1e6) / 2);
}

TEST(Evaluation, TakesProbabilitiesAsTheyAre) {
  constexpr DataRow targets = {"t", Element::f32, {1, 2}, 64, true, 0};
  constexpr OutputRow numbers = {OutputKind::prediction, "y", Element::f32, {1, 2}, 0};
  alignas(64) std::byte slot[128] = {};
  const float probabilities[] = {0.75f, 0}, wanted[] = {1, 1};
  std::memcpy(slot, probabilities, sizeof probabilities);
  std::memcpy(slot + 64, wanted, sizeof wanted);
  Training training;
  training.loss = "bce";
  EvaluationSums sums;
  addMinibatch(sums, training, numbers, targets, slot, 1);
  EXPECT_NEAR(lossOf(sums), (-std::log(0.75) + 100) / 2, 1e-12) << "as PyTorch's binary_cross_entropy";
  EXPECT_EQ(metricOf(sums, training), 0.5);

  constexpr DataRow classes = {"label", Element::i64, {2}, 64, true, 2};
  constexpr OutputRow scores = {OutputKind::prediction, "p", Element::f32, {2, 2}, 0};
  const float ofClasses[] = {0.25f, 0.75f, 0.5f, 0.5f};
  const std::int64_t labels[] = {1, 0};
  std::memcpy(slot, ofClasses, sizeof ofClasses);
  std::memcpy(slot + 64, labels, sizeof labels);
  training.loss = "nll";
  training.classWeights = {2, 1};
  EvaluationSums ofLabels;
  addMinibatch(ofLabels, training, scores, classes, slot, 2);
  EXPECT_NEAR(lossOf(ofLabels), (-std::log(0.75) - 2 * std::log(0.5)) / 3, 1e-12);
  training.metric = "perplexity";
  EXPECT_NEAR(metricOf(ofLabels, training), std::exp((-std::log(0.75) - std::log(0.5)) / 2), 1e-12);
}

/// What the members of a team that divides predictions add up, together.
EvaluationSums ofMembers(const Training& training, const OutputRow& whole, const Part& part, const DataRow& label,
                         const std::vector<float>& values, const std::byte* labels, std::size_t labelBytes,
                         std::int64_t valid) {
  OutputRow row = whole;
  row.shape = localShape(whole.shape, part);
  row.part = part;
  EvaluationSums sums;
  for (int member = 0; member < part.of; ++member) {
    std::vector<std::byte> slot(label.offset + labelBytes);
    std::memcpy(slot.data() + label.offset, labels, labelBytes);
    const auto bytes = static_cast<std::size_t>(row.shape.elements()) * sizeof(float);
    copyPart(whole.shape, sizeof(float), {}, std::as_bytes(std::span(values)), {part, member},
             std::span(slot.data(), bytes));
    addMinibatch(sums, training, row, label, slot.data(), valid, member);
  }
  return sums;
}

TEST(Evaluation, MembersAddUpWhatTheyHaveOfPredictions) {
  std::mt19937 random(5);
  struct Case {
    Shape prediction, label;
    Part part;
  };
  // Positions; positions behind the classes; samples; positions of samples in one axis.
  for (const Case& c : {Case{{3, 8, 5}, {3, 8}, {.axis = 1, .of = 2, .wholeSize = 8}},
                        Case{{3, 5, 2, 8}, {3, 2, 8}, {.axis = 3, .of = 4, .wholeSize = 8}},
                        Case{{4, 6, 5}, {4, 6}, {.axis = 0, .of = 2, .wholeSize = 4}},
                        Case{{24, 5}, {3, 8}, {.axis = 0, .blocks = 3, .of = 2, .wholeSize = 24}}}) {
    const OutputRow prediction = {OutputKind::prediction, "y", Element::f32, c.prediction, 0};
    const DataRow label = {"label", Element::i64, c.label, 4096, true, 5};
    std::vector<float> scores(static_cast<std::size_t>(c.prediction.elements()));
    for (float& score : scores) score = std::uniform_real_distribution<float>(-2, 2)(random);
    std::vector<std::int64_t> labels(static_cast<std::size_t>(c.label.elements()));
    for (std::int64_t& one : labels) one = std::uniform_int_distribution<std::int64_t>(0, 4)(random);
    const std::size_t bytes = labels.size() * sizeof(std::int64_t);
    std::vector<std::byte> slot(4096 + bytes);
    std::memcpy(slot.data(), scores.data(), scores.size() * sizeof(float));
    std::memcpy(slot.data() + 4096, labels.data(), bytes);
    const Training training;
    for (std::int64_t valid : {c.label.dims[0], c.label.dims[0] - 1}) {
      EvaluationSums whole;
      addMinibatch(whole, training, prediction, label, slot.data(), valid);
      const EvaluationSums sums =
          ofMembers(training, prediction, c.part, label, scores, slot.data() + 4096, bytes, valid);
      EXPECT_EQ(sums.samples, whole.samples);
      EXPECT_EQ(sums.correct, whole.correct);
      EXPECT_EQ(sums.correctTop5, whole.correctTop5);
      EXPECT_NEAR(sums.loss, whole.loss, 1e-9);
      EXPECT_NEAR(sums.surprise, whole.surprise, 1e-9);
    }
  }
  // Numbers against numbers.
  const OutputRow prediction = {OutputKind::prediction, "y", Element::f32, {2, 6, 3}, 0};
  const DataRow target = {"target", Element::f32, {2, 6, 3}, 4096, true, 0};
  std::vector<float> numbers(36), targets(36);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<float>(i), targets[i] = static_cast<float>(3 * i % 7);
  std::vector<std::byte> slot(4096 + 36 * sizeof(float));
  std::memcpy(slot.data(), numbers.data(), 36 * sizeof(float));
  std::memcpy(slot.data() + 4096, targets.data(), 36 * sizeof(float));
  Training training;
  training.loss = training.metric = "mse";
  EvaluationSums whole;
  addMinibatch(whole, training, prediction, target, slot.data(), 1);
  const EvaluationSums sums = ofMembers(training, prediction, {.axis = 1, .of = 3, .wholeSize = 6}, target, numbers,
                                        slot.data() + 4096, 36 * sizeof(float), 1);
  EXPECT_EQ(sums.elements, whole.elements);
  EXPECT_NEAR(sums.squaredError, whole.squaredError, 1e-9);
}

TEST(Evaluation, WhatAllMembersHaveCountsOnce) {
  const OutputRow rows[] = {{OutputKind::prediction, "y", Element::f32, {1, 2}, 0}};
  const DataRow labels[] = {{"label", Element::i64, {1}, 64, true, 2}};
  Stage stage{};
  stage.outputs = rows;
  stage.data = labels;
  alignas(64) std::byte slot[128] = {};
  EvaluationSums sums;
  for (int member : {0, 1, 2}) addStage(sums, {}, stage, slot, 1, member);
  EXPECT_EQ(sums.samples, 1);
}

// ---- training.json ----

TEST(TrainingFile, ReadsWhatItWrites) {
  Training training;
  training.optimizer = OptimizerKind::adamw;
  training.learningRate = 0.003;
  training.weightDecay = 0.05;
  training.beta2 = 0.95;
  training.schedule = {.kind = LearningRateSchedule::Kind::cosine, .period = 100, .warmup = 10};
  training.seed = 1234567890123456789;
  training.batch = 32;
  training.ignoreIndex = -100;
  training.metric = "output:a \"name\"";
  training.lossScaleInterval = 7;
  training.nonFinite = NonFinite::stop;
  Training read;
  Status status = parseTraining(toJson(training), "training.json", read);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(toJson(read), toJson(training));
  EXPECT_EQ(read.optimizer, OptimizerKind::adamw);
  EXPECT_EQ(read.ignoreIndex, -100);
  EXPECT_EQ(read.metric, training.metric);
  EXPECT_EQ(read.lossScaleInterval, 7);
  EXPECT_EQ(read.nonFinite, NonFinite::stop);
  EXPECT_EQ(read.schedule.warmup, 10);
}

TEST(TrainingFile, RefusesWhatItDoesNotKnow) {
  const std::pair<const char*, const char*> cases[] = {
      {"[", "is not a JSON object"},
      {R"({"optimiser": "sgd"})", R"(/optimiser is "sgd", expected no such key)"},
      {R"({"optimizer": "sgdm"})", R"(/optimizer is "sgdm", expected one of sgd, momentum, adam, adamw)"},
      {R"({"lr": "high"})", R"(/lr is "high", expected a number of at least 0)"},
      {R"({"batch": 0})", "/batch is 0, expected a whole number of at least 1"},
      {R"({"batch": 1.5})", "/batch is 1.5, expected a whole number"},
      {R"({"betas": [0.9]})", "/betas is [0.9], expected two numbers"},
      {R"({"lr_schedule": {"kind": "linear"}})",
       R"(/lr_schedule/kind is "linear", expected one of constant, step, cosine)"},
  };
  for (const auto& [text, message] : cases) {
    Training training;
    const Status status = parseTraining(text, "training.json", training);
    EXPECT_EQ(status.code(), Exit::invalid);
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  }
}

TEST(LearningRate, FollowsItsFormula) {
  using Kind = LearningRateSchedule::Kind;
  EXPECT_EQ((LearningRateSchedule{}).at(0.1, 1000), 0.1);
  const LearningRateSchedule step = {.kind = Kind::step, .period = 10, .factor = 0.5};
  EXPECT_DOUBLE_EQ(step.at(1, 9), 1);
  EXPECT_DOUBLE_EQ(step.at(1, 25), 0.25);
  const LearningRateSchedule cosine = {.kind = Kind::cosine, .period = 10, .warmup = 4};
  EXPECT_DOUBLE_EQ(cosine.at(1, 0), 0);
  EXPECT_DOUBLE_EQ(cosine.at(1, 5), 0.5);
  EXPECT_NEAR(cosine.at(1, 10), 0, 1e-15);
  EXPECT_NEAR(cosine.at(1, 99), 0, 1e-15);
}

} // namespace
