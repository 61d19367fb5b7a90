// A run of the stages of LinearStages.h as threads beside its replay: the same bits, or not.
#pragma once

#include "LinearStages.h"
#include "Replay.h"
#include "ThreadRun.h"

#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/Verify.h"

#include <gtest/gtest.h>

/// What to run: the stages of LinearStages.h under a schedule.
struct ComparisonCase {
  const char* kind = "1f1b-flush";
  std::vector<int> replicas;
  std::vector<int> warmup;
  std::int64_t microbatches = 6; ///< 0: updates of each stage by itself
  pdcrt::Training training;
  bool gradientNorm = true;
  bool tied = false;
  std::vector<std::vector<int>> routes = {}; ///< by stage, as in Replay.h
  bool sharded = false;                      ///< replicas divide the updates,
  pdcrt::Sharding sharding = sharded ? pdcrt::Sharding::optimizer : pdcrt::Sharding::none; ///< or this
  int shardDegree = 0;                                                                     ///< as ScheduleStage's
};

inline pdcrt::Schedule scheduleOf(const ComparisonCase& c) {
  std::vector<pdc::StageShape> stages;
  for (std::size_t s = 0; s < c.replicas.size(); ++s)
    stages.push_back({.replicas = c.replicas[s],
                      .warmup = c.warmup[s],
                      .route = c.routes.empty() ? pdcrt::Route() : pdcrt::Route(c.routes[s]),
                      .sharding = c.sharding,
                      .shardDegree = c.shardDegree});
  pdc::PipelineShape shape = pdc::straightShape(stages);
  shape.kind = c.kind;
  shape.microbatches = c.microbatches;
  shape.gradientNorm = c.gradientNorm;
  for (std::size_t s = 1; c.tied && s < c.replicas.size(); ++s) shape.shared.push_back({0, static_cast<int>(s)});
  return pdc::buildSchedule(shape);
}

inline linear::NoiseData noise;

/// Momentum, with a norm that is clipped in most updates.
inline pdcrt::Training clipping(pdcrt::ClipScope scope) {
  pdcrt::Training training;
  training.optimizer = pdcrt::OptimizerKind::momentum;
  training.learningRate = 0.3;
  training.momentum = 0.9;
  training.clipNorm = 0.2;
  training.clipScope = scope;
  return training;
}

/// A run of `minibatches` and a replay of it: whether all weights agree bit for bit.
class Comparison {
public:
  explicit Comparison(const ComparisonCase& c, pdcrt::BatchSource& data = noise) : c_(c), schedule_(scheduleOf(c)) {
    run_.schedule = &schedule_;
    run_.stages = linear::linearStages(static_cast<int>(c.replicas.size()), c.tied);
    run_.training = c.training;
    run_.data = &data;
    run_.readWeights = linear::readInitial;
  }
  pdcrt::Executor::ReadTensor& weights() { return run_.readWeights; }

  void train(std::int64_t minibatches) {
    minibatches_ = minibatches;
    ASSERT_TRUE(pdcrt::check(schedule_, minibatches).passed) << pdcrt::check(schedule_, minibatches).problem;
    ASSERT_TRUE(pdcrt::checkEveryDrain(schedule_).passed);
    ASSERT_TRUE(run_.run([&](pdcrt::Executor& executor, int) { return executor.train(0, minibatches); }))
        << run_.statuses[0].message() << run_.statuses.back().message();
  }
  /// With the newest weights of a replay.
  bool agrees(const pdcrt::Training& training, ReplayMistake mistake = {},
              const std::vector<std::vector<int>>* mistakenRoutes = nullptr) {
    Replay replay({.stages = run_.stages,
                   .replicas = c_.replicas,
                   .warmup = c_.warmup,
                   .syncDelay = std::vector<int>(c_.replicas.size(), 0),
                   .weights = schedule_.weights,
                   .microbatches = c_.microbatches,
                   .training = training,
                   .data = run_.data,
                   .readWeights = run_.readWeights,
                   .routes = mistakenRoutes ? *mistakenRoutes : c_.routes},
                  mistake);
    replay.run(minibatches_);
    for (std::size_t s = 0; s < c_.replicas.size(); ++s)
      for (int r = 0; r < c_.replicas[s]; ++r)
        for (const pdcrt::ParameterRow& row : run_.stages[s]->parameters)
          if (std::memcmp(run_.weights(static_cast<int>(s), r) + row.offset, replay.weights(s).data() + row.offset,
                          static_cast<std::size_t>(row.shape.elements()) * sizeof(float)) != 0)
            return false;
    return true;
  }
  const ThreadRun& run() const { return run_; }
  ThreadRun& run() { return run_; }

private:
  ComparisonCase c_;
  pdcrt::Schedule schedule_;
  ThreadRun run_;
  std::int64_t minibatches_ = 0;
};
