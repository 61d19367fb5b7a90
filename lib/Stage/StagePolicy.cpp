#include "pdc/Stage/StagePolicy.h"

#include "pdc/Memory/RankArena.h"

#include <algorithm>

using namespace pdc;

namespace {

/// Whether other minibatches come between the halves of a backward.
bool splitsBackward(const pdcrt::Schedule& schedule) {
  auto isHalf = [](const pdcrt::Action& action) { return action.kind == pdcrt::ActionKind::backwardInput; };
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [&](const pdcrt::RankList& rank) {
    return std::any_of(rank.start.begin(), rank.start.end(), isHalf) ||
           std::any_of(rank.repeat.begin(), rank.repeat.end(), isHalf);
  });
}

/// Whether every minibatch of a replica of `stage` is followed by the update with its gradients, before the replica
/// computes anything else of the stage.
bool updatesFollowBackwards(const pdcrt::Schedule& schedule, int stage) {
  const pdcrt::ScheduleStage& shape = schedule.stages[static_cast<std::size_t>(stage)];
  if (shape.syncDelay > 0 || schedule.minibatchesOfUpdate(stage) != 1) return false;
  for (const pdcrt::RankList& rank : schedule.ranks) {
    std::int64_t awaited = -1; // the minibatch whose update must come next; -1: none
    auto follows = [&](const std::vector<pdcrt::Action>& list, std::int64_t later) {
      for (const pdcrt::Action& action : list) {
        if (action.stage != stage || action.wait || !pdcrt::isComputation(action.kind)) continue;
        const bool update = action.kind == pdcrt::ActionKind::update;
        if (update != (awaited >= 0) || (update && action.index + later != awaited + 1)) return false;
        awaited = -1;
        if (action.kind == pdcrt::ActionKind::backward) awaited = action.index + later;
      }
      return true;
    };
    if (!follows(rank.start, 0) || !follows(rank.repeat, 0) || !follows(rank.repeat, rank.step)) return false;
  }
  return true;
}

bool hosts(const PlanRank& rank, int stage) {
  return std::any_of(rank.hosts.begin(), rank.hosts.end(),
                     [&](const PlanRank::Host& host) { return host.stage == stage; });
}

/// Whether replicas of `stage` have one slot, and their ranks no other stage.
bool hasOneSlot(const Plan& plan, const pdcrt::Schedule& schedule, int stage) {
  return schedule.stages[static_cast<std::size_t>(stage)].slots == 1 &&
         std::none_of(plan.ranks.begin(), plan.ranks.end(),
                      [&](const PlanRank& rank) { return rank.hosts.size() > 1 && hosts(rank, stage); });
}

/// Whether the backward of a stage may read the weights that its forward has converted: it would get the same version
/// anyway, one minibatch is in flight, and every device has room for them beside what the planner reckons with.
bool keepsConversions(const Plan& plan, const pdcrt::Schedule& schedule, const StageGraphs& stage) {
  const PlanStage& planned = plan.stages[static_cast<std::size_t>(stage.stage)];
  if (planned.recompute || schedule.weights == pdcrt::WeightPolicy::latest || !hasOneSlot(plan, schedule, stage.stage))
    return false;
  const std::int64_t kept = keptBytes(*stage.training);
  if (kept == 0) return false; // nothing is converted
  const std::int64_t bytes = planned.memoryBytes + kept;
  return std::all_of(plan.ranks.begin(), plan.ranks.end(), [&](const PlanRank& rank) {
    return !hosts(rank, stage.stage) || bytes <= memoryLimitOf(plan, rank);
  });
}

std::string joined(const std::vector<int>& numbers) {
  std::string text;
  for (int number : numbers) text += (text.empty() ? "" : ":") + std::to_string(number);
  return text;
}

} // namespace

std::string pdc::whyLateUpdates(const StagePolicyOptions& options, const pdcrt::Schedule& schedule, int stage) {
  if (options.lateUpdates) return "--updates=late";
  // An update is work of its own on a GPU: a phase is recorded once, but the learning rate of an update changes.
  if (options.target != Target::cpu) return "the target is no CPU";
  if (options.checksGradients) return "an update looks at all gradients first";
  if (options.splitBackward || splitsBackward(schedule)) return "the halves of its backward are apart";
  if (!updatesFollowBackwards(schedule, stage)) return "no update follows each backward at once";
  return {};
}

bool pdc::updatesEarly(const StagePolicyOptions& options, const pdcrt::Schedule& schedule) {
  for (std::size_t stage = 0; stage < schedule.stages.size(); ++stage)
    if (!schedule.stages[stage].sums() && !whyLateUpdates(options, schedule, static_cast<int>(stage)).empty())
      return false;
  return true;
}

std::vector<StagePolicy> pdc::stagePolicies(const Plan& plan, const pdcrt::Schedule& schedule,
                                            const std::vector<StageGraphs>& stages, const StagePolicyOptions& options) {
  const bool splitBackward = options.splitBackward || splitsBackward(schedule);
  std::vector<StagePolicy> policies;
  for (const StageGraphs& stage : stages) {
    StagePolicy& policy = policies.emplace_back();
    policy.stage = stage.stage;
    policy.recompute = plan.stages[static_cast<std::size_t>(stage.stage)].recompute;
    policy.splitBackward = splitBackward;
    policy.whyLate = whyLateUpdates(options, schedule, stage.stage);
    policy.earlyUpdates = policy.whyLate.empty();
    policy.gradientsInParts = policy.earlyUpdates && !options.debugNan;
    // With the newest weights, a backward would not recompute the values that its forward had.
    policy.computeAgain = options.computeAgain && schedule.weights != pdcrt::WeightPolicy::latest;
    policy.keepConversions = keepsConversions(plan, schedule, stage);
    policy.oneSlot = hasOneSlot(plan, schedule, stage.stage);
  }
  return policies;
}

PipelineStep pdc::splitStep(const std::vector<int>& stageOfGroup, const std::vector<TeamSplit>& splits) {
  PipelineStep step = {"split-stages", {{"stages", joined(stageOfGroup)}}};
  if (splits.empty()) return step;
  std::string& list = step.options["splits"];
  for (const TeamSplit& split : splits) list += (list.empty() ? "" : "/") + toText(split);
  return step;
}

PipelineStep pdc::encodeStep(const std::string& codec, const std::string& tensors) {
  return {"encode-edges", {{"codec", codec}, {"tensors", tensors}}};
}

std::vector<PipelineStep> pdc::stageSteps(const std::vector<StagePolicy>& policies) {
  std::vector<PipelineStep> steps;
  auto add = [&](const char* pass, auto isChosen, std::map<std::string, std::string> options = {}) {
    std::vector<int> chosen;
    for (const StagePolicy& policy : policies)
      if (isChosen(policy)) chosen.push_back(policy.stage);
    if (chosen.empty()) return;
    if (chosen.size() < policies.size()) options["stages"] = joined(chosen);
    steps.push_back({pass, std::move(options)});
  };
  add("recompute", [](const StagePolicy& policy) { return policy.recompute; });
  add("weight-gradients-early", [](const StagePolicy& policy) { return !policy.earlyUpdates; });
  add("weight-gradients-early", [](const StagePolicy& policy) { return policy.earlyUpdates; }, {{"after-readers", ""}});
  add("gradients-together", [](const StagePolicy& policy) { return policy.gradientsInParts; });
  add("compute-again", [](const StagePolicy& policy) { return policy.computeAgain && !policy.splitBackward; });
  add("compute-again", [](const StagePolicy& policy) { return policy.computeAgain && policy.splitBackward; },
      {{"halves", ""}});
  add("keep-conversions", [](const StagePolicy& policy) { return policy.keepConversions; });
  return steps;
}

std::string pdc::toText(const std::vector<StagePolicy>& policies) {
  std::string text;
  for (const StagePolicy& policy : policies) {
    text += "stage " + std::to_string(policy.stage) + ": the backward ";
    text += policy.recompute && policy.computeAgain ? "recomputes its forward and cheap values"
            : policy.recompute                      ? "recomputes its forward"
            : policy.computeAgain                   ? "recomputes cheap values"
                                                    : "recomputes nothing";
    if (policy.keepConversions) text += ", and reads the weights that the forward has converted";
    if (policy.splitBackward) text += "; its halves are apart";
    text += policy.earlyUpdates ? "; parameters are updated inside it"
                                : "; parameters are updated after it (" + policy.whyLate + ")";
    if (policy.gradientsInParts) text += ", large gradients in parts";
    if (policy.oneSlot) text += "; one minibatch is in flight";
    text += "\n";
  }
  return text;
}
