#pragma once

#include "pdcrt/Schedule.h"

#include <cstdint>

namespace pdcrt {

/// What a rank has measured of a stage replica that it hosts.
struct MeasuredStage {
  int rank = 0; ///< of the process
  Host host;
  int member = 0;               ///< of the team
  std::int64_t minibatches = 0; ///< that the replica computed
  double wallSeconds = 0;       ///< in forwards and backwards
  double processorSeconds = 0;  ///< the same, not counting the time in which others had the core
  double waitSeconds = 0;       ///< of the rank
  std::int64_t arenaBytes = 0;  ///< of the rank
  std::int64_t peakBytes = 0;   ///< resident memory of the rank's process
  std::uint64_t bytesSent = 0;  ///< by the rank: values, gradients, all-reduces
  std::uint64_t teamBytes = 0;  ///< of these, to other members of the team, without those of evaluations
  std::int64_t otherBytes = 0;  ///< beside blocks, on the rank's device, when it was ready
};

} // namespace pdcrt
