// Pipelines of sleeping kernels over emulated links, run and simulated: for utils/bench-schedules.
//
//   ScheduleBench                       lists the pipelines: a line with name, ranks and suite for each
//   ScheduleBench NAME MINIBATCHES      runs one, with a thread per rank
//   mpirun -n RANKS ScheduleBench …     the same with a process per rank
//
// The result is one line of JSON: times in milliseconds.
#include "EmulatedTransport.h"
#include "PipeDreamOrder.h"
#include "TimedPipeline.h"

#include "pdcrt/Launcher.h"
#include "run/Options.h"
#include "transport/Control.h"
#include "transport/mpi/MpiTransport.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>

using namespace pdcrt;

namespace {

/// A plan whose stages have equal loads, as PipeDream's optimizer aims at, with some time in links and all-reduces.
TimedPipeline balanced(const std::string& name, const std::vector<int>& replicas) {
  constexpr double timeMs = 8;
  TimedPipeline pipeline = {.name = name, .replicas = replicas, .computeMs = {}};
  for (int r : replicas) pipeline.computeMs.push_back(timeMs * r);
  pipeline.transferMs = 0.3 * timeMs;
  pipeline.allReduceMs = 0.5 * timeMs;
  return pipeline;
}

/// Those on which PipeDream's own warm-up deadlocks or is slow.
std::vector<TimedPipeline> pipedreamPlans() {
  return {balanced("8-5-3", {8, 5, 3}),      balanced("7-1-7-1", {7, 1, 7, 1}),
          balanced("8-5-2-1", {8, 5, 2, 1}), balanced("1-1-1-1-1-10-1", {1, 1, 1, 1, 1, 10, 1}),
          balanced("1-3-1", {1, 3, 1}),      balanced("2-6", {2, 6})};
}

/// Straight and replicated, equal and unequal stages, transfers up to the time of a computation, each schedule.
std::vector<TimedPipeline> predictedPipelines() {
  std::vector<TimedPipeline> all;
  auto add = [&](TimedPipeline pipeline) { all.push_back(std::move(pipeline)); };
  add({.name = "straight, 2 stages", .replicas = {1, 1}, .computeMs = {24, 24}});
  add({.name = "straight, 4 stages, transfer 0.5",
       .replicas = {1, 1, 1, 1},
       .computeMs = {24, 24, 24, 24},
       .transferMs = 12});
  add({.name = "straight, 4 stages, transfer 1.0",
       .replicas = {1, 1, 1, 1},
       .computeMs = {24, 24, 24, 24},
       .transferMs = 24});
  add({.name = "straight, 4 unequal stages, transfer 0.3",
       .replicas = {1, 1, 1, 1},
       .computeMs = {12, 24, 18, 6},
       .transferMs = 7.2});
  add({.name = "straight, 3 stages, transfer 0.5, warm-up of the paper",
       .replicas = {1, 1, 1},
       .computeMs = {24, 24, 24},
       .transferMs = 12,
       .warmup = "paper"});
  add({.name = "2-1, all-reduce 0.5", .replicas = {2, 1}, .computeMs = {36, 18}, .transferMs = 4, .allReduceMs = 9});
  add({.name = "3-1-2, barrier",
       .replicas = {3, 1, 2},
       .computeMs = {48, 16, 30},
       .transferMs = 4,
       .allReduceMs = 8,
       .sync = pdc::SyncPolicy::barrier});
  add({.name = "4-2, unequal, transfer 0.5",
       .replicas = {4, 2},
       .computeMs = {48, 18},
       .transferMs = 6,
       .allReduceMs = 6});
  add({.name = "gpipe, 4 stages, 8 microbatches",
       .replicas = {1, 1, 1, 1},
       .computeMs = {24, 24, 24, 24},
       .transferMs = 6,
       .schedule = "gpipe",
       .microbatches = 8});
  add({.name = "1f1b-flush, 4 stages, 8 microbatches",
       .replicas = {1, 1, 1, 1},
       .computeMs = {24, 24, 24, 24},
       .transferMs = 6,
       .schedule = "1f1b-flush",
       .microbatches = 8});
  add({.name = "1f1b-flush, 2-2-1, 8 microbatches",
       .replicas = {2, 2, 1},
       .computeMs = {36, 36, 18},
       .transferMs = 4,
       .allReduceMs = 8,
       .schedule = "1f1b-flush",
       .microbatches = 8});
  add({.name = "gpipe, 2-1, unequal, 6 microbatches",
       .replicas = {2, 1},
       .computeMs = {36, 12},
       .transferMs = 6,
       .allReduceMs = 8,
       .schedule = "gpipe",
       .microbatches = 6});
  auto batched = [&](const std::string& schedule, const std::string& what, const std::vector<double>& computeMs) {
    add({.name = schedule + ", " + what + ", 8 microbatches",
         .replicas = std::vector<int>(computeMs.size(), 1),
         .computeMs = computeMs,
         .transferMs = 6,
         .schedule = schedule,
         .microbatches = 8});
  };
  batched("2bw", "3 stages", {24, 24, 24});
  batched("zb-h1", "4 stages", {24, 24, 24, 24});
  batched("interleaved:2", "4 stages on 2 ranks", {12, 12, 12, 12});
  batched("zb-v", "6 stages on 3 ranks", {12, 12, 12, 12, 12, 12});
  return all;
}

int fail(const std::string& message) {
  std::cerr << "ScheduleBench: " << message << "\n";
  return 1;
}

timed::NoiseData data;

struct Prepared {
  TimedPipeline pipeline;
  pdc::Plan plan;
  Schedule schedule;
};

bool runThreads(const Prepared& prepared, std::int64_t minibatches, TimedResult& result) {
  const timed::Stages stages(prepared.pipeline.model(prepared.plan));
  ThreadRun run;
  run.stages = stages.all();
  run.data = &data;
  run.readWeights = timed::readInitial;
  return runInThreads(prepared.pipeline, prepared.schedule, minibatches, run, result);
}

/// What this rank saw, told to rank 0; there, of all ranks. False where a rank has given up.
bool gather(Control& control, int rank, int ranks, const RunClock& own, double& begin, double& end,
            std::vector<std::pair<std::int64_t, double>>& backwards) {
  begin = own.begin;
  end = own.end;
  backwards = own.backwards;
  if (rank > 0) {
    for (const auto& [minibatch, at] : own.backwards)
      if (!control.send(0, {.topic = Topic::loss, .index = minibatch, .values = {at}})) return false;
    return control.send(0, {.topic = Topic::statistics, .values = {own.begin, own.end}}) && control.flush();
  }
  for (int left = ranks - 1; left > 0;) {
    Message message;
    if (!control.wait(message)) return false;
    if (message.topic == Topic::loss) backwards.push_back({message.index, message.values[0]});
    if (message.topic != Topic::statistics) continue;
    begin = std::min(begin, message.values[0]);
    end = std::max(end, message.values[1]);
    --left;
  }
  return true;
}

/// All ranks wait until all are there.
bool meet(Control& control, int rank, int ranks) {
  Message message;
  if (rank > 0) return control.send(0, {.topic = Topic::hello}) && control.wait(message);
  for (int left = ranks - 1; left > 0; --left)
    if (!control.wait(message)) return false;
  for (int other = 1; other < ranks; ++other)
    if (!control.send(other, {.topic = Topic::verdict})) return false;
  return true;
}

/// One rank of a run over MPI. Fills in `result` on rank 0.
bool runMpi(const Prepared& prepared, std::int64_t minibatches, TimedResult& result, bool& first) {
  const int ranks = static_cast<int>(prepared.schedule.ranks.size());
  std::unique_ptr<Transport> mpi;
  if (!openMpi(ranks, {}, mpi)) return false;
  EmulatedTransport transport(std::move(mpi), prepared.pipeline.link());
  const int rank = transport.rank();
  first = rank == 0;
  Communicator communicator(transport);
  const timed::Stages stages(prepared.pipeline.model(prepared.plan));
  const std::vector<const Stage*> programs = stages.all();
  const Training training;
  RunClock clock;
  Executor executor({.schedule = &prepared.schedule,
                     .rank = rank,
                     .stages = programs,
                     .training = &training,
                     .communicator = &communicator,
                     .data = &data,
                     .observer = &clock});
  Control control(communicator, 64);
  if (!executor.prepare() || !executor.setWeights(timed::readInitial) || !meet(control, rank, ranks)) return false;
  if (!executor.train(0, minibatches)) return false;
  double begin = 0, end = 0;
  std::vector<std::pair<std::int64_t, double>> backwards;
  if (!gather(control, rank, ranks, clock, begin, end, backwards)) return false;
  result = {1e3 * (end - begin), periodOf(backwards, periodMinibatches(prepared.schedule))};
  communicator.stop();
  return true;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

/// What PipeDream's warm-up does in the simulator, with gradients that leave before and after a blocking all-reduce.
std::string pipedreamText(TimedPipeline pipeline) {
  pipeline.warmup = "paper";
  pipeline.sync = pdc::SyncPolicy::barrier;
  const pdc::Plan plan = pipeline.plan();
  Schedule schedule = pdc::buildSchedule(pdc::shapeOf(plan));
  const double early = simulated(pipeline, plan, schedule, 400).periodMs;
  pdc::sendGradientAfterUpdate(schedule);
  const bool deadlock = check(schedule, 400).deadlock;
  const double late = deadlock ? 0 : simulated(pipeline, plan, schedule, 400).periodMs;
  return ", \"paper_ms\": " + number(early) + ", \"pipedream_deadlock\": " + (deadlock ? "true" : "false") +
         ", \"pipedream_ms\": " + number(late);
}

} // namespace

int main(int argc, char** argv) {
  std::vector<std::pair<std::string, TimedPipeline>> all;
  for (TimedPipeline& pipeline : pipedreamPlans()) all.push_back({"pipedream", std::move(pipeline)});
  for (TimedPipeline& pipeline : predictedPipelines()) all.push_back({"predicted", std::move(pipeline)});
  if (argc < 3) {
    for (const auto& [suite, p] : all) std::cout << suite << " " << p.plan().ranks.size() << " " << p.name << "\n";
    return 0;
  }
  auto found = std::find_if(all.begin(), all.end(), [&](const auto& entry) { return entry.second.name == argv[1]; });
  if (found == all.end()) return fail("no pipeline '" + std::string(argv[1]) + "'");
  const std::int64_t minibatches = std::atoll(argv[2]);

  pdc::Diagnostics diags(nullptr);
  Prepared prepared = {.pipeline = found->second, .plan = found->second.plan(), .schedule = {}};
  pdc::Expected<Schedule> schedule = pdc::scheduleFor(prepared.plan, diags);
  if (!schedule) return fail(diags.all().front().message);
  prepared.schedule = *schedule;

  TimedResult measured;
  bool first = true;
  const bool processes = launchedAs().has_value();
  if (!(processes ? runMpi(prepared, minibatches, measured, first) : runThreads(prepared, minibatches, measured)))
    return fail("the run failed");
  if (!first) return 0;
  const TimedResult expected = simulated(prepared.pipeline, prepared.plan, prepared.schedule, minibatches);
  std::string warmup;
  for (const pdc::PlanStage& stage : prepared.plan.stages)
    warmup += (warmup.empty() ? "" : ", ") + std::to_string(stage.warmup);
  std::cout << "{\"name\": \"" << argv[1] << "\", \"transport\": \"" << (processes ? "mpi" : "threads")
            << "\", \"minibatches\": " << minibatches << ", \"warmup\": [" << warmup
            << "], \"bottleneck_ms\": " << number(prepared.pipeline.bottleneckMs())
            << ", \"predicted_run_ms\": " << number(expected.runMs) << ", \"run_ms\": " << number(measured.runMs)
            << ", \"predicted_period_ms\": " << number(expected.periodMs)
            << ", \"period_ms\": " << number(measured.periodMs)
            << (found->first == "pipedream" ? pipedreamText(prepared.pipeline) : "") << "}\n";
  return 0;
}
