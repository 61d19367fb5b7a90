// Says that a model is being profiled, what of it, and how long it took: on a terminal in one line that is overwritten
// every second, else in remarks at the beginning and the end.
#pragma once

#include "pdc/Support/Diagnostics.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace pdc {

class ProfilingProgress {
public:
  /// Remarks go to `diags`, which outlives it.
  explicit ProfilingProgress(Diagnostics& diags);
  ProfilingProgress(const ProfilingProgress&) = delete;
  ProfilingProgress& operator=(const ProfilingProgress&) = delete;
  /// Takes the line away.
  ~ProfilingProgress();

  /// What begins now: "building the program that measures".
  void step(const std::string& what);
  /// All is measured: says how long it took.
  void done();

private:
  void show();
  double seconds() const;

  Diagnostics& diags_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point begin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  bool ended_ = false;
  std::thread line_; ///< writes the line, on a terminal
};

} // namespace pdc
