// Which operations form one fusion group; the first half of `fuse`.
#pragma once

#include "pdc/Transforms/GraphUtilities.h"

namespace pdc {

/// Sets Operation::group on every operation: intervals of forward program order, numbered from 0 without gaps, each
/// with at most one operation that is worth a cut before it; backward operations follow their origin. Puts the
/// operations of a group side by side, and gives each group its own copies of the constants that it uses.
Status assignFusionGroups(PassContext& context, Graph& graph);

} // namespace pdc
