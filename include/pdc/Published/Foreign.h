// The planner for problems that come in other people's formats and with their cost models.
#pragma once

#include "pdc/Planner/Planner.h"
#include "pdc/Published/DnnPartitioning.h"
#include "pdc/Published/Piper.h"

namespace pdc {

/// The contiguous split with the smallest largest load over at most problem.accelerators accelerators and
/// problem.cpus CPUs (cost model `dnn-partitioning`, docs/PlannerModels.md). Stages are in pipeline order; `device`
/// says which are CPUs; times are in the file's unit: a stage's forwardMs and inputGradientMs are those of its forward
/// and backward nodes, without transfers. Of the options only memoryBytes (of an accelerator) and timeLimitS apply.
///
/// Reports ExitCode::invalidInput if edges out of one node differ in cost, and ExitCode::noPlan with the smallest
/// memory and the fewest accelerators that would do.
Expected<Plan> planDnnPartitioning(const DnnPartitioningProblem& problem, const PlannerOptions& options,
                                   Diagnostics& diags);

/// The plan with the smallest largest TPS (cost model `piper`, docs/PlannerModels.md). Stages have data-parallel degree
/// `replicas`, tensor-parallel degree `tensorParallel`, and one choice per node.
Expected<Plan> planPiper(const PiperProblem& problem, const PlannerOptions& options, Diagnostics& diags);

} // namespace pdc
