// report.html: what a plan is, what a run of it is expected to take, and, after a run, what it took. One file with
// inline SVG: no network, no script.
#pragma once

#include "pdc/Predict/RunTrace.h"

#include <string>
#include <vector>

namespace pdc {

/// What a run wrote with --metrics.
struct RunMetrics {
  struct Loss {
    double step = 0, loss = 0;
  };
  struct Evaluation {
    double step = 0, loss = 0, value = 0;
    std::string metric;
  };
  /// The terms of the loss, by name.
  struct Term {
    std::string name;
    std::vector<Loss> values;
  };
  /// How a layer has dealt out rows to its experts.
  struct Load {
    std::string layer;
    double dropped = 0;              ///< share of the rows that found no room
    double fullest = 0;              ///< rows of the fullest expert over their mean
    std::vector<double> shares = {}; ///< of each expert, of the rows that found room
  };
  std::vector<Loss> losses; ///< finite ones, in the order of the file
  std::vector<Term> terms;  ///< likewise
  std::vector<Evaluation> evaluations;
  std::vector<Load> loads; ///< of the last evaluation that tells some
};

/// Reads one JSON object per line; lines that say nothing of loss or evaluation are left out.
Expected<RunMetrics> readMetrics(const std::string& text, const std::string& file, Diagnostics& diags);

/// What is known of a run; each may be missing.
struct MeasuredRun {
  RunTrace trace;
  RunMetrics metrics;
};

/// The text of report.html. Simulates a run of bounded size; the same input gives the same bytes. Large plans are cut:
/// what is left out is counted.
std::string reportHtml(const Plan& plan, const pdcrt::Schedule& schedule, const MeasuredRun& run = {});

} // namespace pdc
