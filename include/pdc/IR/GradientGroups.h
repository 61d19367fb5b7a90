// Fusion groups that compute gradients of weights for the group below them.
//
// The gradient of a large layer's weights is in a group of its own (`fuse`). What it reads crosses a cut below it in
// the forward, and the gradients of what the layer makes pass through it on their way down.
#pragma once

#include "pdc/IR/Graph.h"

#include <map>

namespace pdc {

/// Whether a backward operation is in another group than the forward operation that it comes from: in the one that
/// computes gradients of weights for it.
bool isAboveItsOrigin(const Operation& operation);

/// The group that computes gradients of weights for each group that has one.
std::map<int, int> gradientGroups(const Graph& training);

/// The values that other groups use of those that have a group of gradients, each with that group: it comes before
/// their users in every plan.
std::map<const Value*, int> passedOn(const Graph& training);

} // namespace pdc
