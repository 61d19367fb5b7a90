// What flags, target and training forbid, or ask of a plan.
#pragma once

#include "PlanRequest.h"

namespace pdc {

/// Errors: a precision that the target lacks. Warns of products that keep f32, and of gradients that f16 loses.
Status checkPrecision(const CompileOptions& options, const Graph& main, const pdcrt::Training& training,
                      Diagnostics& diags);

/// Errors: a flag that the target cannot do.
Status checkTarget(const CompileOptions& options, Diagnostics& diags);

/// Decides whether the stages of `plan` add up the norms of their gradients before they update. Errors: what the
/// plan's schedule cannot do for `training`, which are clipping by the norm of all gradients, a dynamic loss scale, and
/// a loss that is a mean over an update.
Status fitToTraining(Plan& plan, const PlanRequest& request, const CompileOptions& options,
                     const pdcrt::Training& training, const Graph& main, Diagnostics& diags);

} // namespace pdc
