#include "SplitChoice.h"

#include "Measure.h"
#include "Teams.h"
#include "pdc/Analysis/JoinedCosts.h"

#include <algorithm>
#include <iomanip>
#include <limits>
#include <sstream>

using namespace pdc;

std::vector<TeamSplit> pdc::splitsToOffer(std::int64_t devices, const std::vector<int>& degrees, bool ofEach) {
  constexpr int most = 8;
  std::vector<int> sorted = degrees;
  for (int members = 2; degrees.empty() && members <= most; ++members)
    if (devices % members == 0 || (ofEach && members < devices && (members == 2 || members == 4)))
      sorted.push_back(members);
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::vector<TeamSplit> splits = {{}};
  for (const int members : sorted) {
    splits.push_back({.members = members});
    splits.push_back({.members = members, .tokens = true, .weights = true});
    splits.push_back({.members = members, .tokens = true});
    splits.push_back({.members = members, .tokens = true, .experts = true});
  }
  return splits;
}

std::vector<TeamSplit> pdc::splitsOf(const std::vector<TeamSplit>& stages) {
  std::vector<TeamSplit> splits = {{}};
  for (const TeamSplit& split : stages)
    if (std::ranges::find(splits, split) == splits.end()) splits.push_back(split);
  return splits;
}

/// The time with which an offer takes part.
static double timeOf(const OfferedSplit& offer, double leastGain) {
  if (!offer.plan) return std::numeric_limits<double>::infinity();
  return offer.plan->timeMs * (offer.split.isNone() ? 1 - leastGain : 1);
}

const OfferedSplit* pdc::fastestOf(const std::vector<OfferedSplit>& offers, double leastGain) {
  const OfferedSplit* fastest = nullptr;
  for (const OfferedSplit& offer : offers) {
    if (!offer.plan) continue;
    const double ms = timeOf(offer, leastGain), leastMs = fastest ? timeOf(*fastest, leastGain) : 0;
    if (!fastest || ms < leastMs || (ms == leastMs && offer.split.members < fastest->split.members)) fastest = &offer;
  }
  return fastest;
}

double pdc::leastTimeOf(const std::vector<OfferedSplit>& offers, double leastGain) {
  double least = std::numeric_limits<double>::infinity();
  for (const OfferedSplit& offer : offers) least = std::min(least, timeOf(offer, leastGain));
  return least;
}

/// The fastest of the plans that are near the fastest, and whose times are not measured; none where there is none.
static OfferedSplit* toMeasure(std::vector<OfferedSplit>& offers, const SplitOffers& how) {
  const double near = how.mostByMeasuring * leastTimeOf(offers, how.leastGain);
  OfferedSplit* next = nullptr;
  for (OfferedSplit& offer : offers)
    if (offer.plan && offer.profile.source == "scaled" && offer.plan->timeMs <= near &&
        (!next || offer.plan->timeMs < next->plan->timeMs))
      next = &offer;
  return next;
}

std::vector<OfferedSplit> pdc::offerSplits(const std::vector<TeamSplit>& splits, const SplitOffers& how) {
  std::vector<OfferedSplit> offers = {how.plan(splits.front(), nullptr)};
  const Profile whole = offers.front().profile;
  const bool scales = how.times != SplitTimes::estimated && !whole.groups.empty();
  for (std::size_t i = 1; i < splits.size(); ++i) offers.push_back(how.plan(splits[i], scales ? &whole : nullptr));
  if (how.times != SplitTimes::measured) return offers;
  while (OfferedSplit* const next = toMeasure(offers, how)) *next = how.plan(next->split, nullptr);
  return offers;
}

std::optional<StagesPlan> pdc::planStages(std::vector<OfferedSplit>& offers, const SplitOffers& how, bool isGiven,
                                          const std::function<std::optional<Plan>(CostGraph&)>& planGraph) {
  if (!offers.front().costs) return std::nullopt;
  while (true) {
    std::vector<CostGraph> divided;
    for (std::size_t i = 1; i < offers.size(); ++i)
      if (offers[i].costs) {
        divided.push_back(*offers[i].costs);
        divided.back().split = offers[i].split;
      }
    if (divided.empty()) return std::nullopt;
    StagesPlan stages{.graph = joinedCosts(*offers.front().costs, std::move(divided)), .plan = {}};
    std::optional<Plan> made = planGraph(stages.graph);
    if (!made) return std::nullopt;
    const bool mayBeTaken = isGiven || made->timeMs < leastTimeOf(offers, how.leastGain) * (1 - 1e-9);
    bool isMeasured = true;
    for (OfferedSplit& offer : offers) {
      const bool isUsed =
          std::ranges::any_of(made->stages, [&](const auto& stage) { return stage.split == offer.split; });
      if (!isUsed || !mayBeTaken || how.times != SplitTimes::measured || offer.profile.source != "scaled") continue;
      offer = how.plan(offer.split, nullptr);
      isMeasured = false;
    }
    stages.plan = std::move(*made);
    if (isMeasured) return stages;
  }
}

Profile pdc::scaledProfile(const Profile& whole, const Profile& estimateOfWhole, const Profile& estimateOfMember) {
  Profile scaled = whole;
  if (whole.source == "measured") scaled.source = "scaled";
  scaled.modelHash = estimateOfMember.modelHash;
  const auto scale = [](double measured, double before, double now) {
    return before > 0 ? measured * now / before : now;
  };
  for (std::size_t g = 0; g < scaled.groups.size(); ++g) {
    const GroupTimes &before = estimateOfWhole.groups[g], &now = estimateOfMember.groups[g];
    for (double GroupTimes::*time :
         {&GroupTimes::forwardMs, &GroupTimes::inputGradientMs, &GroupTimes::weightGradientMs, &GroupTimes::updateMs})
      scaled.groups[g].*time = scale(scaled.groups[g].*time, before.*time, now.*time);
    if (scaled.groups[g].earlyUpdateMs)
      scaled.groups[g].earlyUpdateMs = scale(*scaled.groups[g].earlyUpdateMs, before.updateMs, now.updateMs);
  }
  scaled.updateMs = scale(whole.updateMs, estimateOfWhole.updateMs, estimateOfMember.updateMs);
  scaled.accumulateMs = scale(whole.accumulateMs, estimateOfWhole.updateMs, estimateOfMember.updateMs);
  scaled.stepMs = scale(whole.stepMs, estimateOfWhole.stepMs, estimateOfMember.stepMs);
  return scaled;
}

double pdc::lowerBoundOf(const std::vector<OfferedSplit>& offers) {
  double least = std::numeric_limits<double>::infinity();
  for (const OfferedSplit& offer : offers)
    if (offer.plan) least = std::min(least, offer.plan->lowerBoundMs);
  return least;
}

std::string pdc::overText(const std::vector<OfferedSplit>& offers, bool ofEach) {
  const std::string over = ofEach ? ", over the splits of each stage: " : ", over the same split of all stages: ";
  std::string text;
  for (const OfferedSplit& offer : offers)
    if (ofEach ? offer.costs.has_value() : offer.plan.has_value())
      text += (text.empty() ? over : ", ") + toText(offer.split);
  return text;
}

WhyUndivided pdc::whyUndivided(const PlanRequest& request, const CompileOptions& options) {
  const PlannerOptions& planner = request.planner;
  if (request.devices.deviceCount() == 1) return {.reason = "there is one device"};
  if (request.file()) return {.reason = "the schedule is in a file"};
  if (options.emit == "annotated-onnx") return {.reason = "--emit=annotated-onnx writes the split that --split names"};
  if (planner.schedule->stagesPerRank > 1)
    return {.reason = "under '" + planner.schedule.name() + "' each rank has several stages"};
  if (!planner.stageShards.empty()) return {.reason = "--shard says what the stages are"};
  if (planner.edgeCodec.policy != EdgeCodecPolicy::none) return {.reason = "--edge-codec says what stages send"};
  if (!planner.stageReplicas.empty()) return {.reason = "--replicas says what the stages are"};
  if (planner.warmupPolicy == WarmupPolicy::given) return {.reason = "--warmup says what the stages are"};
  if (options.target == Target::cuda) return {.reason = "times of GPUs are estimated", .unlessNothingFits = true};
  if (options.profile == "analytic") return {.reason = timesAreEstimated, .unlessNothingFits = true};
  if (isProfileFile(options.profile))
    return {.reason = "times of splits would be scaled from those in '" + options.profile + "'",
            .unlessNothingFits = true};
  return {};
}

bool pdc::canMixSplits(const PlanRequest& request, const CompileOptions& options) {
  return request.planner.schedule->stagesPerRank == 1 && !request.file() && options.target == Target::cpu &&
         request.planner.edgeCodec.policy == EdgeCodecPolicy::none;
}

std::string pdc::toText(const Plan& plan, bool isTaken) {
  std::ostringstream text;
  text << (isTaken ? "  taken  " : "         ");
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PlanStage& stage = plan.stages[s];
    text << (s > 0 ? ", " : "") << toText(stage.split);
    if (stage.replicas > 1) text << " in " << stage.replicas << " replicas";
  }
  text << ": " << std::fixed << std::setprecision(3) << plan.timeMs << " ms per minibatch\n";
  return text.str();
}

std::string pdc::toText(const std::vector<OfferedSplit>& offers, const OfferedSplit* taken) {
  std::ostringstream text;
  text << std::fixed;
  for (const OfferedSplit& offer : offers) {
    text << (&offer == taken ? "  taken  " : "         ") << std::left << std::setw(8) << toText(offer.split)
         << std::right;
    if (!offer.plan) {
      text << "no plan: " << offer.reason << "\n";
      continue;
    }
    double compute = 0, team = 0;
    std::int64_t memory = 0, devices = 0;
    for (const PlanStage& stage : offer.plan->stages) {
      compute += stage.computeMs() - stage.forwardTeamMs - stage.backwardTeamMs;
      team += stage.forwardTeamMs + stage.backwardTeamMs;
      memory = std::max(memory, stage.memoryBytes);
      devices += std::int64_t{stage.replicas} * offer.split.members;
    }
    text << std::setprecision(3) << offer.plan->timeMs << " ms per minibatch, " << offer.plan->stages.size()
         << (offer.plan->stages.size() == 1 ? " stage" : " stages") << " on " << devices
         << (devices == 1 ? " device" : " devices") << "; of a minibatch, members compute " << compute
         << " ms and wait for each other " << team << " ms; " << std::setprecision(1)
         << static_cast<double>(memory) / 1e6 << " MB at most; times " << offer.profile.source << "\n";
  }
  return text.str();
}
