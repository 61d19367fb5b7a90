// Who started this process, and as which rank: what launchers leave in the environment. docs/Running.md has the table.
#pragma once

#include <optional>
#include <string>

namespace pdcrt {

struct LaunchedAs {
  int rank, ranks;
  std::string by; ///< name of the variable that holds the rank
};

/// What the launcher of this process set: PDC_*, Open MPI's, PMI's (Hydra, Intel MPI, srun --mpi=pmi2), Slurm's or
/// torchrun's variables. Where several are there, those count that the nearest ancestor has
/// set; of the others this process has only inherited them. What pdc-run has started by mpirun (PDC_LAUNCHED_BY) looks
/// at Open MPI's only.
std::optional<LaunchedAs> launchedAs();

/// Whether pdc-run has started this process by mpirun.
bool isMpirunOfPdcRun();

/// Where the ranks meet without MPI: PDC_MASTER=HOST:PORT, or the port after torchrun's MASTER_ADDR and MASTER_PORT,
/// where it listens itself. Empty: the launcher is MPI's or none, which bring their own.
std::string meetingPoint();

/// Seconds that ranks wait at the start for those that are missing: PDC_PATIENCE, 60 where it is not set.
double startPatience();

/// "RANK=1, WORLD_SIZE=3": variables that look like ranks, and by which this process is none. Empty: there are none.
std::string ignoredRanks();

} // namespace pdcrt
