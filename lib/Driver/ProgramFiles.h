// The files of a folder of stage programs.
#pragma once

#include "Generate.h"

namespace pdc {

/// A program and a file of weights for each stage. Errors: an operation that the target has no form of.
Status addStageFiles(GeneratedProgram& program, const StagedPlan& staged, const std::vector<MemoryPlan>& memories,
                     const Provenance& provenance, const GenerateOptions& options, PassContext& context);

/// What all stages have in common: how to build and run them, the plan, the schedule, the training and the report.
void addCommonFiles(GeneratedProgram& program, const StagedPlan& staged, const pdcrt::Training& training,
                    const Provenance& provenance, const GenerateOptions& options, const PassContext& context);

} // namespace pdc
