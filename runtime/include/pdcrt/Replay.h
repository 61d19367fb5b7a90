// Phases that are put into a stream again and again. On a GPU each launch of a kernel costs the host microseconds: the
// calls of a phase are recorded once per combination of the memory that it works on (weights version, slot, gradient
// set, buffers of edges), as a CUDA graph, and launched as one from then on. On the CPU a phase is called each time.
//
// All arguments of a phase but the draw come from rings, so the combinations are few. Random operators find the number
// of the minibatch in memory of the device, which is written before each launch of a phase that has such.
#pragma once

#include "pdcrt/Stage.h"

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

namespace pdcrt {

/// One phase with one combination of arguments.
class Recording {
public:
  Recording();
  ~Recording();
  Recording(Recording&&) noexcept;
  Recording& operator=(Recording&&) noexcept;

  /// Does what `phase(call)` does, in the stream of the call. The first time it is called, the second time recorded:
  /// what a library does when it is first used (it loads code) is not recorded. `minibatch` is where the device finds
  /// call.draw.minibatch, if the phase asks for it. Throws std::runtime_error where the device refuses.
  void run(void (*phase)(const Call&), const Call& call, std::uint64_t* minibatch);

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class Replays {
public:
  /// Whether phases are recorded at all; before the first run().
  void enable(bool enabled) { enabled_ = enabled; }
  /// Does what `phase(call)` does, with `edges` buffers in the frame and `shared` versions of others' parameters.
  void run(void (*phase)(const Call&), const Call& call, std::size_t edges, std::size_t shared);
  /// Recordings made so far.
  std::size_t count() const { return recordings_.size(); }

  ~Replays();
  Replays() = default;
  Replays(const Replays&) = delete;
  Replays& operator=(const Replays&) = delete;

private:
  /// A schedule with more combinations runs the others phase by phase.
  static constexpr std::size_t most = 4096;
  using Key = std::vector<const void*>;

  bool enabled_ = true;
  std::map<Key, Recording> recordings_;
  Key key_;
  std::uint64_t* minibatch_ = nullptr; ///< on the device
};

namespace device {
/// Whether recording a phase saves anything.
bool records();
/// Writes a number to the device's memory, as part of the stream.
void store(Stream& q, std::uint64_t* to, std::uint64_t value);
} // namespace device

} // namespace pdcrt
