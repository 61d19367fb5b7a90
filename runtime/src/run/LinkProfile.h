// Times messages between two ranks of one machine, while both compute as they do in a pipeline, and collectives of a
// team.
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

/// A collective in which a member sends n bytes takes latency + n / bytesPerSecond seconds.
struct CollectiveTimes {
  double latency = 0, bytesPerSecond = 0;
};
struct TeamTimes {
  CollectiveTimes sum, exchange; ///< all-reduces of f32, and all-to-alls
};

/// To be called by all ranks of `transport`s at once, which are one team; each gets its own times. Medians of some
/// rounds with few and with many bytes, in which the members wait for the result. False: another rank is gone.
bool measureTeam(Transport& transport, int members, TeamTimes& times);

/// pipeline --link=F.json: measures between two threads (--threads), or two processes that mpirun or PDC_* have
/// started, and writes {"latency_s": …, "bandwidth_bytes_per_s": …, "core_s_per_byte": …}. With --team=N: in a team of
/// as many,
/// {"team_sum": {"latency_s": …, "bandwidth_bytes_per_s": …}, "team_exchange": {…}}.
Status profileLink(const RunOptions& options);

} // namespace pdcrt
