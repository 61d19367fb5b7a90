// How much of the gathering of sharded weights is hidden: twelve units with two replicas, whose kernels sleep, over an
// emulated link that brings the weights of a unit in the time of its forwards. Beside it without a link; and with one
// where each unit is gathered when it is needed, not while the unit before computes.
//
//   bin/ShardBench
//
// Goals: 1.05 of the time without a link; longer where nothing is gathered ahead.
#include "ThreadRun.h"
#include "TimedStages.h"

#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/Shards.h"
#include "pdcrt/Verify.h"

#include <algorithm>
#include <cstdio>

using namespace pdcrt;

namespace {

constexpr int units = 12, replicas = 2;
constexpr std::int64_t each = 4, batches = 4; // microbatches of a replica
constexpr std::chrono::microseconds phase(2000);

timed::Model modelOfUnits() {
  timed::Model model;
  model.stages.resize(units, {phase, phase, phase});
  for (int s = 1; s < units; ++s) model.edges.push_back({.from = s - 1, .to = s});
  model.values = model.parameters = 12 * squaresBlock;
  return model;
}

Schedule scheduleOfUnits() {
  pdc::PipelineShape shape =
      pdc::straightShape(std::vector<pdc::StageShape>(units, {.replicas = replicas, .sharding = Sharding::weights}));
  shape.kind = "bfs:" + std::to_string(units);
  shape.microbatches = each * replicas;
  return pdc::buildSchedule(shape);
}

/// The same lists, in which each unit is gathered right before its weights are awaited.
Schedule withoutPrefetch(Schedule schedule) {
  for (RankList& rank : schedule.ranks)
    for (std::vector<Action>* list : {&rank.start, &rank.repeat}) {
      std::vector<Action> late;
      for (const Action& action : *list) {
        if (action.kind == ActionKind::unshard && !action.wait) continue;
        if (action.kind == ActionKind::unshard) {
          late.push_back(action);
          late.back().wait = false;
        }
        late.push_back(action);
      }
      *list = std::move(late);
    }
  return schedule;
}

/// ms of a batch.
double measure(const Schedule& schedule, EmulatedLink link) {
  static timed::NoiseData data;
  const timed::Stages stages(modelOfUnits());
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = stages.all();
  run.training.optimizer = OptimizerKind::momentum;
  run.data = &data;
  run.readWeights = timed::readInitial;
  run.link = link;
  double seconds = 0;
  const bool done = run.run([&](Executor& executor, int rank) {
    const double begin = now();
    const Status status = executor.train(0, batches * each * replicas);
    if (rank == 0) seconds = now() - begin;
    return status;
  });
  if (!done) std::printf("error: %s\n", run.statuses[0].message().c_str());
  return 1e3 * seconds / batches;
}

} // namespace

int main() {
  const Schedule schedule = scheduleOfUnits(), late = withoutPrefetch(schedule);
  if (!checkEveryDrain(late).passed) return 1;
  // A replica sends its half of 2 · 12 · 1024 floats in the time of the forwards.
  const double bytes = 12 * squaresBlock * sizeof(float), seconds = 1e-6 * each * phase.count();
  const EmulatedLink link{.bytesPerSecond = bytes / seconds, .latency = 0};
  std::printf("%14s %14s %14s %10s %10s\n", "no link, ms", "link, ms", "not ahead, ms", "ratio", "not ahead");
  for (int round = 0; round < 3; ++round) {
    const double alone = measure(schedule, {}), ahead = measure(schedule, link), behind = measure(late, link);
    std::printf("%14.1f %14.1f %14.1f %10.3f %10.3f\n", alone, ahead, behind, ahead / alone, behind / alone);
  }
  return 0;
}
