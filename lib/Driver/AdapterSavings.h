// What adapters save in the memory of each stage.
#pragma once

#include "Generate.h"

#include <set>
#include <string>

namespace pdc {

/// A line per stage: bytes of the weights in all versions, of gradients, and of what the optimizer keeps, with adapters
/// and where everything in `trainedBefore`, the parameters that trained before adapters were added, were trained in
/// full.
std::string savingsText(const StagedPlan& staged, const std::set<std::string>& trainedBefore,
                        const pdcrt::Training& training);

} // namespace pdc
