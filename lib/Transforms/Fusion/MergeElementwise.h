// Merging chains of elementwise operations; the second half of `fuse`.
#pragma once

#include "pdc/Transforms/GraphUtilities.h"

namespace pdc {

/// Merges elementwise operations of one fusion group, phase and shape that feed each other into one `elementwise`
/// operation with a result for every value that something else needs, and writes scalar constants into its expressions.
/// Every value keeps its bits: the merged expressions are those of the members, put into each other.
Status mergeElementwise(PassContext& context, Graph& graph);

} // namespace pdc
