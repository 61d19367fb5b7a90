// The planner of cost model `pdc`: solver, then warm-up and time as the simulator confirms them.
#pragma once

#include "pdc/Planner/Planner.h"

namespace pdc {

/// planPipeline with options.costModel == "pdc". The schedule of the plan has passed its check, and its simulated time
/// per minibatch is within 1 % of timeMs. Where the definition promises more than the simulator shows (a replicated
/// plan that needs more minibatches in flight than fit into memory), timeMs is what the simulator shows and the plan is
/// not called optimal. Pipelines of more ranks than the simulator executes quickly are not simulated.
Expected<Plan> planPdc(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                       Diagnostics& diags);

} // namespace pdc
