// What the ranks of one host tell each other beside MPI, which wakes nobody: that a message has been sent, and that one
// has been taken. With it nobody need look while there is nothing to see: every look of a communication thread
// interrupts a kernel.
#pragma once

#include "transport/Transport.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mpi.h>
#include <vector>

namespace pdcrt {

/// Memory that all ranks of `host` share, with a bell and some counters for each. Used by one thread of each rank;
/// any may notify own().
class MpiBells {
public:
  /// For the ranks of `host`, which all call this at once. Null, for all of them, where MPI has no memory to share.
  static std::unique_ptr<MpiBells> open(MPI_Comm host);
  /// All ranks at once.
  ~MpiBells();
  MpiBells(const MpiBells&) = delete;
  MpiBells& operator=(const MpiBells&) = delete;

  /// What others ring for this rank.
  Wakeup& own() { return *bells_[static_cast<std::size_t>(rank_)]; }
  void ring(int rank);

  /// This rank has started to send something to `rank`.
  void sent(int rank, int channel);
  /// This rank has received what `rank` has sent.
  void received(int rank, int channel);
  /// Whether a receive from `rank` that is not complete has been sent to: the bytes move as long as both look. Channels
  /// share counters, so that it may say yes where another channel is meant.
  bool arrives(int rank, int channel) const;

private:
  static constexpr std::size_t counters = 64; ///< of what a rank has sent to another

  struct alignas(64) Bell : Wakeup {
    Bell() : Wakeup(/*shared=*/true) {}
    std::atomic<std::uint32_t>* sent() { return reinterpret_cast<std::atomic<std::uint32_t>*>(this + 1); }
  };

  MpiBells(MPI_Win memory, int rank, std::vector<Bell*> bells);
  static std::size_t counterOf(int from, int channel) {
    return static_cast<std::size_t>(from) * counters + static_cast<std::size_t>(channel) % counters;
  }

  MPI_Win memory_;
  int rank_;
  std::vector<Bell*> bells_;            ///< by rank
  std::vector<std::uint32_t> received_; ///< by counter
};

} // namespace pdcrt
