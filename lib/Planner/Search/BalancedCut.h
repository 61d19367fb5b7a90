// Cuts a graph's program order into intervals of about equal work.
#pragma once

#include "pdc/Plan/CostGraph.h"

namespace pdc {

/// Places between nodes where a cut tears no colour apart: the first node after each, ascending.
std::vector<std::int64_t> placesToCut(const CostGraph& graph);

/// Ends of `count` intervals, as for partitionOfIntervals: the longest computation of one is as short as possible, and
/// among such cuts the bytes that cross the places are fewest. Needs `count` - 1 places; takes count · places^2 steps
/// at worst, far fewer as a rule.
std::vector<std::int64_t> balancedCut(const CostGraph& graph, const std::vector<std::int64_t>& places, int count);

} // namespace pdc
