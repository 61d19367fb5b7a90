// What a folder of stage programs needs to be built: pipeline.cpp, CMakeLists.txt and README.txt.
#pragma once

#include "pdc/CodeGen/StageEmitter.h"
#include "pdc/Plan/Plan.h"
#include "pdcrt/Training.h"

namespace pdc {

/// Of a stage program: ".cpp", ".cu".
const char* sourceSuffix(Target target);

/// The one main of all executables.
std::string pipelineSource(const Plan& plan, const Provenance& provenance);

/// Executables: `pipeline` with all stages, and one per kind of rank, with the stages that it hosts: `stageK`, or
/// `rankK` (the first such rank) where it hosts several.
std::string cmakeLists(const Plan& plan, const Provenance& provenance, Target target);

/// What to type next, and which files DATA has.
std::string readmeText(const Plan& plan, const Provenance& provenance, Target target, const Graph& main,
                       const pdcrt::Training& training);
/// The data files of @main, one a line after `indent`: "input.npy  f32[samples, 1, 8, 8]".
std::string dataFilesText(const Graph& main, const pdcrt::Training& training, const std::string& indent);

/// For srun --multi-prog: the program of each task.
std::string ranksFile(const Plan& plan, const Provenance& provenance);

/// Neighbouring processes of a run that are the same executable.
struct Processes {
  std::string executable; ///< "stage2", "rank0"
  int first = 0, count = 0;
};
/// All processes of a run, in order: those of rank 0, its members side by side, then those of rank 1, and so on.
std::vector<Processes> processGroups(const Plan& plan);

} // namespace pdc
