// What the tests trust: plans evaluated straight from the definitions, and the best plan by trying all.
#pragma once

#include "pdc/Cost/CostModel.h"

#include <optional>
#include <string>

namespace pdc {

/// Time and memory of a plan's stages, replicas and warm-up on `graph`, by following every minibatch of one period
/// along its route and adding up what each device, link and all-reduce has to do. Shares no code with solver and cost
/// model. Only for 1f1b.
PlanCost evaluateByDefinition(const CostGraph& graph, const Plan& plan, const PlannerOptions& options);

/// What is wrong with a plan for `graph`: nodes missing or in two stages, tensors that go backwards, colours torn
/// apart, devices used twice, memory over the limit, or a time that is not what the definition gives (relative 1e-9;
/// only for 1f1b). Empty if nothing is.
std::string verifyPlan(const CostGraph& graph, const Plan& plan, const PlannerOptions& options);

/// The best partition among all of them by loadMs, each evaluated by evaluateByDefinition (1f1b) or by a long
/// simulation (flushing schedules), with the warm-up that costOf gives it. Exponential: for graphs of up to about ten
/// nodes.
std::optional<PlanCost> bruteForce(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options);

} // namespace pdc
