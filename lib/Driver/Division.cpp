#include "Division.h"

#include "Teams.h"
#include "pdc/Support/DiagnosticsBuilder.h"

#include <algorithm>
#include <ostream>

using namespace pdc;

/// Adds the graphs of one split, without what hides its collectives.
static Status addGraphsOf(PassContext& context, const TeamSplit& split, const DivisionRequest& request) {
  if (!checkSamples(*context.module.findGraph("main"), split, request.batch, context.diags)) return failure;
  const bool places = split.experts && !request.options.expertLoads.empty();
  const Expected<ExpertPlans> plans = places ? plansOfExperts(request.options.expertLoads, split.members, context.diags)
                                             : Expected<ExpertPlans>(ExpertPlans());
  std::vector<SplitClass> classes;
  std::vector<PlacedLayer> placed;
  if (!plans || !divideOverTeam(context, split, *plans, classes, placed)) return failure;
  if (request.options.explain)
    request.out << "split " << toText(split) << ":\n" << toText(classes) << toText(*plans, placed, split.members);
  return success;
}

static Status checkLoads(const std::vector<TeamSplit>& splits, const CompileOptions& options, Diagnostics& diags) {
  if (options.expertLoads.empty() || std::ranges::any_of(splits, &TeamSplit::experts)) return success;
  std::string list;
  for (const TeamSplit& split : splits) list += (list.empty() ? "" : ",") + toText(split);
  return diags.error({}).exit(ExitCode::usage).help("add --split=ep:N")
         << "--expert-loads places experts on the members of a team, and --split=" << list
         << " does not divide them by expert";
}

static Status runHiding(const DivisionRequest& request) {
  PipelineStep hide{.argument = "hide-collectives", .options = {}};
  if (request.options.target == Target::cpu) hide.options["parts"] = "";
  return request.run({hide});
}

Status pdc::divideAlike(PassContext& context, const TeamSplit& split, const DivisionRequest& request) {
  if (!checkLoads({split}, request.options, context.diags)) return failure;
  if (split.isNone()) return success;
  if (!addGraphsOf(context, split, request)) return failure;
  takeGraphsOf(context.module, split);
  return runHiding(request);
}

Status pdc::divideEach(PassContext& context, const std::vector<TeamSplit>& splits, const std::vector<KernelTime>& times,
                       const DivisionRequest& request) {
  if (!checkLoads(splits, request.options, context.diags)) return failure;
  const Module& module = context.module;
  for (const TeamSplit& split : splits)
    if (!split.isNone() && !module.findGraph("main" + suffixOf(split)) && !addGraphsOf(context, split, request))
      return failure;
  if (!runHiding(request)) return failure;
  // What was copied from @main is for other shapes.
  return times.empty() ? success : chooseAlgorithms(context.module, times, "", context.diags, request.options.target);
}

void pdc::takeSplitsOf(const Plan& plan, CompileOptions& options) {
  options.stageSplits = differentSplits(plan);
  options.split = options.stageSplits.empty() ? plan.stages.front().split : TeamSplit{};
}
