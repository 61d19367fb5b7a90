#include "pdc/Schedule/PlanSchedule.h"

#include "pdc/Support/Diagnostics.h"

#include <algorithm>
#include <map>

using namespace pdc;

int pdc::syncDelayFor(const Plan& plan, int replicas) {
  return plan.schedule == "1f1b" && plan.sync == "overlap" && plan.stages.size() > 1 && replicas > 1 ? 1 : 0;
}

std::vector<EdgeTraffic> pdc::trafficOf(const Plan& plan) {
  std::map<std::pair<int, int>, EdgeTraffic> edges;
  auto edge = [&](int from, int to) -> EdgeTraffic& {
    EdgeTraffic& traffic = edges[{from, to}];
    if (traffic.edge.to == 0) traffic.edge = {.from = from, .to = to, .backward = false, .forward = false};
    return traffic;
  };
  std::map<std::pair<int, std::string>, std::vector<const PlanTensor*>> uses; // of one value, by producer and name
  for (const PlanTensor& tensor : plan.tensors) {
    EdgeTraffic& traffic = edge(tensor.from, tensor.to);
    traffic.edge.forward = true;
    traffic.forwardBytes += tensor.bytes;
    if (tensor.hasGradient) uses[{tensor.from, tensor.name}].push_back(&tensor);
  }
  for (auto& [value, list] : uses) {
    std::sort(list.begin(), list.end(), [](const PlanTensor* a, const PlanTensor* b) { return a->to < b->to; });
    int earlier = value.first;
    for (const PlanTensor* tensor : list) {
      EdgeTraffic& traffic = edge(earlier, tensor->to);
      traffic.edge.backward = true;
      traffic.backwardBytes += tensor->bytes;
      earlier = tensor->to;
    }
  }
  std::vector<EdgeTraffic> result;
  for (const auto& [ends, traffic] : edges) result.push_back(traffic);
  return result;
}

PipelineShape pdc::shapeOf(const Plan& plan) {
  PipelineShape shape;
  shape.weights = plan.weights == "latest"          ? pdcrt::WeightPolicy::latest
                  : plan.weights == "vertical-sync" ? pdcrt::WeightPolicy::verticalSync
                                                    : pdcrt::WeightPolicy::stash;
  shape.microbatches = plan.schedule == "1f1b-flush" ? plan.microbatches : 0;
  for (const PlanStage& stage : plan.stages) shape.stages.push_back({stage.replicas, stage.warmup, stage.syncDelay});
  for (const EdgeTraffic& traffic : trafficOf(plan)) shape.edges.push_back(traffic.edge);
  return shape;
}

/// Puts the lists of a generated schedule (stage by stage, replica by replica) in the order of the plan's ranks.
static Status orderRanks(const Plan& plan, pdcrt::Schedule& schedule, Diagnostics& diags) {
  std::vector<pdcrt::RankList> ordered;
  for (const PlanRank& rank : plan.ranks) {
    if (rank.hosts.size() != 1)
      return diags.error({"", "/ranks/" + std::to_string(rank.rank)})
                 .exit(ExitCode::unsupported)
                 .help("let every rank host one replica of one stage")
             << "rank " << rank.rank << " hosts " << rank.hosts.size() << " stages, the schedule '" << plan.schedule
             << "' knows one";
    ordered.push_back(schedule.ranks[schedule.rankOf(rank.hosts[0].stage, rank.hosts[0].replica)]);
  }
  schedule.ranks = std::move(ordered);
  return success;
}

Expected<pdcrt::Schedule> pdc::scheduleFor(const Plan& plan, Diagnostics& diags) {
  PipelineShape shape = shapeOf(plan);
  if (shape.weights == pdcrt::WeightPolicy::verticalSync && shape.microbatches == 0) {
    const StageShape& input = shape.stages[0];
    for (std::size_t s = 1; s < shape.stages.size(); ++s) {
      const StageShape& stage = shape.stages[s];
      if (input.replicas * (input.warmup + input.syncDelay) >= stage.replicas * (stage.warmup + stage.syncDelay))
        continue;
      return diags.error({"", "/stages/" + std::to_string(s) + "/warmup"})
                 .help("raise the warm-up of stage 0 or lower that of stage " + std::to_string(s))
             << "vertical sync needs R·(w + d) of stage 0 to be at least that of stage " << s << ", got "
             << input.replicas * (input.warmup + input.syncDelay) << " and "
             << stage.replicas * (stage.warmup + stage.syncDelay);
    }
  }
  pdcrt::Schedule schedule = buildSchedule(shape);
  if (!orderRanks(plan, schedule, diags)) return failure;
  pdcrt::CheckResult result = pdcrt::checkEveryDrain(schedule);
  if (!result.passed)
    return diags.error({"", "/stages"})
               .help("no stage may run ahead of the one before it: w·R must not grow from a stage to the next; "
                     "without --warmup a legal one is chosen")
           << "the schedule of this plan cannot be executed: " << result.problem;
  return schedule;
}

pdcrt::Times pdc::timesOf(const Plan& plan) {
  double bandwidth = 0, latency = 0; // of the slowest level that connects anything
  for (const ClusterLevel& level : plan.cluster.levels) {
    if (level.count < 2) continue;
    bandwidth = bandwidth > 0 ? std::min(bandwidth, level.bandwidthBytesPerS) : level.bandwidthBytesPerS;
    latency = std::max(latency, level.latencyS);
  }
  std::map<std::pair<int, int>, EdgeTraffic> traffic;
  for (const EdgeTraffic& edge : trafficOf(plan)) traffic[{edge.edge.from, edge.edge.to}] = edge;

  pdcrt::Times times;
  times.computation = [stages = plan.stages](const pdcrt::Action& action) {
    const PlanStage& stage = stages[action.stage];
    switch (action.kind) {
    case pdcrt::ActionKind::forward:
    case pdcrt::ActionKind::evaluate: return stage.forwardMs;
    case pdcrt::ActionKind::backward: return stage.inputGradientMs + stage.weightGradientMs;
    case pdcrt::ActionKind::backwardInput: return stage.inputGradientMs;
    case pdcrt::ActionKind::backwardWeight: return stage.weightGradientMs;
    case pdcrt::ActionKind::update: return stage.updateMs;
    default: return 0.0;
    }
  };
  times.transfer = [traffic, bandwidth, latency](const pdcrt::ScheduleEdge& edge, bool forward) {
    const EdgeTraffic& load = traffic.at({edge.from, edge.to});
    double bytes = static_cast<double>(forward ? load.forwardBytes : load.backwardBytes);
    return 1e3 * (latency + (bandwidth > 0 ? bytes / bandwidth : 0));
  };
  times.allReduce = [stages = plan.stages](int stage) { return stages[stage].allReduceMs; };
  times.cores = static_cast<int>(plan.cluster.device.cores);
  times.sharedLinks = true;
  return times;
}

Simulation pdc::simulate(const Plan& plan, const pdcrt::Schedule& schedule, std::int64_t minibatches, bool trace) {
  // The transient of a pipeline lasts a few times its depth; whole periods are compared after it.
  if (minibatches <= 0)
    minibatches =
        6 * pdcrt::minibatchesInFlight(schedule) + std::max<std::int64_t>(4 * pdcrt::periodMinibatches(schedule), 64);
  pdcrt::Times times = timesOf(plan);
  Simulation result;
  result.run = pdcrt::check(schedule, minibatches, {.times = &times, .trace = trace});
  result.timePerMinibatchMs = result.run.periodMs;
  for (const pdcrt::RankList& rank : schedule.ranks) {
    double busy = 0;
    for (const pdcrt::HostUse& use : result.run.hosts)
      if (std::find(rank.hosts.begin(), rank.hosts.end(), use.host) != rank.hosts.end()) busy += use.computeMs;
    result.idleFraction.push_back(result.run.finishMs > 0 ? 1 - busy / result.run.finishMs : 0);
  }
  return result;
}
