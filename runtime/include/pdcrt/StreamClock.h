// What measuring needs from a device: points in time of its streams, its name and clock.
#pragma once

#include "pdcrt/Stream.h"

#include <cstddef>
#include <memory>
#include <string>

namespace pdcrt {

/// When a stream came where; on a GPU by its own events, so that nobody waits between two points.
class StreamClock {
public:
  StreamClock();
  ~StreamClock();
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;

  /// The number of a new point, which the stream passes when everything before it is done.
  std::size_t mark(Stream& q);
  /// From one point to another, once the stream has been waited for (device::wait).
  double seconds(std::size_t from, std::size_t to) const;
  /// Forgets all points; the next one is number 0.
  void clear();

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace device {

/// Of the calling thread's device, as its maker calls it; empty on the CPU.
std::string name();
/// Cycles of its processors in a microsecond, counted while they compute; 0 where nobody can say.
double clockMhz(Stream& q);

} // namespace device
} // namespace pdcrt
