// The cost graphs of one model in several splits, as one graph whose stages may each have another one.
#pragma once

#include "pdc/Plan/CostGraph.h"

#include <vector>

namespace pdc {

/// `whole`, which is undivided, with the graphs of splits of the same model. Their groups are the same. Tensors are
/// matched by the name of the whole value, and the group that makes it; one that a split does without, or has alone,
/// takes no bytes in the others, and is its own (CostTensor::isOwn).
CostGraph joinedCosts(CostGraph whole, std::vector<CostGraph> divided);

} // namespace pdc
