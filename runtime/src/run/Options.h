// What is typed after a stage program's name. docs/Running.md lists it.
#pragma once

#include "pdcrt/Status.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pdcrt {

struct RunOptions {
  std::string directory; ///< holds plan.json, schedule.txt, training.json and weights/
  std::string data, evaluationData;
  std::int64_t epochs = 0, steps = 0; ///< 0: not given
  std::optional<std::uint64_t> seed;
  std::optional<double> learningRate;
  bool shuffle = true;
  std::vector<double> mean, deviation; ///< of --normalize
  std::optional<Element> tokenType;    ///< of --tokens
  int labelShift = 1;                  ///< of --label-shift
  std::int64_t samples = 0;            ///< of synthetic data
  std::string metricsFile, tensorboardFolder, traceFile, exportFolder, profileFile, linkFile;
  std::int64_t evaluateEvery = 0;   ///< steps; 0: only at the end
  std::string checkpointFolder;     ///< empty: no checkpoints
  std::int64_t checkpointEvery = 0; ///< steps; 0: only at the end
  int checkpointsKept = 2;
  bool resume = false;
  std::int64_t traceEvents = std::int64_t{1} << 18; ///< of each rank, at most; the first ones
  std::int64_t logEvery = 0;                        ///< steps; 0: twenty lines in a run
  int linkTeam = 0; ///< of linkFile: collectives of a team of so many ranks instead; 0: messages between two
  bool threads = false;
  std::string transport; ///< of blocks of GPUs: "nccl", "host"; empty: what there is
  int kernelThreads = 0; ///< OpenMP threads of a rank; 0: those that its program was planned with
  bool synchronousSends = false;
  bool graphs = true; ///< --graphs
  bool tf32 = false;
  bool timesAlgorithms = false; ///< --time-algorithms; whoever is profiled does, too
  int rank = -1;
};

/// Reads flags. `finished` says that --help or --version was printed and nothing else is to be done.
Status parseOptions(int argc, char** argv, RunOptions& options, bool& finished);

} // namespace pdcrt
