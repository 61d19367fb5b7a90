// --expert-loads: how experts are loaded, as a run has measured it, and where that places them.
#pragma once

#include "pdc/Support/Diagnostics.h"
#include "pdc/Transforms/Split.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pdc {

/// Where a layer's experts are to lie.
struct ExpertPlan {
  std::vector<std::int32_t> order; ///< of which each member has equally many that follow one another
  double before = 0, after = 0; ///< the share of its tokens that the fullest member has: in the file's order, in this
  double lowerBound = 0;        ///< no order has a smaller one
};
using ExpertPlans = std::map<std::string, ExpertPlan>; ///< by the names of layers

/// From the last evaluation in `file`, the metrics of a run, or its folder. Layers whose experts the members cannot
/// have equally many of are left out. An error if there is no such file, or nothing of loads in it.
Expected<ExpertPlans> plansOfExperts(const std::string& file, std::int64_t members, Diagnostics& diags);

/// For --explain: the fullest member of each layer before and after, or why the layer keeps the file's order.
std::string toText(const ExpertPlans& plans, const std::vector<PlacedLayer>& placed, std::int64_t members);

} // namespace pdc
