#include "pdc/Schedule/Prediction.h"

#include "Network.h"

#include <algorithm>
#include <cmath>
#include <map>

using namespace pdc;
using pdcrt::ActionKind;

/// Bytes of a stage's arena that depend on the schedule.
static std::int64_t variableBytes(const Plan& plan, const std::vector<EdgeTraffic>& traffic,
                                  const pdcrt::Schedule& schedule, int s) {
  const PlanStage& stage = plan.stages[s];
  const pdcrt::ScheduleStage& frame = schedule.stages[s];
  std::int64_t slotBytes = stage.savedBytes; // and the values that are sent, each once
  std::vector<std::string> sent;
  for (const PlanTensor& tensor : plan.tensors) {
    if (tensor.from != s || std::find(sent.begin(), sent.end(), tensor.name) != sent.end()) continue;
    slotBytes += tensor.bytes;
    sent.push_back(tensor.name);
  }
  std::int64_t bytes =
      stage.parameterBytes * frame.versions + stage.gradientBytes * (frame.syncDelay + 1) + slotBytes * frame.slots;
  for (const EdgeTraffic& edge : traffic) {
    int index = schedule.edgeBetween(edge.edge.from, edge.edge.to);
    if (index < 0) continue;
    const pdcrt::EdgeRings& rings = schedule.rings[index];
    if (edge.edge.to == s) bytes += edge.forwardBytes * rings.forwardReceive + edge.backwardBytes * rings.backwardSend;
    if (edge.edge.from == s) bytes += edge.backwardBytes * rings.backwardReceive;
  }
  return bytes;
}

/// Whether the pipeline is empty between batches.
static bool drains(const pdcrt::Schedule& schedule) {
  return schedule.minibatchesPerUpdate > 0 && schedule.weights != pdcrt::WeightPolicy::twoVersions;
}

namespace {

/// Follows a run as it is executed.
class Observer {
public:
  Observer(const Plan& plan, const pdcrt::Schedule& schedule) : plan_(plan), schedule_(schedule), network_(plan) {
    bytesSent.resize(schedule.ranks.size(), 0);
  }

  void see(const pdcrt::TracedAction& traced) {
    const pdcrt::Action& action = traced.action;
    if (pdcrt::isComputation(action.kind)) return compute(traced);
    if (action.kind == ActionKind::allReduce) {
      double r = plan_.stages[action.stage].replicas;
      for (int q = 0; q < plan_.stages[action.stage].replicas; ++q)
        bytesSent[schedule_.rankOf(action.stage, q)] +=
            2 * (r - 1) / r * static_cast<double>(plan_.stages[action.stage].parameterBytes);
    } else if (pdcrt::isSharing(action.kind)) {
      bytesSent[traced.rank] +=
          network_.sharedBytes(std::min(action.stage, action.peer), std::max(action.stage, action.peer),
                               action.kind == ActionKind::sendVersion);
    } else {
      bool forward = pdcrt::isForwardTransfer(action.kind);
      bytesSent[traced.rank] +=
          network_.bytes(std::min(action.stage, action.peer), std::max(action.stage, action.peer), forward);
    }
  }

  /// Idle over total time of the batches that are complete.
  void fractions(double& bubble, double& rankIdle) const {
    double total = 0, busy = 0, own = 0;
    for (const auto& [batch, spans] : batches_) {
      double first = INFINITY, last = 0;
      for (const auto& [rank, span] : spans) {
        first = std::min(first, span.first);
        last = std::max(last, span.last);
        own += span.last - span.first;
        busy += span.busy;
      }
      total += (last - first) * static_cast<double>(schedule_.ranks.size());
    }
    bubble = total > 0 ? 1 - busy / total : 0;
    rankIdle = own > 0 ? 1 - busy / own : 0;
  }

  std::vector<double> bytesSent;

private:
  struct Span {
    double first = INFINITY, last = 0, busy = 0;
  };

  void compute(const pdcrt::TracedAction& traced) {
    const pdcrt::Action& action = traced.action;
    std::int64_t m = schedule_.minibatchesPerUpdate;
    std::int64_t batch = !drains(schedule_)                  ? 0
                         : action.kind == ActionKind::update ? action.index - 1
                                                             : action.index / m;
    Span& span = batches_[batch][traced.rank];
    if (traced.endMs == traced.startMs) return; // what takes no time begins and ends nothing
    span.first = std::min(span.first, traced.startMs);
    span.last = std::max(span.last, traced.endMs);
    span.busy += traced.endMs - traced.startMs;
  }

  const Plan& plan_;
  const pdcrt::Schedule& schedule_;
  Network network_;
  std::map<std::int64_t, std::map<int, Span>> batches_;
};

} // namespace

static std::int64_t defaultMinibatches(const pdcrt::Schedule& schedule) {
  std::int64_t period = std::min<std::int64_t>(pdcrt::periodMinibatches(schedule), 1000);
  std::int64_t enough = 8 * pdcrt::minibatchesInFlight(schedule) + 4 * period;
  return (std::max<std::int64_t>(enough, 64) + period - 1) / period * period;
}

Prediction pdc::predict(const Plan& plan, const pdcrt::Schedule& schedule, std::int64_t minibatches, bool trace) {
  if (minibatches <= 0) minibatches = defaultMinibatches(schedule);
  Prediction result;
  Observer observer(plan, schedule);
  pdcrt::Times times = timesOf(plan);
  pdcrt::CheckResult run = pdcrt::check(
      schedule, minibatches, {.times = &times, .order = false, .observe = [&](const pdcrt::TracedAction& traced) {
                                observer.see(traced);
                                if (trace) result.trace.push_back(traced);
                              }});
  result.problem = run.problem;
  result.deadlock = run.deadlock;
  result.minibatches = minibatches;
  if (!run.passed) return result;
  result.finishMs = run.finishMs;
  result.timePerMinibatchMs = run.periodMs;
  observer.fractions(result.bubbleFraction, result.rankIdleFraction);
  if (!drains(schedule) && run.periodMs > 0) {
    double busyMs = 0; // per minibatch, all ranks
    for (std::size_t s = 0; s < plan.stages.size(); ++s)
      busyMs += plan.stages[s].computeMs() + plan.stages[s].updateMs * plan.stages[s].replicas /
                                                 static_cast<double>(schedule.minibatchesOfUpdate(static_cast<int>(s)));
    result.bubbleFraction = 1 - busyMs / (run.periodMs * static_cast<double>(schedule.ranks.size()));
  }

  std::vector<EdgeTraffic> traffic = trafficOf(plan);
  pdcrt::Schedule own = frameOf(shapeOf(plan));
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    RankPrediction rank;
    rank.use = run.ranks[r];
    rank.bytesSent = std::llround(observer.bytesSent[r]);
    for (const pdcrt::Host& host : schedule.ranks[r].hosts) {
      const PlanStage& stage = plan.stages[host.stage];
      rank.hosts += (rank.hosts.empty() ? "" : " ") + std::to_string(host.stage) + "." + std::to_string(host.replica);
      std::int64_t fixed = stage.memoryBytes > 0 ? stage.memoryBytes - variableBytes(plan, traffic, own, host.stage)
                                                 : stage.scratchBytes;
      rank.peakMemoryBytes += fixed + variableBytes(plan, traffic, schedule, host.stage);
    }
    if (r < plan.ranks.size() && !plan.ranks[r].devices.empty()) {
      const DeviceKind& device = plan.cluster.deviceAt(plan.ranks[r].devices[0]);
      rank.memoryLimitBytes = std::max<std::int64_t>(0, device.memoryBytes - device.reservedBytes);
    }
    result.ranks.push_back(std::move(rank));
  }
  return result;
}
