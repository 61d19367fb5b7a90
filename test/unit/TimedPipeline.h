// Pipelines of timed stages (TimedStages.h) over emulated links: as a plan, as what the simulator expects of it, and as
// a run in threads.
#pragma once

#include "ThreadRun.h"
#include "TimedStages.h"

#include "pdc/Plan/ScheduleDef.h"
#include "pdc/Predict/Simulate.h"
#include "pdc/Predict/Warmup.h"
#include "pdc/Support/Diagnostics.h"
#include "pdcrt/Simulate.h"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

/// A third of each stage's time is its forward, a third each of its gradients. Each pair of replicas of neighbours, and
/// of a stage, has a link of its own in each direction.
struct TimedPipeline {
  std::string name;
  std::vector<int> replicas;
  std::vector<double> computeMs; ///< of a minibatch on one replica, by stage
  double transferMs = 0;         ///< of a minibatch over one link
  double allReduceMs = 0;        ///< of a replicated stage
  std::string schedule = "1f1b";
  std::int64_t microbatches = 1;
  pdc::SyncPolicy sync = pdc::SyncPolicy::overlap;
  std::string warmup = "hide"; ///< or "paper"

  static constexpr std::int64_t values = 4096; ///< floats of a tensor

  /// Bytes per second of every link.
  double bandwidth() const {
    const double ms = transferMs > 0 ? transferMs : 1e-3;
    return values * sizeof(float) / (1e-3 * ms);
  }

  /// The time per minibatch that the stages allow: the largest load of a rank.
  double bottleneckMs() const { return plan().timeMs; }

  /// Floats of a parameter such that the stage's all-reduce takes allReduceMs: each replica gathers, then spreads its
  /// part over links of its own.
  std::int64_t parameters() const {
    const int most = *std::max_element(replicas.begin(), replicas.end());
    if (most < 2 || allReduceMs <= 0) return 64;
    const double bytes = 1e-3 * allReduceMs / 2 * bandwidth() * most;
    std::int64_t floats = 64; // divides the values
    while (floats < values && 2.0 * static_cast<double>(2 * floats) * sizeof(float) <= bytes) floats *= 2;
    return floats;
  }
  double allReduceMsOf(int stage) const {
    const int r = replicas[static_cast<std::size_t>(stage)];
    return r < 2 ? 0 : 1e3 * 2 * (2.0 * static_cast<double>(parameters()) * sizeof(float) / r) / bandwidth();
  }

  pdc::Plan plan() const {
    pdc::Plan plan;
    plan.schedule = schedule;
    plan.sync = sync;
    plan.microbatches = microbatches;
    plan.cluster.levels = {{"link", std::accumulate(replicas.begin(), replicas.end(), 0), bandwidth(), 0}};
    const int count = static_cast<int>(replicas.size());
    for (int s = 0; s < count; ++s) {
      const auto i = static_cast<std::size_t>(s);
      pdc::PlanStage stage;
      stage.nodes = {s};
      stage.replicas = replicas[i];
      stage.forwardMs = stage.inputGradientMs = stage.weightGradientMs = computeMs[i] / 3;
      stage.allReduceMs = allReduceMsOf(s);
      plan.stages.push_back(stage);
      if (s + 1 < count) plan.tensors.push_back({"y", s, s + 1, values * static_cast<int>(sizeof(float)), true});
    }
    for (const pdcrt::RankList& list : pdc::frameOf(pdc::shapeOf(plan)).ranks) {
      const int rank = static_cast<int>(plan.ranks.size());
      plan.ranks.push_back({.rank = rank, .devices = {rank}, .hosts = {}});
      double load = 0;
      for (const pdcrt::Host& host : list.hosts) {
        plan.ranks.back().hosts.push_back({host.stage, host.replica});
        load += computeMs[static_cast<std::size_t>(host.stage)] / replicas[static_cast<std::size_t>(host.stage)];
      }
      plan.timeMs = std::max(plan.timeMs, load);
    }
    for (pdc::PlanStage& stage : plan.stages) stage.syncDelay = pdc::syncDelayFor(plan, stage.replicas);
    if (!pdc::ScheduleKind(schedule)->takesWarmup()) return plan;
    const std::vector<int> warmups = warmup == "paper" ? pdc::paperWarmup(plan) : pdc::hideWarmup(plan);
    for (std::size_t s = 0; s < warmups.size(); ++s) plan.stages[s].warmup = warmups[s];
    return plan;
  }

  /// The links of the emulation: no two transfers share one but those of one edge, direction and pair of replicas.
  pdcrt::Times times(const pdc::Plan& plan) const {
    pdcrt::Times times;
    times.computation = pdc::timesOf(plan).computation;
    times.transfer = [ms = transferMs](const pdcrt::ScheduleEdge&, bool) { return ms; };
    times.allReduce = [stages = plan.stages](pdcrt::ActionKind, int stage) {
      return stages[static_cast<std::size_t>(stage)].allReduceMs;
    };
    return times;
  }

  timed::Model model(const pdc::Plan& plan) const {
    timed::Model model;
    auto microseconds = [](double ms) { return std::chrono::microseconds(std::llround(1e3 * ms)); };
    for (const pdc::PlanStage& stage : plan.stages)
      model.stages.push_back(
          {microseconds(stage.forwardMs), microseconds(stage.inputGradientMs), microseconds(stage.weightGradientMs)});
    for (const pdc::EdgeTraffic& traffic : pdc::trafficOf(plan)) model.edges.push_back(traffic.edge);
    model.values = values;
    model.parameters = parameters();
    return model;
  }

  pdcrt::EmulatedLink link() const { return {.bytesPerSecond = transferMs > 0 || allReduceMs > 0 ? bandwidth() : 0}; }
};

/// When a rank computed its first and ended its last action, and the ends of what stage 0 did backwards.
class RunClock : public pdcrt::RunObserver {
public:
  double begin = std::numeric_limits<double>::infinity(), end = 0; ///< seconds
  std::vector<std::pair<std::int64_t, double>> backwards;          ///< minibatch, end

  void acted(const pdcrt::Action& action, double from, double to) override {
    end = std::max(end, to);
    if (action.wait) return;
    begin = std::min(begin, from);
    if (action.stage == 0 &&
        (action.kind == pdcrt::ActionKind::backward || action.kind == pdcrt::ActionKind::backwardInput))
      backwards.push_back({action.index, to});
  }
};

struct TimedResult {
  double runMs = 0;    ///< from the first computation to the last action, over all ranks
  double periodMs = 0; ///< per minibatch, between the backwards of stage 0 a quarter and three quarters into the run
};

/// The period between two ends of stage 0's backwards, `step` minibatches or a multiple apart.
inline double periodOf(std::vector<std::pair<std::int64_t, double>> backwards, std::int64_t step) {
  std::sort(backwards.begin(), backwards.end());
  const auto count = static_cast<std::int64_t>(backwards.size());
  const std::int64_t from = count / 4, steps = (count / 2) / step;
  if (steps < 1) return 0;
  const double begin = backwards[static_cast<std::size_t>(from)].second,
               end = backwards[static_cast<std::size_t>(from + steps * step)].second;
  return 1e3 * (end - begin) / static_cast<double>(steps * step);
}

/// What the simulator expects of a run.
inline TimedResult simulated(const TimedPipeline& pipeline, const pdc::Plan& plan, const pdcrt::Schedule& schedule,
                             std::int64_t minibatches) {
  const pdcrt::Times times = pipeline.times(plan);
  std::vector<std::pair<std::int64_t, double>> backwards;
  pdcrt::CheckOptions options = {.times = &times};
  options.observe = [&](const pdcrt::TracedAction& traced) {
    if (traced.action.stage == 0 &&
        (traced.action.kind == pdcrt::ActionKind::backward || traced.action.kind == pdcrt::ActionKind::backwardInput))
      backwards.push_back({traced.action.index, 1e-3 * traced.endMs});
  };
  const pdcrt::CheckResult result = pdcrt::check(schedule, minibatches, options);
  return {result.finishMs, periodOf(backwards, pdcrt::periodMinibatches(schedule))};
}

/// Runs it with a thread per rank, which start together. Returns false where that fails.
inline bool runInThreads(const TimedPipeline& pipeline, const pdcrt::Schedule& schedule, std::int64_t minibatches,
                         ThreadRun& run, TimedResult& result) {
  std::vector<RunClock> clocks(schedule.ranks.size());
  run.schedule = &schedule;
  run.link = pipeline.link();
  run.observer = [&](int rank) { return &clocks[static_cast<std::size_t>(rank)]; };
  std::barrier together(static_cast<std::ptrdiff_t>(schedule.ranks.size()));
  if (!run.run([&](pdcrt::Executor& executor, int) {
        together.arrive_and_wait();
        return executor.train(0, minibatches);
      }))
    return false;
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  std::vector<std::pair<std::int64_t, double>> backwards;
  for (const RunClock& clock : clocks) {
    begin = std::min(begin, clock.begin);
    end = std::max(end, clock.end);
    backwards.insert(backwards.end(), clock.backwards.begin(), clock.backwards.end());
  }
  result = {1e3 * (end - begin), periodOf(backwards, pdcrt::periodMinibatches(schedule))};
  return true;
}
