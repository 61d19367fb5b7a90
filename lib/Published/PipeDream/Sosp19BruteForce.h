// The optimum of the recurrences of Sosp19.h by evaluating them as they are written.
#pragma once

#include "pdc/Plan/Cluster.h"
#include "pdc/Plan/CostGraph.h"

#include <string>

namespace pdc {

/// A^L(all nodes, m_L) in ms, over all chains of down-sets, component counts and nests. Exponential: for graphs of up
/// to about ten nodes. Works from the definition and shares nothing with the solver.
double sosp19BruteForce(const CostGraph& graph, const Cluster& cluster, const std::string& costModel);

} // namespace pdc
