// LINK: pdcrt pdcSchedule
// Communication is hidden behind computation: two stages whose kernels sleep, and a link of limited bandwidth. With one
// more minibatch in flight than PipeDream's own warm-up the period is that of the computation; with PipeDream's it is
// computation plus transfer.
#include "LinearStages.h"
#include "ThreadRun.h"

#include "pdc/Schedule/PipelineShape.h"

#include <algorithm>
#include <cstdio>
#include <gtest/gtest.h>

using namespace pdcrt;

namespace {

constexpr double forwardSeconds = 20e-3, backwardSeconds = 40e-3, transferSeconds = 20e-3;
constexpr std::int64_t minibatches = 16, steadyFrom = 4;
linear::NoiseData data;

struct Interval {
  double begin, end;
};

/// Backwards, computations and sends of a rank.
class Recorder : public RunObserver {
public:
  std::vector<Interval> backwards, computations, sends;
  void acted(const Action& action, double begin, double end) override {
    if (action.wait) return;
    computations.push_back({begin, end});
    if (action.kind == ActionKind::backward) backwards.push_back({begin, end});
  }
  void transferred(const Action& action, double posted, double completed) override {
    if (action.kind == ActionKind::sendForward) sends.push_back({posted, completed});
  }
};

struct Measured {
  double period;
  double hidden; ///< part of the time of stage 0's sends in which stage 0 computes
};

Measured measure(int warmup) {
  const Schedule schedule = pdc::buildSchedule(pdc::straightShape({{.warmup = warmup}, {.warmup = 0}}));
  Recorder recorders[2];
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = linear::linearStages(2);
  run.data = &data;
  run.readWeights = linear::readInitial;
  run.link.bytesPerSecond = linear::valueBytes / transferSeconds;
  run.observer = [&](int rank) { return &recorders[rank]; };
  linear::forwardTime = std::chrono::microseconds(static_cast<int>(forwardSeconds * 1e6));
  linear::backwardTime = std::chrono::microseconds(static_cast<int>(backwardSeconds * 1e6));
  EXPECT_TRUE(run.run([](Executor& executor, int) { return executor.train(0, minibatches); }));
  linear::forwardTime = linear::backwardTime = std::chrono::microseconds(0);

  const Recorder& first = recorders[0];
  double sending = 0, both = 0;
  for (std::size_t i = steadyFrom; i < first.sends.size(); ++i) {
    sending += first.sends[i].end - first.sends[i].begin;
    for (const Interval& c : first.computations)
      both += std::max(0.0, std::min(c.end, first.sends[i].end) - std::max(c.begin, first.sends[i].begin));
  }
  const auto& last = first.backwards;
  const double span = last[minibatches - 4].end - last[steadyFrom].end;
  return {span / static_cast<double>(minibatches - 4 - steadyFrom), both / sending};
}

/// For utils/results, which judges periods; tests do not.
void print(const char* warmup, const Measured& measured) {
  std::printf("%s: period %.2f ms, computation %.2f ms, transfer %.2f ms, %.2f of the sending hidden\n", warmup,
              measured.period * 1e3, (forwardSeconds + backwardSeconds) * 1e3, transferSeconds * 1e3, measured.hidden);
}

TEST(Overlap, SendsWhileItComputesWithOneMoreMinibatchInFlight) {
  const Measured hide = measure(2);
  print("hide", hide);
  EXPECT_GT(hide.hidden, 0) << "no transfer was under way while stage 0 computed";
}

TEST(Overlap, WaitsForTransfersWithTheWarmupOfThePaper) {
  const Measured paper = measure(1);
  print("paper", paper);
  // Sleeps are never too short, so this is a consequence of who waits for whom, however busy the machine is.
  EXPECT_GT(paper.period, 0.97 * (forwardSeconds + backwardSeconds + transferSeconds));
}

} // namespace
