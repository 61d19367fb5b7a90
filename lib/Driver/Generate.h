// From a plan to the files of its stage programs.
#pragma once

#include "OutputFolder.h"
#include "pdc/CodeGen/StageEmitter.h"
#include "pdc/Plan/CostGraph.h"
#include "pdc/Plan/GradientBuckets.h"
#include "pdc/Plan/Plan.h"
#include "pdc/Schedule/ScheduleFile.h"
#include "pdc/Stage/StagePasses.h"
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

struct GenerateOptions {
  const ScheduleFile* scheduleFile = nullptr; ///< the schedule
  /// Stages that update after each backward do so after it, not in the middle.
  bool lateUpdates = false;
  /// The halves of a backward are functions apart, also where the schedule does not separate them.
  bool splitBackward = false;
  /// Values that one pass gives again are not kept (computeAgain), where the backward has the forward's weights.
  bool computeAgain = false;
  Target target = Target::cpu;
  std::int64_t bucketBytes = defaultBucketBytes; ///< pdc/Plan/GradientBuckets.h
};

/// Cuts @main and @evaluate of the context's module as `plan` says, plans the memory of the stages, makes the schedule
/// and checks it, and writes the programs. Graphs of stages of an earlier call are dropped. Errors: what those steps
/// report; an arena above the device's memory (ExitCode::noPlan).
Expected<GeneratedProgram> generate(PassContext& context, Plan plan, const pdcrt::Training& training,
                                    const Provenance& provenance, const GenerateOptions& options);

} // namespace pdc
