// What the planner is asked: the machines, the options that follow from flags, training and schedule file, and what the
// programs of any plan will be like. Made in one place, before costs are known.
#pragma once

#include "pdc/Driver/Compile.h"
#include "pdc/Schedule/ScheduleFile.h"
#include "pdc/Stage/StagePolicy.h"

#include <optional>

namespace pdc {

struct PlanRequest {
  PlannerOptions planner;
  std::optional<ScheduleFile> scheduleFile; ///< the schedule, where it is given in a file
  Cluster machines;                         ///< with teams as devices, where stages are divided
  Cluster devices;                          ///< the machines as they are
  bool teamSums = false;                    ///< members of a team have terms of the gradients
  int threads = 1;                          ///< OpenMP threads of a rank's kernels
  StagePolicyOptions stages;                ///< what flags and training say about the passes of the stages

  const ScheduleFile* file() const { return scheduleFile ? &*scheduleFile : nullptr; }
  /// The lists that stages with one replica will get: those of the file, or those of one rank under the named schedule.
  pdcrt::Schedule expectedSchedule() const;
};

/// Errors: a file that cannot be read, or is none of a schedule or cluster.
Expected<PlanRequest> planRequest(const CompileOptions& options, const pdcrt::Training& training, Diagnostics& diags);

} // namespace pdc
