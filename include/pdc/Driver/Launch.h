// Building and running what pdc has generated.
#pragma once

#include "pdc/Driver/Toolchain.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Expected.h"

#include <iosfwd>
#include <string>
#include <vector>

namespace pdc {

struct LaunchOptions {
  std::string folder;                 ///< with plan.json, stage programs, CMakeLists.txt
  std::vector<std::string> arguments; ///< of the generated program
  bool threads = false;               ///< all ranks in one process, without MPI
  std::string hostfile;               ///< of mpirun
  std::string address;                ///< of this machine for the others; empty: its host name
  double watchdogSeconds = 0;         ///< without any progress, after which a run counts as hung; 0: of the plan
  int maxRestarts = 0;                ///< of a run that has lost a rank, from its newest checkpoint
  std::string model;                  ///< that the folder was generated from, if it is not where it was
  std::string exportFile;             ///< trained.onnx to write afterwards; empty: none
  std::string stateDict;              ///< the module's state_dict to write afterwards; empty: none
  std::string adapter;                ///< DIR[,strip=PREFIX]: PEFT's files of the adapters; empty: none
  std::string exportFolder;           ///< where to keep the trained weights; empty: nowhere
};

/// mpirun with the flags and the environment that suit ranks of pdc: the beginning of a command; how many ranks of
/// which program is to follow.
Command mpiCommand();

/// Builds the folder (into its subfolder out, only what has changed), runs the pipeline to its end, writes the folder's
/// report.html again with what was measured, and writes the trained model and the module's state_dict. Without --trace
/// and --metrics among the arguments, and without a hostfile, the run leaves trace.json (of its beginning) and
/// metrics.jsonl in the folder. Returns the exit code of the run. Errors, before anything is trained: no plan there,
/// the model is gone or another one, what was asked for cannot be written, the build fails; afterwards: report or model
/// cannot be written.
Expected<int> launch(const LaunchOptions& options, std::ostream& out, Diagnostics& diags);

/// The file in an output folder that holds the path of the ONNX model, relative to the folder, and its checksum.
inline constexpr const char* modelPathFile = "model.txt";

} // namespace pdc
