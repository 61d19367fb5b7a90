// Random small plans that can be run for real: a schedule, a number of minibatches, and a model of timed stages.
#pragma once

#include "RandomPipeline.h"
#include "Replay.h"
#include "TimedStages.h"

#include <sstream>
#include <string>

struct RandomRun {
  pdc::PipelineShape shape;
  pdcrt::Schedule schedule;
  timed::Model model;
  pdcrt::Training training;
  std::int64_t minibatches = 1;

  /// The same run for the same seed, on at most so many ranks. Tensors are as large as 64 KiB, parameters now and then.
  RandomRun(unsigned seed, int mostRanks) {
    std::mt19937 random(seed);
    auto between = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
    do {
      shape = pdc::RandomPipeline(random).shape();
      shape.shared.clear();
      schedule = pdc::buildSchedule(shape);
    } while (static_cast<int>(schedule.ranks.size()) > mostRanks);

    model.stages.resize(shape.stages.size());
    model.edges = shape.edges;
    model.values = 16384;
    model.parameters = between(0, 3) == 0 ? model.values : 64;
    training.optimizer = pdcrt::OptimizerKind::momentum;
    training.learningRate = 0.3;
    training.momentum = 0.9;
    training.weightDecay = 0.01;
    minibatches = between(1, 40);
  }

  std::string description() const {
    std::ostringstream text;
    text << schedule.kind
         << (shape.weights == pdcrt::WeightPolicy::verticalSync ? ", vertical-sync"
             : shape.weights == pdcrt::WeightPolicy::latest     ? ", latest"
                                                                : "")
         << ", replicas";
    for (const pdc::StageShape& stage : shape.stages) text << " " << stage.replicas;
    text << ", warm-up";
    for (const pdc::StageShape& stage : shape.stages) text << " " << stage.warmup;
    text << ", " << shape.microbatches << " microbatches, " << shape.edges.size() << " edges, " << minibatches
         << " minibatches";
    return text.str();
  }

  Replay replay(const timed::Stages& stages, pdcrt::BatchSource& data, ReplayMistake mistake = {}) const {
    ReplaySetup setup = {.stages = stages.all(),
                         .replicas = {},
                         .warmup = {},
                         .syncDelay = {},
                         .weights = schedule.weights,
                         .microbatches = shape.microbatches,
                         .training = training,
                         .data = &data,
                         .readWeights = timed::readInitial};
    for (const pdc::StageShape& stage : shape.stages) {
      setup.replicas.push_back(stage.replicas);
      setup.warmup.push_back(stage.warmup);
      setup.syncDelay.push_back(stage.syncDelay);
    }
    return Replay(std::move(setup), mistake);
  }
};
