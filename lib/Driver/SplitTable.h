// What each stage of a plan would take with each split that is offered, for --explain.
#pragma once

#include "SplitChoice.h"

#include <string>

namespace pdc {

/// A line for each stage and each split of `offers` that has costs: what a member computes, waits for its team, keeps
/// and sends to the team, and what of it binds the stage; the other stages, replicas and warm-up are those of `plan`.
std::string tableOfSplits(const std::vector<OfferedSplit>& offers, const Plan& plan, const PlannerOptions& planner);

} // namespace pdc
