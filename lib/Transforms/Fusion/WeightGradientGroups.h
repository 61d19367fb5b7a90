// Which gradients of weights are fusion groups of their own.
#pragma once

#include "pdc/Transforms/GraphUtilities.h"

namespace pdc {

/// Gives each gradient of weights that takes much longer than it would take to send, or with `all` every one that can,
/// a group behind that of its layer, with what it waits for of that. Backward operations have the groups of their
/// origins before. Groups are numbered anew; returns how many there are now.
int separateWeightGradients(Graph& graph, int groups, bool all);

/// When nothing more is fused: what such a group and its layer's both read of other groups' gradients goes through the
/// former to the latter, as a view, which costs nothing. So gradients go from each stage to the next that is concerned,
/// whatever the cut.
Status handGradientsOn(PassContext& context, Graph& graph);

} // namespace pdc
