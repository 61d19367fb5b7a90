// --plan: a plan that was made before, or by hand.
#pragma once

#include "PlanRequest.h"
#include "pdc/Driver/Compile.h"

#include <string>

namespace pdc {

/// Before the model is read: `options` take over the splits that the stages of options.planFile have, or get by
/// options.stageSplits, where they leave them to it.
Status takePlannedSplits(CompileOptions& options, Diagnostics& diags);

/// The plan in asked.planFile, with the splits that `asked` gives its stages. Errors: it is for another model, another
/// split of all stages than `split`, or a schedule in a file that is not given; its teams cannot run.
Expected<Plan> readPlan(const CompileOptions& asked, const TeamSplit& split, const std::string& modelHash,
                        const PlanRequest& request, Diagnostics& diags);

} // namespace pdc
