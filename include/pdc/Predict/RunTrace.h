// What ranks did and when: predicted, or measured and read from a Chrome trace in the schema of
// runtime/src/measure/Trace.h. Both in one form, so that whatever is said of the one can be said of the other; and how
// they differ.
#pragma once

#include "pdc/Predict/Prediction.h"

#include <array>
#include <iosfwd>
#include <string>
#include <vector>

namespace pdc {

/// In order of their ends: computations; transfers, from when both ends were posted until they arrived (`action` is the
/// send, `rank` the sender, `peerRank` the receiver); all-reduces, from when the last rank had joined (`rank` is the
/// one that the trace names first); and waits that have blocked a rank. The first event starts at 0 ms.
using RunTrace = std::vector<pdcrt::TracedAction>;

/// Reads a trace that a run of `plan` has written with --trace.
Expected<RunTrace> readTrace(const Plan& plan, const std::string& text, const std::string& file, Diagnostics& diags);

/// Gives the stages of `plan` the mean times that their computations took in the middle half of a run: of this plan, or
/// of another one with the same stages. The halves of a backward that the run computed as one keep their proportion;
/// what it did not compute keeps the plan's time. What the plan says of the whole (time_ms) stays as it is.
void takeTimes(Plan& plan, const RunTrace& run);

/// Chrome trace events in the schema of runtime/src/measure/Trace.h: process = rank, threads = compute, send, receive,
/// all-reduce; a counter "memory" per rank shows what is in use. `measured`, the text of a trace of a run, is joined:
/// its ranks are processes of their own, named "rank N (measured)".
std::string traceText(const Plan& plan, const Prediction& prediction, const std::string& measured = "");

/// What a run spent its time on, in the middle half of its minibatches: parts of all ranks' time, which add up to 1.
struct TimeShares {
  double compute = 0;
  double transfers = 0; ///< waiting for transfers that were under way
  double allReduce = 0; ///< waiting for all-reduces that were under way
  double waiting = 0;   ///< waiting for what had not started
  double other = 0;     ///< none of these: what the runtime itself takes
};
struct SharePart {
  const char* name; ///< for people
  const char* key;  ///< in JSON
  double TimeShares::*share;
};
inline constexpr std::array<SharePart, 5> shareParts = {
    {{"computing", "compute", &TimeShares::compute},
     {"waiting for transfers under way", "exposed_transfers", &TimeShares::transfers},
     {"waiting for all-reduces under way", "exposed_all_reduce", &TimeShares::allReduce},
     {"waiting for other ranks", "waiting", &TimeShares::waiting},
     {"nothing of these", "other", &TimeShares::other}}};

/// How a measured trace differs from the prediction.
struct TraceComparison {
  /// Mean duration of one kind of action of a stage.
  struct Row {
    std::string action; ///< as in schedule.txt, without the minibatch: "1F", "1SF>2", "0AR"
    std::int64_t count = 0;
    double predictedMs = 0, measuredMs = 0;
    bool isComputation = false;
  };
  std::vector<Row> rows; ///< of actions that both traces have: nobody predicts an evaluation
  double predictedPerMinibatchMs = 0, measuredPerMinibatchMs = 0; ///< of stage 0's backwards; 0: too few
  TimeShares predictedShares, measuredShares;

  /// predicted / measured - 1; 0 where nothing was measured.
  static double error(double predictedMs, double measuredMs) {
    return measuredMs > 0 ? predictedMs / measuredMs - 1 : 0;
  }
  /// Mean of the computations' absolute errors, weighted by the time that they took.
  double computationError() const;
};

/// The prediction must hold its own trace.
TraceComparison compare(const Plan& plan, const Prediction& prediction, const RunTrace& measured);
void print(std::ostream& out, const TraceComparison& comparison);

} // namespace pdc
