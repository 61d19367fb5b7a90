// What a folder of stage programs needs to be built: pipeline.cpp, CMakeLists.txt and README.txt.
#pragma once

#include "pdc/CodeGen/StageEmitter.h"
#include "pdc/Plan/Plan.h"

namespace pdc {

/// Of a stage program: ".cpp", ".cu".
const char* sourceSuffix(Target target);

/// The one main of all executables.
std::string pipelineSource(const Plan& plan, const Provenance& provenance);

/// Executables: `pipeline` with all stages, and one per kind of rank, with the stages that it hosts: `stageK`, or
/// `rankK` (the first such rank) where it hosts several.
std::string cmakeLists(const Plan& plan, const Provenance& provenance, Target target);

/// What to type next.
std::string readmeText(const Plan& plan, const Provenance& provenance, Target target);

/// For srun --multi-prog: the program of each task.
std::string ranksFile(const Plan& plan, const Provenance& provenance);

/// The executable of `rank`: "stage2", "rank0".
std::string executableOfRank(const Plan& plan, const PlanRank& rank);

} // namespace pdc
