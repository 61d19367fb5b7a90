// Schedules that are given in a file instead of by name: pdc's own text (pdcrt/Schedule.h), as printed or as written by
// hand, or a batch as PyTorch's CSV (TorchCsv.h).
#pragma once

#include "pdc/Plan/Plan.h"
#include "pdc/Schedule/TorchCsv.h"

#include <optional>
#include <string>
#include <vector>

namespace pdc {

/// A file whose text has been read; it is not known yet to fit a plan, or to run.
struct ScheduleFile {
  std::string path, name; ///< the name is without folders
  /// What a plan for it must be like: stages, weights, microbatches, and in `kind` the lists of the file, as a kind of
  /// schedule. Without edges, which the plan decides.
  PipelineShape shape;
  std::vector<std::vector<pdcrt::Host>> hosts; ///< by rank
  pdcrt::Schedule schedule;                    ///< of pdc's text
  std::optional<TorchBatch> batch;             ///< of a CSV
};

/// A file is CSV if its name ends with .csv, or its first line holds a comma. Refuses lists for which no plan can be
/// made: ranks that host unequally many stages, or unequally replicated stages together.
Expected<ScheduleFile> readScheduleFile(const std::string& path, Diagnostics& diags);

/// Whether --schedule=`nameOrFile` means a file: what is not the name of a schedule. Where there is none, the error
/// lists the names.
Expected<bool> isScheduleFile(const std::string& nameOrFile, Diagnostics& diags);

/// The file's schedule for `plan`: it must have the plan's stages, replicas, ranks, edges and shared parameters, and is
/// executed like a generated one. Errors state both sides, or show where the schedule goes wrong.
Expected<pdcrt::Schedule> scheduleFor(const Plan& plan, const ScheduleFile& file, Diagnostics& diags);

/// Makes `plan`, which the file fits, say what the file says: schedule, weights, microbatches, warm-ups, and its name.
void adopt(Plan& plan, const ScheduleFile& file);

} // namespace pdc
