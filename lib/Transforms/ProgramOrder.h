// Where in program order the operations stand that data do not lead to.
#pragma once

#include "pdc/Transforms/GraphUtilities.h"

#include <set>

namespace pdc {

/// The values that depend on the data. The rest (constants, casts of labels, transposed parameters) has no place of its
/// own in program order: it goes with what uses it.
std::set<const Value*> travellingValues(const Graph& graph);

/// Puts every forward operation without a place of its own right before the first that waits for it; the others keep
/// their order, and so do backward operations, which follow.
void putInProgramOrder(Graph& graph);

} // namespace pdc
