// What goes from one stage of a plan to another.
#pragma once

#include "pdc/Plan/CostGraph.h"
#include "pdc/Plan/Plan.h"

namespace pdc {

/// Fills in plan.tensors and plan.sharedParameters from the nodes of plan.stages, which must hold every node once.
void describeCrossings(const CostGraph& graph, Plan& plan);

} // namespace pdc
