// What goes from one stage of a plan to another.
#pragma once

#include "pdc/Plan/CostGraph.h"
#include "pdc/Plan/Plan.h"

namespace pdc {

/// Its name, or "tensor7" of one that has none: the name says which parts of a gradient belong together.
std::string nameOfTensor(const CostGraph& graph, std::size_t tensor);

/// Fills in plan.tensors and plan.sharedParameters from the nodes of plan.stages, which must hold every node once.
void describeCrossings(const CostGraph& graph, Plan& plan);

} // namespace pdc
