// The table at the end of a run: what was predicted for every stage, and what was measured.
#pragma once

#include "run/RunFiles.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pdcrt {

/// What a rank has measured of a stage replica that it hosts.
struct MeasuredStage {
  int rank = 0;
  Host host;
  std::int64_t minibatches = 0; ///< that the replica computed
  double wallSeconds = 0;       ///< in forwards and backwards
  double processorSeconds = 0;  ///< the same, not counting the time in which others had the core
  double waitSeconds = 0;       ///< of the rank
  std::int64_t arenaBytes = 0;  ///< of the rank
  std::int64_t peakBytes = 0;   ///< resident memory of the rank's process
  std::uint64_t bytesSent = 0;  ///< by the rank: values, gradients, all-reduces
  std::int64_t otherBytes = 0;  ///< beside blocks, on the rank's device, when it was ready
};

struct MeasuredRun {
  std::vector<MeasuredStage> stages;
  double secondsPerMinibatch = 0;   ///< in the steady state
  bool oneProcess = false;          ///< ranks are threads: they share the resident memory
  std::vector<std::string> sharing; ///< "4 ranks share 2 cores of HOST", one per such machine
};

/// The table as text, with a final newline.
std::string summaryOf(const RunFiles& files, const MeasuredRun& run);

} // namespace pdcrt
