// The steps of a compilation that say how stages are divided: as flags ask, or as is the fastest (--split).
#include "Compilation.h"

#include "Checks.h"
#include "Measure.h"
#include "PlanFile.h"
#include "Teams.h"

#include <algorithm>

using namespace pdc;

OfferedSplit Compilation::offer(const TeamSplit& split, const Profile* whole) {
  OfferedSplit offer{.split = split};
  std::vector<std::unique_ptr<Graph>> undivided;
  for (const auto& graph : module_->graphs) undivided.push_back(clone(*graph, graph->name()));
  const std::size_t said = diags_.all().size();
  takeSplit(split);
  const auto planned = [&]() -> Expected<Plan> {
    Expected<PlanRequest> request = planRequest(options_, training_, diags_);
    const bool fitsAll = static_cast<bool>(request); // else it may be of use for one stage
    if (!fitsAll) {
      CompileOptions undividedOptions = options_;
      undividedOptions.split = {};
      request = planRequest(undividedOptions, training_, diags_);
    }
    if (!request || !checkTarget(options_, diags_)) return failure;
    const DeviceKind device = request->machines.device;
    const Profile estimateOfWhole = analyticProfile(main(), device, options_.version);
    if (!divideStages()) return failure;
    PassContext passContext = context();
    if (whole)
      offer.profile = scaledProfile(*whole, estimateOfWhole, analyticProfile(main(), device, options_.version));
    const std::size_t before = diags_.all().size();
    Expected<Costs> costs =
        costsOf(passContext, options_, training_, provenance_, *request, whole ? &offer.profile : nullptr);
    std::copy_if(diags_.all().begin() + static_cast<std::ptrdiff_t>(before), diags_.all().end(),
                 std::back_inserter(offer.warnings),
                 [](const Diagnostic& each) { return each.severity == Severity::warning; });
    if (!costs) return failure;
    offer.profile = std::move(costs->profile);
    offer.machines = request->machines;
    offer.costs = std::move(costs->graph);
    if (!fitsAll) return failure;
    return planPipeline(*offer.costs, request->machines, request->planner, diags_);
  };
  if (Expected<Plan> plan = planned()) offer.plan = std::move(*plan);
  const auto& all = diags_.all();
  for (std::size_t i = said; i < all.size() && offer.reason.empty(); ++i)
    if (all[i].severity == Severity::error) offer.reason = all[i].message;
  module_->graphs = std::move(undivided);
  return offer;
}

/// --split=auto. A model that cannot be read is reported when it is read again.
Status Compilation::chooseSplit() {
  if (!takePlannedSplits(options_, diags_)) return failure;
  if (!options_.planFile.empty()) return success;
  const bool isGiven = !options_.stageSplits.empty();
  if ((!options_.choosesSplit && !isGiven) || options_.emit == "ir" || options_.emit == "training-ir" ||
      (isGiven && options_.emit == "split-ir"))
    return success;
  const Expected<PlanRequest> request = planRequest(options_, training_, diags_);
  if (!request) return failure;
  // Rows of padding are left out of the undivided graph only.
  CompileOptions options = options_;
  options.choosesSplit = options.explain = false;
  options.stageSplits.clear();
  options.skipsPadding = options.skipsPadding && !isGiven;
  Diagnostics silent(nullptr);
  Compilation whole(options, out_, silent);
  options.split.members = 2;
  Compilation divided(options, out_, silent);
  if (!whole.toUndividedGraph() || !divided.toUndividedGraph()) return success;
  const bool estimates = options_.profile == "analytic" || options_.target == Target::cuda;
  const SplitTimes times = estimates                         ? SplitTimes::estimated
                           : isProfileFile(options_.profile) ? SplitTimes::scaled
                                                             : SplitTimes::measured;
  const PlanSplit plan = [&](const TeamSplit& split, const Profile* profile) {
    return (split.isNone() ? whole : divided).offer(split, profile);
  };
  // A stage without a split has the groups of those that have one.
  const bool mayMix = canMixSplits(*request, options_) && whole.provenance_.modelHash == divided.provenance_.modelHash;
  if (isGiven && !mayMix)
    return diags_.error({}).exit(ExitCode::unsupported).help("take one --split for all stages")
           << "stages have different splits under schedules with one stage per rank, on CPUs, without shards, "
              "--edge-codec and a schedule in a file only";
  offers_ = offerSplits(isGiven ? splitsOf(options_.stageSplits)
                                : splitsToOffer(request->devices.levels[0].count, options_.splitDegrees, mayMix),
                        times, plan);
  PlannerOptions planner = request->planner;
  planner.stageSplits = options_.stageSplits;
  if (mayMix)
    stages_ = planStages(offers_, times, plan, [&](const CostGraph& graph) -> std::optional<Plan> {
      Expected<Plan> made = planPipeline(graph, offers_.front().machines, planner, isGiven ? diags_ : silent);
      return made ? std::optional(std::move(*made)) : std::nullopt;
    });
  if (isGiven) {
    for (const OfferedSplit& offer : offers_)
      if (!offer.costs)
        return diags_.error({.file = options_.model}).exit(ExitCode::unsupported).help("take another split there")
               << "no stage can have the split " << toText(offer.split) << ": " << offer.reason;
    if (!stages_) return failure;
    profile_ = offers_.front().profile;
    for (const Diagnostic& warning : offers_.front().warnings) diags_.report(warning);
    offers_.clear();
    return success;
  }
  const OfferedSplit* const fastest = fastestOf(offers_);
  const bool isFaster = stages_ && (!fastest || stages_->plan.timeMs < fastest->plan->timeMs * (1 - 1e-9));
  const bool mixes = isFaster && !differentSplits(stages_->plan).empty();
  // Neither search is exact everywhere: a plan with one split may come from the one over the splits of each stage.
  const OfferedSplit* const alike =
      isFaster && !mixes ? &*std::ranges::find(offers_, stages_->plan.stages.front().split, &OfferedSplit::split)
                         : nullptr;
  if (options_.explain) {
    out_ << "splits of all stages:\n" << toText(offers_, isFaster ? nullptr : fastest);
    if (stages_) out_ << "splits of each stage:\n" << toText(stages_->plan, isFaster);
  }
  if (mixes) takeSplitsOf(stages_->plan, options_);
  if (alike) {
    options_.planner.stageReplicas.clear();
    for (const PlanStage& stage : stages_->plan.stages) options_.planner.stageReplicas.push_back(stage.replicas);
  }
  if (!mixes && (alike || fastest)) takeSplit((alike ? alike : fastest)->split);
  if (const OfferedSplit* const taken = mixes ? &offers_.front() : alike ? alike : fastest) {
    profile_ = taken->profile;
    for (const Diagnostic& warning : taken->warnings) diags_.report(warning);
  }
  return success;
}

/// What is proven over all splits, and what others take.
void Compilation::addOffers(Plan& plan) const {
  if (offers_.empty()) return;
  plan.lowerBoundMs =
      std::min(plan.lowerBoundMs, isOverEach(plan.timeMs) ? stages_->plan.lowerBoundMs : lowerBoundOf(offers_));
  plan.optimal = plan.optimal && plan.lowerBoundMs >= plan.timeMs * (1 - 1e-9);
  for (const OfferedSplit& offer : offers_)
    if (!options_.stageSplits.empty() || offer.split != options_.split)
      plan.alternatives.push_back(
          {"--split=" + toText(offer.split), offer.plan ? offer.plan->timeMs : 0, offer.reason});
}
