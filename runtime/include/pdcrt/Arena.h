// The memory plan of a rank: one function adds up, and places, everything that training takes. The compiler calls it
// with the numbers of a plan, the runtime with those of the stages that are linked in; so what the one prints is what
// the other allocates.
//
// The arena of a rank holds, for each hosted stage replica in the order of the plan: weight versions, frozen
// parameters, state, optimizer state, gradient sets, slots, edge buffers, shared parameters, handovers, staging of the
// all-reduce, staging of data; then one scratch and one workspace, which all share. Every buffer starts at a multiple
// of 64 bytes.
//
// A stage whose weights lie in shards has weights and gradients of the largest shard. Behind the hosts are
// places that such stages take in turn: for all weights of one, as many as the rank's pool has; for all its gradients
// and the staging of their sum (RankList::sums); and one spare set of gradients.
#pragma once

#include "pdcrt/Schedule.h"
#include "pdcrt/Stage.h"

#include <cstddef>
#include <span>
#include <vector>

namespace pdcrt {

inline constexpr std::size_t arenaAlignment = 64;

/// Bytes of `count` buffers of `bytes`, each rounded up to the alignment.
constexpr std::size_t arenaBytes(std::size_t bytes, std::size_t count = 1) {
  return (bytes + arenaAlignment - 1) / arenaAlignment * arenaAlignment * count;
}

/// What the memory of a stage replica depends on.
struct ArenaStage {
  int stage = 0;
  BlockBytes bytes = {};
  std::span<const EdgeRow> edges;
  std::span<const SharedRow> shared;
  std::size_t trainedBytes = 0;   ///< of the trained parameters, without padding: what an all-reduce sums
  std::size_t optimizerBytes = 0; ///< of the optimizer block (OptimizerLayout.h)
  std::size_t shardBytes = 0;     ///< of the largest shard (Shards.h); 0: nothing is sharded
  std::size_t summedBytes = 0;    ///< of shards: the most of which a process makes the sum
};

/// The stage's edge in the schedule, and how many buffers the stage has for it.
struct EdgeBuffers {
  int peer = -1; ///< the stage at the other end
  bool leaves = false;
  int edge = -1;  ///< index into Schedule::edges; -1: the schedule has no such edge
  int copies = 0; ///< 0 for a forward edge that leaves
};
EdgeBuffers edgeBuffers(const Schedule& schedule, int stage, const EdgeRow& edge);

/// How many gradient sets a replica of `stage` has: syncDelay + 1, and a spare one when a replica sums the gradients of
/// several minibatches before an update.
struct GradientSets {
  int ring = 1;
  bool spare = false;
};
GradientSets gradientSets(const Schedule& schedule, int stage);

/// How many buffers a replica of a stage has for a row of Stage::shared.
struct SharedBuffers {
  int versions = 0; ///< of a user
  int parts = 0;    ///< of the owner: for every replica of the user that it serves
};
SharedBuffers sharedBuffers(const Schedule& schedule, int stage, const SharedRow& row);

/// Where the buffers of one hosted replica lie, as byte offsets in the arena. Rings are contiguous: buffer i of a ring
/// is at its offset + i * arenaBytes(size of one).
struct ArenaHost {
  std::size_t weights = 0, frozen = 0, state = 0, optimizer = 0, gradients = 0, slots = 0;
  std::size_t spare = 0;          ///< set of gradients, where there is one
  std::size_t sum = 0;            ///< of sharded weights: what is left of the gradients once they are summed
  std::vector<std::size_t> edges; ///< one per EdgeRow
  struct Shared {
    std::size_t values = 0, parts = 0;
  };
  std::vector<Shared> shared; ///< one per SharedRow
  std::size_t handovers = 0, staging = 0, dataStaging = 0;
};

struct Arena {
  std::vector<ArenaHost> hosts;
  std::size_t pool = 0, poolStride = 0; ///< places for all weights of a stage
  std::size_t scratch = 0, workspace = 0;
  std::size_t workspaceBytes = 0;
  std::size_t bytes = 0; ///< the whole arena
};

/// Lays out the arena of a rank that hosts `stages` (a stage appears once per replica that the rank hosts). Of `rank`,
/// its pool and sums matter.
Arena layoutArena(const Schedule& schedule, std::span<const ArenaStage> stages, const RankList& rank = {});

} // namespace pdcrt
