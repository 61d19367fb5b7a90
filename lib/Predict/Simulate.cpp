#include "pdc/Predict/Simulate.h"

#include "Network.h"

#include <algorithm>
#include <memory>

using namespace pdc;

pdcrt::Times pdc::timesOf(const Plan& plan, bool ownLinks) {
  auto network = std::make_shared<const Network>(plan);
  pdcrt::Times times;
  struct StageTimes {
    double forwardMs, inputGradientMs, weightGradientMs, updateMs;
  };
  std::vector<StageTimes> stages;
  for (const PlanStage& stage : plan.stages)
    stages.push_back({stage.forwardMs, stage.inputGradientMs, stage.weightGradientMs, stage.updateMs});
  times.computation = [stages = std::move(stages)](const pdcrt::Action& action) {
    const StageTimes& stage = stages[action.stage];
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
  times.transfer = [network](const pdcrt::ScheduleEdge& edge, bool forward) {
    return network->meanTransferMs(edge.from, edge.to, forward);
  };
  times.allReduce = [stages = plan.stages](pdcrt::ActionKind kind, int number) {
    const PlanStage& stage = stages[static_cast<std::size_t>(number)];
    if (!stage.isSharded()) return stage.allReduceMs;
    const bool isSum = kind == pdcrt::ActionKind::reduceScatter;
    return stage.allReduceMs *
           (isSum ? sumShare(stage.replicas, stage.owners()) : gatherShare(stage.replicas, stage.owners()));
  };
  if (!ownLinks) {
    times.links = network->links();
    times.transferLoad = [network](const pdcrt::ScheduleEdge& edge, bool forward, int fromRank, int toRank,
                                   pdcrt::Load& load) {
      network->route(forward ? edge.from : edge.to, forward ? edge.to : edge.from, network->leafOf(fromRank),
                     network->leafOf(toRank), network->bytes(edge.from, edge.to, forward), load);
    };
    times.allReduceLoad = [network](pdcrt::ActionKind kind, int stage, int group, pdcrt::Load& load) {
      network->exchange(kind, stage, group, load);
    };
    times.sharedLoad = [network](const pdcrt::SharedEdge& edge, bool version, int fromRank, int toRank,
                                 pdcrt::Load& load) {
      network->route(version ? edge.owner : edge.user, version ? edge.user : edge.owner, network->leafOf(fromRank),
                     network->leafOf(toRank), network->sharedBytes(edge.owner, edge.user, version), load);
    };
  }
  // The devices of one innermost component share its cores; so do all of a flat cluster.
  const auto splitOf = [&](const PlanRank& rank) {
    return rank.hosts.empty() ? TeamSplit() : plan.stages[static_cast<std::size_t>(rank.hosts[0].stage)].split;
  };
  std::int64_t together = plan.cluster.levels.empty() ? 1 : plan.cluster.levels[0].count;
  const auto coresOf = [&](std::size_t group) {
    return plan.cluster.deviceAt(static_cast<std::int64_t>(group) * together).cores;
  };
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    auto group = static_cast<std::size_t>(network->leafOf(static_cast<int>(r)) / together);
    if (times.groupCores.size() <= group) times.groupCores.resize(group + 1, 0);
    times.coreGroup.push_back(static_cast<int>(group));
  }
  const TeamSplit first = plan.ranks.empty() ? TeamSplit() : splitOf(plan.ranks.front());
  bool alike =
      std::ranges::all_of(plan.ranks, [&](const PlanRank& rank) { return splitOf(rank).members == first.members; });
  for (std::size_t group = 0; group < times.groupCores.size(); ++group)
    alike = alike && shareOfCore(coresOf(group), first) == 1;
  for (std::size_t group = 0; group < times.groupCores.size(); ++group)
    times.groupCores[group] = static_cast<int>(alike ? teamsAtOnce(coresOf(group), first) : coresOf(group));
  // A team that has too few cores slows itself down.
  for (std::size_t r = 0; !alike && r < plan.ranks.size(); ++r)
    times.busyCores.push_back(splitOf(plan.ranks[r]).members);
  return times;
}

/// Actions that all ranks together execute per minibatch.
static double actionsPerMinibatch(const pdcrt::Schedule& schedule) {
  double actions = 0;
  for (const pdcrt::RankList& rank : schedule.ranks)
    actions += static_cast<double>(rank.repeat.size()) / static_cast<double>(rank.step);
  return actions;
}

Simulation pdc::simulate(const Plan& plan, const pdcrt::Schedule& schedule, std::int64_t minibatches, bool trace) {
  return simulate(timesOf(plan), schedule, minibatches, trace);
}

Simulation pdc::simulate(const pdcrt::Times& times, const pdcrt::Schedule& schedule, std::int64_t minibatches,
                         bool trace) {
  constexpr double mostActions = 2e7; // a second or two
  bool untilSteady = minibatches <= 0;
  if (untilSteady) {
    // The transient of a pipeline lasts a few times its depth; whole periods are compared after it. Where transfers
    // that share links never repeat themselves exactly, the mean of many is taken.
    std::int64_t inFlight = pdcrt::minibatchesInFlight(schedule), period = pdcrt::periodMinibatches(schedule);
    minibatches = 24 * inFlight + std::max<std::int64_t>(8 * period, 256);
    double most = mostActions / std::max(1.0, actionsPerMinibatch(schedule));
    if (static_cast<double>(minibatches) > most)
      minibatches = std::max<std::int64_t>(std::min(minibatches, 12 * inFlight), static_cast<std::int64_t>(most));
  }
  Simulation result;
  result.run = pdcrt::check(schedule, minibatches,
                            {.times = &times, .trace = trace, .order = false, .untilSteady = untilSteady});
  result.timePerMinibatchMs = result.run.periodMs;
  for (const pdcrt::RankUse& use : result.run.ranks)
    result.idleFraction.push_back(result.run.finishMs > 0 ? 1 - (use.computeMs + use.sharedMs) / result.run.finishMs
                                                          : 0);
  return result;
}
