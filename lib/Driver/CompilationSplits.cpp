// The steps of a compilation that say how stages are divided: as flags ask, or as is the fastest (--split).
#include "Compilation.h"

#include "Checks.h"
#include "Measure.h"
#include "Teams.h"

#include <algorithm>

using namespace pdc;

static std::vector<std::unique_ptr<Graph>> clonesOf(const std::vector<std::unique_ptr<Graph>>& graphs) {
  std::vector<std::unique_ptr<Graph>> clones;
  for (const auto& graph : graphs) clones.push_back(clone(*graph, graph->name()));
  return clones;
}

static std::vector<Diagnostic> warningsFrom(const Diagnostics& diags, std::size_t first) {
  std::vector<Diagnostic> warnings;
  std::copy_if(diags.all().begin() + static_cast<std::ptrdiff_t>(first), diags.all().end(),
               std::back_inserter(warnings), [](const Diagnostic& each) { return each.severity == Severity::warning; });
  return warnings;
}

/// Rows of padding are left out of graphs only that no team divides.
Status Compilation::skipPadding() {
  const std::vector<PipelineStep> steps = paddingSteps(choices());
  if (steps.empty()) return success;
  if (offersSplits()) toDivide_ = clonesOf(module_->graphs);
  const std::size_t operations = main().operations().size();
  if (!run(steps)) return failure;
  if (main().operations().size() == operations) toDivide_.clear(); // nothing is left out
  return success;
}

Expected<Plan> Compilation::planOffer(OfferedSplit& offer, const Profile* whole) {
  Expected<PlanRequest> request = planRequest(options_, training_, *said_);
  const bool fitsAll = static_cast<bool>(request); // else it may be of use for one stage
  if (!fitsAll) {
    CompileOptions undivided = options_;
    undivided.split = {};
    request = planRequest(undivided, training_, *said_);
  }
  if (!request || !checkTarget(options_, *said_) || !divideStages()) return failure;
  PassContext passContext = context();
  if (whole)
    offer.profile =
        scaledProfile(*whole, estimate_, analyticProfile(main(), request->machines.device, options_.version));
  const std::size_t before = said_->all().size();
  Expected<Costs> costs =
      costsOf(passContext, options_, training_, provenance_, *request, whole ? &offer.profile : nullptr);
  offer.warnings = warningsFrom(*said_, before);
  for (std::size_t i = before; i < said_->all().size(); ++i)
    if (said_->all()[i].severity == Severity::remark) diags_.report(said_->all()[i]); // of a measurement
  if (!costs) return failure;
  offer.profile = std::move(costs->profile);
  offer.machines = request->machines;
  offer.costs = std::move(costs->graph);
  if (!fitsAll) return failure;
  return planPipeline(*offer.costs, request->machines, request->planner, *said_);
}

OfferedSplit Compilation::offer(const TeamSplit& split, const Profile* whole) {
  OfferedSplit offer{.split = split};
  const CompileOptions options = options_;
  auto graphs = std::exchange(module_->graphs, clonesOf(toDivide_));
  Diagnostics silent(nullptr);
  said_ = &silent;
  options_.stageSplits.clear();
  options_.explain = false;
  takeSplit(split);
  if (Expected<Plan> plan = planOffer(offer, whole)) offer.plan = std::move(*plan);
  for (const Diagnostic& each : silent.all())
    if (each.severity == Severity::error && offer.reason.empty()) offer.reason = each.message;
  said_ = &diags_;
  options_ = options;
  module_->graphs = std::move(graphs);
  return offer;
}

/// The offer that is always there, all of whose messages are those of a compilation without others.
Status Compilation::offerNone(PlanRequest& request, std::optional<Costs>& costs) {
  PassContext passContext = context();
  const std::size_t before = diags_.all().size();
  Expected<Costs> made = costsOf(passContext, options_, training_, provenance_, request);
  if (!made) return failure;
  costs = std::move(*made);
  OfferedSplit& none = offers_.emplace_back();
  none.warnings = warningsFrom(diags_, before);
  none.profile = costs->profile;
  none.machines = request.machines;
  none.costs = costs->graph;
  if (!options_.stageSplits.empty()) return success;
  Diagnostics silent(nullptr);
  if (Expected<Plan> plan = planPipeline(*none.costs, none.machines, request.planner, silent))
    none.plan = std::move(*plan);
  else if (!silent.all().empty())
    none.reason = silent.all().front().message;
  return success;
}

/// Why the splits of a list are not those of stages, if they are not.
Status Compilation::checkGivenSplits(bool mayMix) {
  if (!mayMix)
    return diags_.error({}).exit(ExitCode::unsupported).help("take one --split for all stages")
           << "stages have different splits under schedules with one stage per rank, on CPUs, without "
              "--edge-codec and a schedule in a file only";
  for (const OfferedSplit& offer : offers_)
    if (!offer.costs)
      return diags_.error({.file = options_.model}).exit(ExitCode::unsupported).help("take another split there")
             << "no stage can have the split " << toText(offer.split) << ": " << offer.reason;
  return success;
}

Status Compilation::chooseSplit(PlanRequest& request, std::optional<Costs>& costs) {
  const bool isGiven = !options_.stageSplits.empty();
  WhyUndivided why = options_.splitIsDefault ? whyUndivided(request, options_) : WhyUndivided();
  undivided_ = why.reason;
  if (!why.reason.empty() && !why.unlessNothingFits) return success;
  if (toDivide_.empty()) toDivide_ = clonesOf(module_->graphs), skipsRows_ = false;
  if (!offerNone(request, costs)) return failure;
  if (options_.splitIsDefault && why.reason.empty() && costs->profile.source != "measured") why = {timesAreEstimated};
  if (offers_.front().plan && !why.reason.empty()) {
    undivided_ = why.reason;
    chosen_ = std::move(offers_.front().plan);
    offers_.clear();
    return success;
  }
  undivided_.clear();
  const auto isMain = [](const auto& graph) { return graph->name() == "main"; };
  estimate_ = estimatedTimes(**std::ranges::find_if(toDivide_, isMain), request.machines.device, options_.version);
  const bool mayMix = canMixSplits(request, options_) && !skipsRows_;
  if (isGiven && !mayMix) return checkGivenSplits(mayMix);
  const bool estimates = options_.profile == "analytic" || options_.target == Target::cuda;
  const SplitTimes times = estimates                         ? SplitTimes::estimated
                           : isProfileFile(options_.profile) ? SplitTimes::scaled
                                                             : SplitTimes::measured;
  const SplitOffers offers = {.times = times,
                              .leastGain = options_.splitIsDefault ? leastGainByDefault : 0,
                              // Nobody asked to wait for measurements of what does not seem to gain.
                              .mostByMeasuring = options_.splitIsDefault ? 1 : 1.3,
                              .plan = [&](const TeamSplit& split, const Profile* profile) {
                                return split.isNone() ? offers_.front() : offer(split, profile);
                              }};
  offers_ = offerSplits(isGiven ? splitsOf(options_.stageSplits)
                                : splitsToOffer(request.devices.levels[0].count, options_.splitDegrees, mayMix),
                        offers);
  if (isGiven && !checkGivenSplits(mayMix)) return failure;
  PlannerOptions planner = request.planner;
  planner.stageSplits = options_.stageSplits;
  Diagnostics silent(nullptr);
  bool isConstrained = false;
  if (mayMix)
    stages_ = planStages(offers_, offers, isGiven, [&](CostGraph& graph) -> std::optional<Plan> {
      if (options_.planFromModel && !annotated_.constrain(graph, planner, isConstrained ? silent : diags_))
        return std::nullopt;
      isConstrained = true;
      Expected<Plan> made = planPipeline(graph, offers_.front().machines, planner, isGiven ? diags_ : silent);
      return made ? std::optional(std::move(*made)) : std::nullopt;
    });
  if (isGiven) {
    if (!stages_) return failure;
    chosen_ = stages_->plan;
    costs->graph = stages_->graph;
    request.planner.stageReplicas = planner.stageReplicas;
    offers_.clear();
    return success;
  }
  takeFastest(offers, costs);
  return success;
}

void Compilation::takeFastest(const SplitOffers& offers, std::optional<Costs>& costs) {
  const OfferedSplit* const fastest = fastestOf(offers_, offers.leastGain);
  const bool isFaster = stages_ && stages_->plan.timeMs < leastTimeOf(offers_, offers.leastGain) * (1 - 1e-9);
  const bool mixes = isFaster && !differentSplits(stages_->plan).empty();
  // Neither search is exact everywhere: a plan with one split may come from the one over the splits of each stage.
  const OfferedSplit* const alike =
      isFaster && !mixes ? &*std::ranges::find(offers_, stages_->plan.stages.front().split, &OfferedSplit::split)
                         : nullptr;
  if (options_.explain) {
    out_ << "splits of all stages:\n" << toText(offers_, isFaster ? nullptr : fastest);
    if (stages_) out_ << "splits of each stage:\n" << toText(stages_->plan, isFaster);
  }
  if (mixes) {
    takeSplitsOf(stages_->plan, options_);
    chosen_ = stages_->plan;
    costs->graph = stages_->graph;
  } else if (const OfferedSplit* const taken = alike ? alike : fastest) {
    takeSplit(taken->split);
    if (!alike) chosen_ = taken->plan;
    if (alike && taken->split.isNone()) chosen_ = stages_->plan;
    if (taken->split.isNone()) return;
    if (alike) {
      options_.planner.stageReplicas.clear();
      for (const PlanStage& stage : stages_->plan.stages) options_.planner.stageReplicas.push_back(stage.replicas);
    }
    module_->graphs = std::move(toDivide_);
    costs.reset();
    profile_ = taken->profile;
    for (const Diagnostic& warning : taken->warnings)
      if (std::ranges::none_of(diags_.all(), [&](const auto& said) { return said.message == warning.message; }))
        diags_.report(warning);
  }
}

/// What is proven over all splits, and what others take.
void Compilation::addOffers(Plan& plan) const {
  if (offers_.empty()) return;
  plan.lowerBoundMs =
      std::min(plan.lowerBoundMs, isOverEach(plan.timeMs) ? stages_->plan.lowerBoundMs : lowerBoundOf(offers_));
  plan.optimal = plan.optimal && plan.lowerBoundMs >= plan.timeMs * (1 - 1e-9);
  // Without a gain nothing else differs from what --split=none writes.
  if (options_.splitIsDefault && options_.split.isNone() && options_.stageSplits.empty()) return;
  for (const OfferedSplit& offer : offers_)
    if (!options_.stageSplits.empty() || offer.split != options_.split)
      plan.alternatives.push_back(
          {"--split=" + toText(offer.split), offer.plan ? offer.plan->timeMs : 0, offer.reason});
}
