// What an evaluation tells of layers that deal out rows to places.
#pragma once

#include "pdc/IR/Graph.h"
#include "pdc/Pass/Pass.h"

namespace pdc {

/// Adds an output of kind load for each operation of @evaluate that has one; operations with the same choices have one
/// in common. It is called as the layer is.
Status addLoads(PassContext& context, Graph& graph);

} // namespace pdc
