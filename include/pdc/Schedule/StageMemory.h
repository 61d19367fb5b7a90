// The memory of a stage replica: one sum, of how many copies a schedule keeps of each class of bytes (the frame), and
// of how large one copy is. Planner, its bounds, report and prediction take it from here.
//
// A generated program lays out the same copies (pdcrt/Arena.h), rounds each to 64 bytes, and adds what only code knows:
// the staging of an all-reduce, and of data. Its counts are those of the schedule, too. The oracle of the cost model
// (lib/Cost/Oracle) has a sum of its own.
#pragma once

#include "pdc/Plan/ScheduleDef.h"
#include "pdc/Schedule/PlanSchedule.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace pdc {

/// Bytes by what they are for: of a stage replica, or of one rank.
struct MemorySplit {
  std::int64_t weights = 0;   ///< newest version of the parameters, their running state, and frozen parameters
  std::int64_t optimizer = 0; ///< what the optimizer keeps
  std::int64_t versions = 0;  ///< older versions of the parameters, which minibatches in flight still need
  std::int64_t stash = 0;     ///< what minibatches keep from forward to backward
  std::int64_t gradients = 0; ///< of parameters
  std::int64_t buffers = 0;   ///< values and gradients on their way between stages
  std::int64_t workspace = 0; ///< scratch, handovers, and what a plan's total holds beyond all that

  std::int64_t total() const { return weights + optimizer + versions + stash + gradients + buffers + workspace; }
  friend bool operator==(const MemorySplit&, const MemorySplit&) = default;
};

/// How a value that a backward needs is kept until then. Plans know the first two ways.
enum class Keeping : std::uint8_t { kept, recomputed, compressed, onHost };
inline constexpr std::size_t keepings = 4;

/// One copy of each class of bytes of a replica.
struct StageBytes {
  std::int64_t parameters = 0, optimizer = 0;
  std::int64_t frozen = 0;                    ///< parameters that never change
  std::int64_t gradients = 0;                 ///< a set of accumulators
  std::array<std::int64_t, keepings> saved{}; ///< by Keeping: values for the backward of one minibatch, as computed
  std::int64_t sent = 0;                      ///< values of a minibatch that other stages use, each once
  std::int64_t handover = 0;                  ///< from input gradients to weight gradients, per minibatch
  std::int64_t scratch = 0;                   ///< and workspace: what is needed at once inside a phase
  std::int64_t valuesIn = 0;                  ///< over all edges, per minibatch; here and below
  std::int64_t gradientsOut = 0;
  std::int64_t gradientsIn = 0;   ///< from the next stage
  std::int64_t gradientsPast = 0; ///< from stages after that

  std::int64_t& savedAs(Keeping keeping) { return saved[static_cast<std::size_t>(keeping)]; }
  /// The bytes of a slot.
  std::int64_t slot() const { return saved[static_cast<std::size_t>(Keeping::kept)] + sent; }
  /// The bytes that a phase needs at once, with the recomputed values of one minibatch.
  std::int64_t working() const { return scratch + saved[static_cast<std::size_t>(Keeping::recomputed)]; }
};

/// The same of a replica whose weights lie in shards: its share of parameters and gradients. `optimizer` is its own
/// already.
StageBytes inShards(const StageBytes& bytes, int owners);

/// What the stages of a rank whose weights lie in shards have in turn (pdcrt/Arena.h): places for all parameters of
/// one, and for all gradients. `spare`: one more for gradients, where several minibatches are added up.
struct SharedPlaces {
  std::int64_t parameters = 0, gradients = 0; ///< the most of one stage
  int stages = 0;
  bool spare = false;

  void add(const StageBytes& bytes) {
    parameters = std::max(parameters, bytes.parameters);
    gradients = std::max(gradients, bytes.gradients);
    ++stages;
  }
  std::int64_t weightBytes(const pdcrt::RankList& rank) const { return parameters * (stages > 0 ? rank.pool : 0); }
  std::int64_t gradientBytes(const pdcrt::RankList& rank) const {
    return gradients * (std::min(rank.sums, stages) + (spare ? 1 : 0));
  }
};

/// How many copies a replica keeps.
struct StageFrame {
  int versions = 1;
  int gradientSets = 1;
  StageDepths depths = {};
};

/// The sum. Rings are as deep as `frame.depths` says; where they have depths of their own, bytes has nothing on edges,
/// and ringBytes is added.
inline MemorySplit stageMemory(const StageFrame& frame, const StageBytes& bytes) {
  const StageDepths& depths = frame.depths;
  return {.weights = bytes.parameters + bytes.frozen,
          .optimizer = bytes.optimizer,
          .versions = bytes.parameters * (frame.versions - 1),
          .stash = bytes.slot() * depths.slots,
          .gradients = bytes.gradients * frame.gradientSets,
          .buffers = bytes.valuesIn * depths.valuesReceived() + bytes.gradientsOut * StageDepths::gradientsSent +
                     bytes.gradientsIn * depths.gradientsReceived(true) +
                     bytes.gradientsPast * depths.gradientsReceived(false),
          .workspace = bytes.working() + bytes.handover * depths.handovers};
}

/// The frame of a stage in a schedule, with all gradient sets that programs allocate (pdcrt::gradientSets).
StageFrame frameOf(const pdcrt::Schedule& schedule, int stage);

/// Bytes of the rings of a replica of `stage` in a schedule, whatever their depths are.
std::int64_t ringBytes(const pdcrt::Schedule& schedule, const std::vector<EdgeTraffic>& traffic, int stage);

/// A parameter of another stage at a replica that uses it at `uses` nodes: the versions that are alive here, and two
/// gradients for each use.
constexpr std::int64_t sharedBytes(std::int64_t bytes, std::int64_t versions, int uses) {
  return bytes * (versions + 2 * uses);
}

} // namespace pdc
