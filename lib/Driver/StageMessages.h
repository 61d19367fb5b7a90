// What the programs of the stages send each other, as they have it: from this the plan gets its tensors and the
// schedule its edges, and it is verified before anything is written.
#pragma once

#include "pdc/Memory/MemoryPlan.h"
#include "pdc/Pass/Pass.h"
#include "pdc/Plan/Plan.h"
#include "pdc/Stage/StagePasses.h"
#include "pdcrt/Schedule.h"

#include <vector>

namespace pdc {

/// Makes `plan` say what crosses between the stages: its tensors, and where their gradients take other ways than along
/// the chain of stages that have a part of them, its gradients too.
void describeMessages(const std::vector<StageGraphs>& stages, Plan& plan);

/// What of `planned` is to be encoded is encoded in the graphs, and `plan` says so. Errors: a tensor cannot be encoded.
Status encodeMessages(PassContext& context, const Plan& planned, Plan& plan, const PipelineOptions& pipeline);

/// Verifies that the tables of the programs fit each other and the schedule: whatever one stage sends, the other
/// expects at the same place, and both do so when the schedule says. Errors: ExitCode::internal.
Status verifyMessages(const std::vector<MemoryPlan>& stages, const pdcrt::Schedule& schedule, Diagnostics& diags);

} // namespace pdc
