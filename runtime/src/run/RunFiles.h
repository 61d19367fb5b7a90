// The files beside a stage program: plan.json, schedule.txt and training.json. They are read and verified at start, so
// that editing them by hand is allowed and safe.
#pragma once

#include "Options.h"
#include "exec/Executor.h"
#include "pdcrt/Schedule.h"
#include "pdcrt/Stage.h"
#include "pdcrt/StoredTensor.h"
#include "pdcrt/Training.h"
#include "pdcrt/WriteFile.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pdcrt {

/// What the plan expects of a stage.
struct PredictedStage {
  double computeMs = 0; ///< forward and both gradients of a minibatch
  double memoryBytes = 0;
  double teamBytes = 0; ///< that a member sends to its team per minibatch
};

struct RunFiles {
  Schedule schedule;
  Training training; ///< with what flags override
  std::vector<PredictedStage> predicted;
  bool encodesEdges = false; ///< tensors cross between stages encoded
  double timeMs = 0;         ///< predicted per minibatch of the pipeline
  std::string modelHash;
  std::string adapters;    ///< what adapters.json says, as it is; empty: there is none
  std::uint64_t hash = 0;  ///< of plan, schedule, training and flags: every rank must have the same
  std::uint64_t build = 0; ///< of the stage programs, their compiler and the runtime: likewise
};

/// Reads and checks the files of options.directory. Fails with Exit::invalid.
Status readRunFiles(const RunOptions& options, RunFiles& files);

/// Executes the schedule for a run of `minibatches`, or for one that drains alike and is shorter (Verify.h). Fails with
/// Exit::invalid and a picture of who waits for whom.
Status checkSchedule(const Schedule& schedule, std::int64_t minibatches);

/// Opens all of DIR/weights/*.safetensors. Fails with Exit::badData.
Status openInitial(const std::string& directory, StoredTensors& tensors);

/// Initial weights and state: all tensors of DIR/weights/*.safetensors, by name.
Status initialWeights(const std::string& directory, Executor& executor);

/// Writes the newest weights and the state of every hosted stage of replica 0 to FOLDER/stageK.safetensors; what a
/// member of a team alone has, to FOLDER/stageK.memberM.safetensors (StoredTensor.h). `adapters` (RunFiles) go with
/// them as metadata.
Status exportWeights(const std::string& folder, const std::string& adapters, Executor& executor);

/// The sums, by name, of the values in DIR/weights of the frozen parameters that hosted stages use. Fails with
/// Exit::badData.
Status frozenSums(const std::string& directory, Executor& executor, std::map<std::string, FileSum>& sums);

} // namespace pdcrt
