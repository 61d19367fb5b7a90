// From a plan to the files of its stage programs, in two steps: the plan gets its stages and its schedule, and these
// become programs.
#pragma once

#include "OutputFolder.h"
#include "pdc/CodeGen/StageEmitter.h"
#include "pdc/IR/SharedParameters.h"
#include "pdc/Plan/GradientBuckets.h"
#include "pdc/Plan/Plan.h"
#include "pdc/Schedule/ScheduleFile.h"
#include "pdc/Stage/StagePolicy.h"
#include "pdcrt/Schedule.h"
#include "pdcrt/Training.h"

namespace pdc {

struct GenerateOptions {
  const ScheduleFile* scheduleFile = nullptr;    ///< the schedule; null: the one that the plan names
  StagePolicyOptions stages;                     ///< what the flags say about the passes of the stages
  std::int64_t bucketBytes = defaultBucketBytes; ///< pdc/Plan/GradientBuckets.h
  int threads = 1;                               ///< OpenMP threads of a rank's kernels
  PipelineOptions pipeline;                      ///< of the passes of the stages
};

/// A plan whose stages have graphs: @main and @evaluate are cut, the schedule is made and checked, and the policy of
/// every stage is decided. No pass but split-stages has run.
struct StagedPlan {
  Plan plan; ///< with the tensors that cross
  pdcrt::Schedule schedule;
  std::vector<StageGraphs> stages;
  std::vector<SharedParameter> shared; ///< parameters of the model that several stages use
  std::vector<StagePolicy> policies;   ///< by stage
};

/// Cuts @main and @evaluate of the context's module as `plan` says. Graphs of stages of an earlier call are dropped.
/// Errors: the plan does not fit the model; its schedule cannot run.
Expected<StagedPlan> stagePlan(PassContext& context, Plan plan, const GenerateOptions& options);

struct GeneratedProgram {
  Plan plan; ///< with the arena of each stage, to the byte
  pdcrt::Schedule schedule;
  std::vector<std::int64_t> liveBytes; ///< by stage: what its arena takes at least, however it is laid out
  std::vector<OutputFile> files;
  std::vector<WeightsFile> weights; ///< the values to begin with, a file per stage
};

/// Runs the passes of the stages, plans their memory, and writes the programs. `options` are those of stagePlan.
/// Errors: what these steps report; an arena above the device's memory (ExitCode::noPlan).
Expected<GeneratedProgram> generate(PassContext& context, StagedPlan staged, const pdcrt::Training& training,
                                    const Provenance& provenance, const GenerateOptions& options);

} // namespace pdc
