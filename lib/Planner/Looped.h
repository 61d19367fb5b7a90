// Plans for schedules whose ranks host several stages (interleaved:V, zb-v).
#pragma once

#include "pdc/Planner/Planner.h"

namespace pdc {

/// p·V stages on p ranks, in R copies (p·R devices or fewer; p >= 2 unless there is one device), for the p and R that
/// the simulator finds fastest. The stages are intervals of the program order, cut so that the longest is as short as
/// any such cut allows, and then so that few bytes cross. That is a good plan, not the best: plan.lowerBoundMs is only
/// what no plan of such a schedule can beat,
///
///   min over (p, R) of max( n·Σ(F + B) / p, Σ(F + B) of one minibatch ) / m,   n = ceil(m/R)
///
/// (of the second B without all weight gradients but the least, where the backward is split), and plan.optimal is set
/// only if the time reaches it. Reports ExitCode::noPlan if the graph has too few places to cut it, or memory does not
/// suffice, and ExitCode::unsupported for what such schedules do not know: unequal devices, unequal replicas, a
/// warm-up, microbatches that the ranks of `interleaved` do not divide.
Expected<Plan> planLooped(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                          Diagnostics& diags);

} // namespace pdc
