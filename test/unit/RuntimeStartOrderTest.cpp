// LINK: pdcrt pdcSchedule
// Executors on transports that do one transfer at a time, without buffers (OneLaneTransport.h): where transfers are
// started by their turns, random pipelines under every schedule train what they train over `threads`, stop early,
// evaluate and go on; where they are started when they are posted, the circle of waits is found.
#include "OneLaneTransport.h"
#include "RandomPipeline.h"
#include "Rounds.h"
#include "ThreadRun.h"
#include "WitnessStages.h"

#include "pdc/Schedule/PipelineShape.h"

#include <gtest/gtest.h>

using namespace pdcrt;

namespace {

/// There are no data.
class NoData : public BatchSource {
  Status read(const DataRow&, std::int64_t, std::byte*) override { return {}; }
};
NoData noData;

/// Shortens a run of `before` minibatches to `after`, once it has done so many actions.
struct Stop : RunObserver {
  int actions = 0;
  std::int64_t before = 0, after = 0;
  std::int64_t minibatches(std::int64_t planned) override {
    return --actions < 0 && planned == before ? after : planned;
  }
};

struct Result {
  bool ended = false, deadlock = false;
  std::string why;              ///< it has not ended
  std::vector<std::byte> bytes; ///< newest weights and digests of all stage replicas
  friend bool operator==(const Result&, const Result&) = default;
};

enum class Lanes { threads, ordered, posted };

/// Trains 80 minibatches and is stopped after 60, evaluates, and trains 21 more.
Result execute(const Schedule& schedule, Lanes lanes) {
  const auto hub = std::make_shared<one_lane::Lanes>();
  std::vector<Stop> stops(schedule.ranks.size());
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = witness::stagesOf(schedule);
  run.training.learningRate = 0.125;
  if (schedule.gradientNorm) run.training.clipNorm = 0.25;
  run.readWeights = witness::readInitial;
  run.observer = [&](int rank) {
    Stop& stop = stops[static_cast<std::size_t>(rank)];
    stop.actions = 7 * rank;
    stop.before = 80;
    stop.after = 60;
    return &stop;
  };
  if (lanes != Lanes::threads)
    run.makeTransports = [&](int ranks) { return one_lane::makeTransports(ranks, lanes == Lanes::ordered, hub); };
  Result result;
  result.ended = run.run([&](Executor& executor, int) -> Status {
    if (Status status = executor.train(0, 80); !status) return status;
    if (Status status = executor.averageState(); !status) return status;
    Executor::Predicted predicted = [](const HostedStage&, std::int64_t, const std::byte*) -> Status { return {}; };
    if (Status status = executor.evaluate(9, noData, predicted); !status) return status;
    return executor.train(60, 21);
  });
  result.deadlock = hub->deadlock;
  for (const Status& status : run.statuses)
    if (!status) result.why += status.message() + "; ";
  if (!result.ended) return result;
  for (std::size_t s = 0; s < schedule.stages.size(); ++s)
    for (int replica = 0; replica < schedule.stages[s].replicas; ++replica) {
      const HostedStage& hosted = run.hosted(static_cast<int>(s), replica);
      const std::byte* weights = run.weights(static_cast<int>(s), replica);
      result.bytes.insert(result.bytes.end(), weights, weights + hosted.stage->bytes.weights);
      result.bytes.insert(result.bytes.end(), hosted.state, hosted.state + hosted.stage->bytes.state);
    }
  return result;
}

TEST(StartOrderOfRuns, OneLaneTrainsWhatThreadsTrain) {
  std::mt19937 random(5);
  int deadlocks = 0, plans = pdc::rounds(40), shared = 0;
  for (int plan = 0; plan < plans;) {
    const pdc::PipelineShape shape = pdc::RandomPipeline(random).shape();
    if (shape.stages.size() > witness::mostStages || shape.stages.size() < 2) continue;
    const Schedule schedule = pdc::buildSchedule(shape);
    if (schedule.ranks.size() > 8) continue;
    ++plan;
    shared += !schedule.shared.empty();
    const Result threads = execute(schedule, Lanes::threads);
    ASSERT_TRUE(threads.ended) << threads.why << "\n" << toString(schedule);
    const Result ordered = execute(schedule, Lanes::ordered);
    ASSERT_TRUE(ordered.ended && !ordered.deadlock) << "plan " << plan << ": " << ordered.why << "\n"
                                                    << toString(schedule);
    ASSERT_EQ(ordered.bytes, threads.bytes) << "plan " << plan << "\n" << toString(schedule);
    const Result posted = execute(schedule, Lanes::posted);
    EXPECT_EQ(posted.ended, !posted.deadlock);
    deadlocks += posted.deadlock;
  }
  EXPECT_GT(deadlocks, plans / 2);
  EXPECT_GT(shared, 0);
}

} // namespace
