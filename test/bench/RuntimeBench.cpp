// What the runtime costs beside the kernels: CPU time of the thread that runs a rank's actions, per action, with stages
// that compute next to nothing. The communication thread's time is not in it.
//
//   bin/RuntimeBench        goal: us_per_action below 5
#include "LinearStages.h"
#include "ThreadRun.h"

#include "pdc/Schedule/PipelineShape.h"

#include <atomic>
#include <benchmark/benchmark.h>
#include <ctime>

using namespace pdcrt;

namespace {

double threadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Zeros, which take no time to make.
class NoData : public BatchSource {
public:
  Status read(const DataRow&, std::int64_t, std::byte*) override { return {}; }
};

/// Counts the actions of a rank, waits among them.
class Counter : public RunObserver {
public:
  std::int64_t minibatches(std::int64_t planned) override {
    ++actions;
    return planned;
  }
  std::int64_t actions = 0;
};

void emptyPhase(const Call&) {}

/// The stages of LinearStages.h without their computations.
void run(benchmark::State& state, int stageCount, std::int64_t microbatches) {
  std::vector<pdc::StageShape> stages;
  for (int s = 0; s < stageCount; ++s) stages.push_back({.replicas = 1, .warmup = stageCount - 1 - s});
  pdc::PipelineShape shape = pdc::straightShape(stages);
  shape.microbatches = microbatches;
  const Schedule schedule = pdc::buildSchedule(shape);
  std::vector<Stage> empty;
  for (const Stage* stage : linear::linearStages(stageCount)) {
    empty.push_back(*stage);
    empty.back().forward = empty.back().backwardInput = empty.back().backwardWeight = emptyPhase;
  }
  constexpr std::int64_t minibatches = 2000;
  std::vector<Counter> counters(static_cast<std::size_t>(stageCount));
  std::atomic<double> seconds = 0;
  NoData data;
  for (auto _ : state) {
    ThreadRun run;
    run.schedule = &schedule;
    for (const Stage& stage : empty) run.stages.push_back(&stage);
    run.data = &data;
    run.readWeights = [](const char*, Element, const Shape&, std::span<std::byte>, const MemberPart&) {
      return Status();
    };
    run.observer = [&](int rank) { return &counters[static_cast<std::size_t>(rank)]; };
    const bool well = run.run([&](Executor& executor, int) {
      const double begin = threadSeconds();
      Status status = executor.train(0, minibatches);
      seconds += threadSeconds() - begin;
      return status;
    });
    if (!well) state.SkipWithError("the pipeline failed");
  }
  std::int64_t actions = 0;
  for (const Counter& counter : counters) actions += counter.actions;
  state.counters["us_per_action"] = 1e6 * seconds / static_cast<double>(std::max<std::int64_t>(actions, 1));
  state.counters["actions_per_minibatch"] =
      static_cast<double>(actions) / static_cast<double>(minibatches * static_cast<std::int64_t>(state.iterations()));
}

} // namespace

BENCHMARK_CAPTURE(run, one stage, 1, 0)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run, two stages, 2, 0)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run, two stages that flush, 2, 8)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run, four stages, 4, 0)->Unit(benchmark::kMillisecond);

BENCHMARK_MAIN();
