// What a run of a plan is expected to take: time, where it goes, memory and bytes of every rank; for pdc-sim.
#pragma once

#include "pdc/Predict/Memory.h"

#include <iosfwd>
#include <string>
#include <vector>

namespace pdc {

struct RankPrediction {
  std::string hosts;                 ///< "0.1": stage and replica, of each that it hosts
  pdcrt::RankUse use;                ///< of the time until the end of the run
  std::int64_t peakMemoryBytes = 0;  ///< of its arena
  MemorySplit memory;                ///< what it is for
  std::int64_t memoryLimitBytes = 0; ///< 0: not stated
  std::int64_t bytesSent = 0;
};

struct TraceComparison;

/// What is in use of a rank's arena from a moment on.
struct MemorySample {
  int rank = 0;
  double ms = 0;
  MemorySplit inUse;
};

struct Prediction {
  std::string problem; ///< why the schedule cannot be executed; empty if it can
  bool deadlock = false;
  std::int64_t minibatches = 0; ///< of the run (microbatches, where the schedule flushes)
  double finishMs = 0;
  double timePerMinibatchMs = 0; ///< in the steady state
  /// Idle over total time, summed over the ranks. Where the schedule flushes: from each batch's first to its last
  /// action over all ranks. Elsewhere in the steady state.
  double bubbleFraction = 0;
  /// The same from each rank's own first to its own last action, of each batch or of the run.
  double rankIdleFraction = 0;
  std::vector<RankPrediction> ranks;
  /// Of the first ranks, at most mostCourses: the memory in use over the run, all in intervals of the same length.
  std::vector<MemoryCourse> courses;
  static constexpr int mostCourses = 64;

  std::vector<pdcrt::TracedAction> trace; ///< in the order of ending, with the waits that blocked; if asked for
  std::vector<MemorySample> memory;       ///< if a trace was asked for: every change, in order of time for each rank

  /// Time of all ranks together.
  pdcrt::RankUse use() const;
  /// Part of all ranks' time that they wait for transfers and all-reduces that are under way.
  double exposedCommunicationFraction() const;
};

/// Executes a run of a schedule that is known to be right (scheduleFor) with the plan's times. `minibatches` 0: enough
/// to see the steady state. Peak memory is that of the arena (arenasOf).
Prediction predict(const Plan& plan, const pdcrt::Schedule& schedule, std::int64_t minibatches = 0, bool trace = false);

/// Tables for people: a line per rank, where its time and its memory go, and where the lost time went.
void print(std::ostream& out, const Plan& plan, const Prediction& prediction);

/// One object with time_per_minibatch_ms, bubble_fraction, rank_idle_fraction, peak_memory_bytes and bytes_sent per
/// rank, deadlock, and more; `comparison` with a run, where there is one.
std::string toJson(const Prediction& prediction, const TraceComparison* comparison = nullptr);

} // namespace pdc
