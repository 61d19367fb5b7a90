// The table at the end of a run: what was predicted for every stage, and what was measured.
#pragma once

#include "RunFiles.h"
#include "measure/MeasuredStage.h"

#include <string>
#include <vector>

namespace pdcrt {

struct MeasuredRun {
  std::vector<MeasuredStage> stages;
  double secondsPerMinibatch = 0;   ///< in the steady state
  bool oneProcess = false;          ///< ranks are threads: they share the resident memory
  std::vector<std::string> sharing; ///< "4 ranks share 2 cores of HOST", one per such machine
};

/// The table as text, with a final newline.
std::string summaryOf(const RunFiles& files, const MeasuredRun& run);

} // namespace pdcrt
