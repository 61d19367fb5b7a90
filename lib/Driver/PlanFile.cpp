#include "PlanFile.h"

#include "Division.h"
#include "OutputFolder.h"
#include "Teams.h"
#include "pdc/Support/DiagnosticsBuilder.h"

#include <algorithm>

using namespace pdc;

static Expected<Plan> planIn(const std::string& file, Diagnostics& diags) {
  const Expected<std::string> text = readFile(file, diags);
  if (!text) return failure;
  return planFromJson(*text, file, diags);
}

Status pdc::takePlannedSplits(CompileOptions& options, Diagnostics& diags) {
  if (options.planFile.empty() || (!options.choosesSplit && options.stageSplits.empty())) return success;
  Expected<Plan> plan = planIn(options.planFile, diags);
  if (!plan) return failure;
  for (std::size_t s = 0; s < std::min(options.stageSplits.size(), plan->stages.size()); ++s)
    plan->stages[s].split = options.stageSplits[s];
  takeSplitsOf(*plan, options);
  if (!options.split.isNone() || !options.stageSplits.empty()) // the plan says which
    options.devices = std::max<std::int64_t>(options.devices, processesOf(*plan));
  return success;
}

Expected<Plan> pdc::readPlan(const CompileOptions& asked, const TeamSplit& split, const std::string& modelHash,
                             const PlanRequest& request, Diagnostics& diags) {
  Expected<Plan> plan = planIn(asked.planFile, diags);
  if (!plan) return failure;
  if (plan->modelHash != modelHash)
    return diags.error({asked.planFile, "", 0, 0}).help("plan again: compile without --plan")
           << "the plan is for a model with hash " << plan->modelHash << ", this one has hash " << modelHash;
  if (!plan->scheduleFile.empty() && !request.file())
    return diags.error({.file = asked.planFile}).help("add --schedule=FILE, or delete \"schedule_file\" there")
           << "the schedule of this plan is in the file '" << plan->scheduleFile << "'";
  if (!asked.stageSplits.empty()) {
    if (!giveSplits(*plan, asked.stageSplits, request.devices, diags)) return failure;
  } else if (!asked.choosesSplit && !checkSplit(*plan, split, diags)) {
    return failure;
  }
  if (!checkTeams(*plan, diags)) return failure;
  return plan;
}
