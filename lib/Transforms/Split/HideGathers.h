// A backward gathers again what a forward has gathered, for gradients of weights (Choice::gathered). The gather needs
// nothing of the backward: it starts before the gradient of the input is computed. The gradient of the weight then
// stands behind the start of the sum that scatters the gradient of the input.
#pragma once

#include "pdc/IR/OpDef.h"

#include <unordered_set>

namespace pdc {

/// Whether it starts a collective that another operation finishes.
inline bool isStart(const Operation& operation) {
  return operation.def().split.half == CollectiveHalf::start;
}

/// Moves such starts to the begin of the backward of their groups, and gradients of weights right behind the last start
/// of the backward of their group, unless they read something that is made later. Returns these starts.
std::unordered_set<const Operation*> hideGathers(Graph& graph);

} // namespace pdc
