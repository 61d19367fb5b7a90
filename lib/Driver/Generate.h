// From a plan to the files of its stage programs.
#pragma once

#include "OutputFolder.h"
#include "pdc/CodeGen/StageEmitter.h"
#include "pdc/Plan/CostGraph.h"
#include "pdc/Plan/GradientBuckets.h"
#include "pdc/Plan/Plan.h"
#include "pdc/Schedule/ScheduleFile.h"
#include "pdc/Transforms/Transforms.h"
#include "pdcrt/Schedule.h"
#include "pdcrt/Training.h"

namespace pdc {

struct GeneratedProgram {
  Plan plan; ///< with the tensors that cross, and the arena of each stage to the byte
  pdcrt::Schedule schedule;
  std::vector<std::int64_t> liveBytes; ///< by stage: what its arena takes at least, however it is laid out
  std::vector<OutputFile> files;
  std::vector<WeightsFile> weights; ///< the values to begin with, a file per stage
};

/// Cuts @main and @evaluate of the context's module as `plan` says, plans the memory of the stages, makes the schedule
/// and checks it, and writes the programs. Graphs of stages of an earlier call are dropped. Errors: what those steps
/// report; an arena above the device's memory (ExitCode::noPlan). With a `scheduleFile`, that is the schedule. The
/// halves of a backward are functions apart where the schedule separates them, or `splitBackward` says so; else stages
/// that update after each backward do so in the middle of it, unless `lateUpdates`. `bucketBytes`:
/// pdc/Plan/GradientBuckets.h.
Expected<GeneratedProgram> generate(PassContext& context, Plan plan, const pdcrt::Training& training,
                                    const Provenance& provenance, const ScheduleFile* scheduleFile = nullptr,
                                    bool lateUpdates = false, bool splitBackward = false, Target target = Target::cpu,
                                    std::int64_t bucketBytes = defaultBucketBytes);

} // namespace pdc
