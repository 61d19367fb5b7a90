// What a run of a plan is expected to take: time, where it goes, memory and bytes of every rank; for pdc-sim.
#pragma once

#include "pdc/Schedule/PlanSchedule.h"

#include <iosfwd>
#include <string>
#include <vector>

namespace pdc {

class Diagnostics;

struct RankPrediction {
  std::string hosts;                 ///< "0.1": stage and replica, of each that it hosts
  pdcrt::RankUse use;                ///< of the time until the end of the run
  std::int64_t peakMemoryBytes = 0;  ///< of its arena
  std::int64_t memoryLimitBytes = 0; ///< 0: not stated
  std::int64_t bytesSent = 0;
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
  std::vector<pdcrt::TracedAction> trace; ///< in the order of ending, if asked for
};

/// Executes a run with the plan's times. `minibatches` 0: enough to see the steady state. Peak memory is what the plan
/// states for its own schedule, corrected for slots, versions and buffers where `schedule` is another.
Prediction predict(const Plan& plan, const pdcrt::Schedule& schedule, std::int64_t minibatches = 0, bool trace = false);

/// A table for people: a line per rank, and where the lost time went.
void print(std::ostream& out, const Plan& plan, const Prediction& prediction);

/// One object with time_per_minibatch_ms, bubble_fraction, rank_idle_fraction, peak_memory_bytes and bytes_sent per
/// rank, deadlock, and more.
std::string toJson(const Prediction& prediction);

/// Chrome trace events in the schema of pdcrt/Trace.h: process = rank, threads = compute, send, receive, all-reduce.
/// `measured`, a trace of a run, is joined: its ranks are processes of their own, named "rank N (measured)".
std::string traceText(const Plan& plan, const Prediction& prediction, const std::string& measured = "");

/// How a measured trace differs from the prediction: mean duration of each kind of action per stage, and the time per
/// minibatch, both with the error of the prediction.
struct TraceComparison {
  struct Row {
    std::string action; ///< stage and letters: "1F"
    std::int64_t count = 0;
    double predictedMs = 0, measuredMs = 0; ///< means
  };
  std::vector<Row> rows;
  double predictedPerMinibatchMs = 0, measuredPerMinibatchMs = 0; ///< of stage 0's backwards; 0: too few
};

/// Reads a trace that a run has written; the prediction must hold its own trace.
Expected<TraceComparison> compare(const Prediction& prediction, const std::string& measured, const std::string& file,
                                  Diagnostics& diags);
void print(std::ostream& out, const TraceComparison& comparison);

} // namespace pdc
