// What a rank did and when, as Chrome trace events (chrome://tracing, Perfetto): process = rank, threads = compute,
// send, receive, all-reduce. Of a team it is what the first member did.
#pragma once

#include "pdcrt/Schedule.h"
#include "pdcrt/Status.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pdcrt {

/// One rank's events, in memory that is allocated at once: what exceeds it is counted and left out.
class Trace {
public:
  explicit Trace(std::size_t capacity) { events_.reserve(capacity); }

  void add(const Action& action, double begin, double end);
  std::size_t leftOut() const { return leftOut_; }
  /// Writes the rank's events, one JSON object per line, to `path` + ".rank" + `rank`.
  Status writePart(const std::string& path, int rank, double origin) const;
  /// Joins the parts of all ranks into the trace, and removes them.
  static Status join(const std::string& path, int ranks);

private:
  struct Event {
    Action action;
    double begin, end;
  };
  std::vector<Event> events_;
  std::size_t leftOut_ = 0;
};

} // namespace pdcrt
