// --explain for placement problems: what other devices and other plans would cost.
#pragma once

#include "pdc/Planner/Planner.h"
#include "pdc/Published/DnnPartitioning.h"
#include "pdc/Published/Piper.h"

#include <string>

namespace pdc {

/// The time of the best plan for changed problems, each with its ratio to `plan`.
std::string explainProblem(const DnnPartitioningProblem& problem, const PlannerOptions& options, const Plan& plan);
std::string explainProblem(const PiperProblem& problem, const PlannerOptions& options, const Plan& plan);

} // namespace pdc
