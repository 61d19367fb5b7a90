// From a placement to a plan.
#pragma once

#include "PipeDream/Sosp19Problem.h"

#include "pdc/Plan/Plan.h"

namespace pdc::sosp19 {

/// Nodes, replicas and nests of the stages only: what decides the time.
Plan outline(const Cluster& cluster, const Problem& problem, const Placement& placement, const std::string& costModel);

/// The whole plan but time and bounds. Ranks lie on the devices that the nest says: the components of a level go to its
/// stages in order. Warm-up is PipeDream's, ceil(devices of this and later stages / replicas) - 1, and memory that of
/// SOSP 2019 §3.3: a version of the weights and of the saved activations for each minibatch in flight.
Plan describe(const CostGraph& graph, const Cluster& cluster, const Problem& problem, const Placement& placement,
              const std::string& costModel);

} // namespace pdc::sosp19
