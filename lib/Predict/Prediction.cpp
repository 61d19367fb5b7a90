#include "pdc/Predict/Prediction.h"

#include "Network.h"
#include "pdc/Plan/ShardTraffic.h"
#include "pdc/Predict/Simulate.h"

#include <algorithm>
#include <cmath>
#include <map>

using namespace pdc;
using pdcrt::ActionKind;

/// Whether the pipeline is empty between batches.
static bool drains(const pdcrt::Schedule& schedule) {
  return schedule.minibatchesPerUpdate > 0 && schedule.weights != pdcrt::WeightPolicy::twoVersions;
}

namespace {

/// How busy the ranks are from their first to their last computation: of each batch, where the pipeline is empty
/// between batches, else of the run.
class Batches {
public:
  explicit Batches(const pdcrt::Schedule& schedule) : schedule_(schedule), ranks_(schedule.ranks.size()) {}

  void see(const pdcrt::TracedAction& traced) {
    const pdcrt::Action& action = traced.action;
    if (action.wait || !pdcrt::isComputation(action.kind)) return;
    if (traced.endMs == traced.startMs) return; // what takes no time begins and ends nothing
    std::int64_t batch = !drains(schedule_)                  ? 0
                         : action.kind == ActionKind::update ? action.index - 1
                                                             : action.index / schedule_.minibatchesPerUpdate;
    Rank& rank = ranks_[traced.rank];
    if (rank.batch != batch) {
      close(rank);
      rank = {.batch = batch};
    }
    rank.first = std::min(rank.first, traced.startMs);
    rank.last = std::max(rank.last, traced.endMs);
    rank.busy += traced.endMs - traced.startMs;
  }

  /// Idle over total time of the batches that are complete; for `run`, which executed them. The batches that it did not
  /// execute are like those of the cycle before them.
  void fractions(const pdcrt::CheckResult& run, double& bubble, double& rankIdle) {
    for (Rank& rank : ranks_) close(rank);
    double total = 0, busy = 0, own = 0;
    for (const auto& [batch, sum] : batches_) {
      double times = timesOf(batch, run.repeated);
      total += times * (sum.last - sum.first) * static_cast<double>(ranks_.size());
      busy += times * sum.busy;
      own += times * sum.own;
    }
    if (!drains(schedule_)) {
      busy = 0;
      for (const pdcrt::RankUse& use : run.ranks) busy += use.computeMs + use.sharedMs;
    }
    bubble = total > 0 ? 1 - busy / total : 0;
    rankIdle = own > 0 ? 1 - busy / own : 0;
  }

private:
  struct Batch {
    double first = INFINITY, last = 0; ///< over all ranks
    double busy = 0, own = 0;          ///< summed over the ranks; own: from each rank's first action to its last
  };
  /// What a rank has done of the batch that it is at.
  struct Rank {
    std::int64_t batch = 0;
    double first = INFINITY, last = 0, busy = 0;
  };

  double timesOf(std::int64_t batch, const pdcrt::CheckResult::Repeated& repeated) const {
    if (!drains(schedule_) || repeated.cycles == 0) return 1;
    const std::int64_t m = schedule_.minibatchesPerUpdate, end = repeated.from / m;
    return batch >= end - repeated.cycle / m && batch < end ? 1 + static_cast<double>(repeated.cycles) : 1;
  }

  void close(Rank& rank) {
    if (rank.busy <= 0) return;
    Batch& batch = batches_[rank.batch];
    batch.first = std::min(batch.first, rank.first);
    batch.last = std::max(batch.last, rank.last);
    batch.own += rank.last - rank.first;
    batch.busy += rank.busy;
    rank.busy = 0;
  }

  const pdcrt::Schedule& schedule_;
  std::vector<Rank> ranks_;
  std::map<std::int64_t, Batch> batches_;
};

} // namespace

/// What a replica sends for an update; where teams compute, what a member sends. Of parameters that members divide, the
/// replicas alone have terms.
static double bytesForUpdate(const pdcrt::ScheduleStage& stage, const PlanStage& planned) {
  const auto bytes = static_cast<double>(planned.parameterBytes), divided = static_cast<double>(planned.dividedBytes);
  const int gathers = stage.sharding == pdcrt::Sharding::weights ? stage.sweeps : 1;
  const auto sum = [&](int terms) {
    if (!stage.isSharded()) return 2.0 * (terms - 1) / terms;
    return sentForSum(terms, stage.owners()) + gathers * sentForGather(stage.owners());
  };
  return sum(stage.terms()) * (bytes - divided) + sum(stage.replicas) * divided;
}

/// What each rank sends in a run; where teams compute, what a member sends.
static std::vector<double> bytesSentOf(const Plan& plan, const pdcrt::Schedule& schedule, std::int64_t minibatches) {
  Network network(plan);
  std::vector<double> sent(schedule.ranks.size());
  auto send = [&](int stage, int peer, bool forward) {
    const pdcrt::Routing routing = schedule.routing(stage);
    double bytes = network.bytes(std::min(stage, peer), std::max(stage, peer), forward);
    for (int q = 0; q < routing.replicas(); ++q)
      sent[schedule.rankOf(stage, q)] += bytes * static_cast<double>(routing.localCount(minibatches, q));
  };
  for (const pdcrt::ScheduleEdge& edge : schedule.edges) {
    send(edge.from, edge.to, true);
    send(edge.to, edge.from, false);
  }
  for (std::size_t s = 0; s < schedule.stages.size(); ++s) {
    int stage = static_cast<int>(s), replicas = schedule.stages[s].replicas;
    const pdcrt::Routing routing = schedule.routing(stage);
    for (int q = 0; q < replicas; ++q)
      sent[schedule.rankOf(stage, q)] +=
          static_cast<double>(plan.stages[s].teamBytes) * static_cast<double>(routing.localCount(minibatches, q));
    const double bytes = bytesForUpdate(schedule.stages[s], plan.stages[s]);
    for (int q = 0; q < replicas; ++q)
      sent[schedule.rankOf(stage, q)] += bytes * static_cast<double>(schedule.updates(stage, minibatches));
  }
  for (const pdcrt::SharedEdge& edge : schedule.shared)
    for (int q = 0; q < schedule.stages[edge.user].replicas; ++q)
      for (std::int64_t version = 1; version <= schedule.updates(edge.owner, minibatches); ++version) {
        int owner = schedule.rankOf(edge.owner, q % schedule.stages[edge.owner].replicas);
        if (schedule.takesVersion(edge, q, version)) sent[owner] += network.sharedBytes(edge.owner, edge.user, true);
        if (schedule.hasPart(edge, q, version))
          sent[schedule.rankOf(edge.user, q)] += network.sharedBytes(edge.owner, edge.user, false);
      }
  return sent;
}

static std::int64_t defaultMinibatches(const pdcrt::Schedule& schedule) {
  std::int64_t period = std::min<std::int64_t>(pdcrt::periodMinibatches(schedule), 1000);
  std::int64_t enough = 8 * pdcrt::minibatchesInFlight(schedule) + 4 * period;
  return (std::max<std::int64_t>(enough, 64) + period - 1) / period * period;
}

/// Shorter than what lasts in a run.
static double finestIntervalMs(const Plan& plan) {
  double longest = 0;
  for (const PlanStage& stage : plan.stages) longest = std::max(longest, stage.computeMs());
  return longest > 0 ? longest / 8 : 1;
}

/// Of several changes at one moment, the last one counts.
static void addSample(std::vector<MemorySample>& samples, const MemorySample& sample) {
  if (!samples.empty() && samples.back().rank == sample.rank && samples.back().ms == sample.ms)
    samples.back() = sample;
  else
    samples.push_back(sample);
}

static void finish(std::vector<MemoryCourse>& courses, double ms) {
  double intervalMs = 0;
  for (MemoryCourse& course : courses) {
    course.finish(ms);
    intervalMs = std::max(intervalMs, course.intervalMs());
  }
  for (MemoryCourse& course : courses) course.coarsenTo(intervalMs);
}

pdcrt::RankUse Prediction::use() const {
  pdcrt::RankUse sum;
  for (const RankPrediction& rank : ranks)
    for (double pdcrt::RankUse::*part :
         {&pdcrt::RankUse::computeMs, &pdcrt::RankUse::sharedMs, &pdcrt::RankUse::transferMs,
          &pdcrt::RankUse::allReduceMs, &pdcrt::RankUse::fillMs, &pdcrt::RankUse::waitingMs, &pdcrt::RankUse::endedMs})
      sum.*part += rank.use.*part;
  return sum;
}

double Prediction::exposedCommunicationFraction() const {
  pdcrt::RankUse sum = use();
  double all = finishMs * static_cast<double>(ranks.size());
  return all > 0 ? (sum.transferMs + sum.allReduceMs) / all : 0;
}

Prediction pdc::predict(const Plan& plan, const pdcrt::Schedule& schedule, std::int64_t minibatches, bool trace) {
  if (minibatches <= 0) minibatches = defaultMinibatches(schedule);
  Prediction result;
  Batches batches(schedule);
  std::vector<MemorySplit> arenas = arenasOf(plan, schedule);
  int followed = trace ? static_cast<int>(schedule.ranks.size()) : Prediction::mostCourses;
  result.courses.assign(std::min<std::size_t>(schedule.ranks.size(), Prediction::mostCourses),
                        MemoryCourse(finestIntervalMs(plan)));
  LiveMemory live(plan, schedule, arenas, minibatches, followed, [&](int rank, double ms, const MemorySplit& inUse) {
    if (rank < static_cast<int>(result.courses.size())) result.courses[rank].change(ms, inUse);
    if (trace) addSample(result.memory, {rank, ms, inUse});
  });
  pdcrt::Times times = timesOf(plan);
  auto observe = [&](const pdcrt::TracedAction& traced) {
    batches.see(traced);
    live.see(traced);
    if (trace) result.trace.push_back(traced);
  };
  pdcrt::CheckResult run = pdcrt::check(schedule, minibatches,
                                        {.times = &times,
                                         .order = false,
                                         .waits = trace,
                                         .rules = false,
                                         .everyPeriod = trace,
                                         .observe = observe,
                                         .retell = [&](const pdcrt::TracedAction& traced) { live.see(traced); },
                                         .retoldRanks = followed});
  result.problem = run.problem;
  result.deadlock = run.deadlock;
  result.minibatches = minibatches;
  if (!run.passed) return result;
  result.finishMs = run.finishMs;
  result.timePerMinibatchMs = run.periodMs;
  batches.fractions(run, result.bubbleFraction, result.rankIdleFraction);
  if (!drains(schedule) && run.periodMs > 0) {
    double busyMs = 0; // per minibatch, all ranks
    for (std::size_t s = 0; s < plan.stages.size(); ++s)
      busyMs += plan.stages[s].computeMs() + plan.stages[s].updateMs * plan.stages[s].replicas /
                                                 static_cast<double>(schedule.minibatchesOfUpdate(static_cast<int>(s)));
    result.bubbleFraction = 1 - busyMs / (run.periodMs * static_cast<double>(schedule.ranks.size()));
  }

  live.finish();
  finish(result.courses, run.finishMs);
  std::vector<double> bytesSent = bytesSentOf(plan, schedule, minibatches);
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    RankPrediction rank;
    rank.use = run.ranks[r];
    rank.bytesSent = std::llround(bytesSent[r]);
    for (const pdcrt::Host& host : schedule.ranks[r].hosts) {
      rank.hosts += (rank.hosts.empty() ? "" : " ") + std::to_string(host.stage) + "." + std::to_string(host.replica);
    }
    rank.memory = arenas[r];
    rank.peakMemoryBytes = rank.memory.total();
    if (r < plan.ranks.size() && !plan.ranks[r].devices.empty()) {
      const DeviceKind& device = plan.cluster.deviceAt(plan.ranks[r].devices[0]);
      rank.memoryLimitBytes = std::max<std::int64_t>(0, device.memoryBytes - device.reservedBytes);
    }
    result.ranks.push_back(std::move(rank));
  }
  return result;
}
