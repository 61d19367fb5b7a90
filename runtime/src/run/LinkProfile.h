// Times messages between two ranks of one machine, while both compute as they do in a pipeline.
#pragma once

#include "Options.h"
#include "transport/Transport.h"

namespace pdcrt {

/// A message of n bytes arrives latency + n / bytesPerSecond seconds after it was posted.
struct LinkTimes {
  double latency = 0;
  double bytesPerSecond = 0;
  double coreTime = 0; ///< seconds that a byte sent or received takes from the core that computes
};

/// To be called by both of the two ranks of `transport`s of one machine at once; rank 0 gets the times, rank 1 zeros.
/// Medians of some rounds with a small and with a large message. False: the other rank is gone.
bool measureLink(Transport& transport, LinkTimes& times);

/// pipeline --link=F.json: measures between two threads (--threads), or two processes that mpirun has started, and
/// writes {"latency_s": …, "bandwidth_bytes_per_s": …, "core_s_per_byte": …}.
Status profileLink(const RunOptions& options);

} // namespace pdcrt
