// What the memory of a rank is for: the whole of its arena, and what of it is in use at any moment of a run.
#pragma once

#include "pdc/Schedule/StageMemory.h"
#include "pdcrt/Simulate.h"

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace pdc {

/// The parts of a split with their names, in the order in which they are shown.
struct MemoryPart {
  const char* name;
  std::int64_t MemorySplit::*bytes;
};
inline constexpr std::array<MemoryPart, 7> memoryParts = {{{"weights", &MemorySplit::weights},
                                                           {"optimizer", &MemorySplit::optimizer},
                                                           {"versions", &MemorySplit::versions},
                                                           {"stash", &MemorySplit::stash},
                                                           {"gradients", &MemorySplit::gradients},
                                                           {"buffers", &MemorySplit::buffers},
                                                           {"workspace", &MemorySplit::workspace}}};

/// The arena of every rank under `schedule`. Its total is what the plan states for its own schedule, corrected for
/// slots, versions, gradient sets and buffers where `schedule` is another; the parts add up to it.
std::vector<MemorySplit> arenasOf(const Plan& plan, const pdcrt::Schedule& schedule);

/// What is in use of the arenas, as a run goes on. In use are: weights, optimizer state and workspace, always; a slot
/// of the stash from the start of a forward to the end of its backward; an old version until the last backward that
/// needs it; a gradient set from the start of the first backward of an update to the end of the update; a received
/// value until its minibatch is done, a received gradient until its backward is, a gradient that is sent until it has
/// arrived. Tied parameters of other stages count as always in use.
class LiveMemory {
public:
  /// Told of every change: which rank (below `ranks`), when, and what is in use from then on. In order of time for each
  /// rank.
  using Sink = std::function<void(int rank, double ms, const MemorySplit& inUse)>;

  /// Of the first `ranks` ranks in a run of `minibatches`. Tells at once what is in use at the beginning.
  LiveMemory(const Plan& plan, const pdcrt::Schedule& schedule, std::vector<MemorySplit> arenas,
             std::int64_t minibatches, int ranks, Sink sink);

  /// To be told of everything that ends, in order (pdcrt::CheckOptions::observe).
  void see(const pdcrt::TracedAction& traced);
  /// To be called at the end of the run.
  void finish();

private:
  /// A replica of a stage.
  struct Host {
    int stage = 0;
    std::int64_t unfinished = 0;       ///< the minibatch whose backward ends next
    std::int64_t newest = 0;           ///< version
    std::int64_t alive = 1;            ///< versions
    std::int64_t sets = 0;             ///< gradient sets in use
    std::vector<std::int64_t> updates; ///< whose gradients they hold
  };
  /// Something that arrived, or has left, while the rank computed.
  struct Arrival {
    double ms;
    std::int64_t bytes;
  };
  struct Rank {
    MemorySplit inUse;
    std::vector<Host> hosts;
    std::vector<Arrival> arrivals; ///< after the end of the last computation
  };

  Host& hostOf(int rank, int stage);
  void compute(const pdcrt::TracedAction& traced);
  void transfer(const pdcrt::TracedAction& traced);
  void begin(Rank& rank, Host& host, const pdcrt::Action& action);
  void end(Rank& rank, Host& host, const pdcrt::Action& action);
  void countVersions(Rank& rank, Host& host) const;
  void countSets(Rank& rank, Host& host) const;
  void tell(int rank, double ms) const;
  /// Takes in what arrived until `ms`.
  void arrive(int rank, double ms);

  const Plan& plan_;
  const pdcrt::Schedule& schedule_;
  std::vector<MemorySplit> arenas_;
  std::int64_t minibatches_;
  std::vector<EdgeTraffic> traffic_;                                                    ///< by edge of the schedule
  std::vector<std::int64_t> slotBytes_, receivedBytes_, returnedBytes_, sentBackBytes_; ///< by stage, per minibatch
  std::vector<Rank> ranks_;
  Sink sink_;
};

/// How the memory in use of a rank developed, in equal intervals: the moment of each at which most was in use.
class MemoryCourse {
public:
  static constexpr std::size_t mostIntervals = 64;

  /// `finestMs` > 0: the intervals are so long, or twice, four times … as long.
  explicit MemoryCourse(double finestMs) : intervalMs_(finestMs) {}

  /// From `ms` on, which does not decrease, so much is in use.
  void change(double ms, const MemorySplit& inUse);
  /// Ends at `ms`.
  void finish(double ms);
  void coarsenTo(double intervalMs);

  double intervalMs() const { return intervalMs_; }
  const std::vector<MemorySplit>& intervals() const { return intervals_; }
  const MemorySplit& peak() const { return peak_; }
  double peakMs() const { return peakMs_; } ///< when `peak` was reached first

private:
  void fillTo(double ms);
  void coarsen();

  double intervalMs_;
  std::vector<MemorySplit> intervals_;
  MemorySplit current_, peak_;
  double peakMs_ = 0;
};

} // namespace pdc
