// Comparison of what all members of a team have. Members compute it in the same order, so it has the same bits. A
// broken device, or another kernel on one member, makes members train different models from then on, and no loss would
// say so. A run compares before every checkpoint and at its end.
#pragma once

#include "exec/Executor.h"
#include "pdcrt/Stage.h"
#include "pdcrt/Status.h"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace pdcrt {

/// The shard that a replica has.
struct OwnShard {
  const Shards* shards = nullptr; ///< null: replicas divide nothing
  int number = 0;
  bool isApart = false; ///< the block of weights has its elements only, one after the other
};

/// CRC-32C of every whole row of a stage: of its parameters, then of its states, as they lie in the blocks, which
/// the host must see. `weights` is of one version; blocks that the stage lacks may be null.
/// Where replicas divide what they update, of trained parameters only the shard of this one is looked at, which is
/// there before it is gathered.
std::vector<std::uint32_t> sumsOfWhole(const Stage& stage, const std::byte* weights, const std::byte* frozen,
                                       const std::byte* state, const OwnShard& own = {});

/// What a member has.
struct MemberSums {
  int member = 0;
  std::span<const std::uint32_t> sums; ///< of sumsOfWhole, for the same stage
};

/// Fails with Exit::noDevice where a sum differs, naming the first such parameter, both members and both sums.
Status checkEqual(const Stage& stage, const MemberSums& one, const MemberSums& other);

/// Gathers what all members of a team have, member by member, into `all`; every member calls it.
using GatherSums = std::function<Status(std::span<const std::uint32_t> own, std::span<std::uint32_t> all)>;

/// Compares a member's sums with everyone's. All members of the team call it; all of them fail, as checkEqual(), or
/// none does.
Status compareMembers(const Stage& stage, std::span<const std::uint32_t> own, int members, const GatherSums& gather);

/// The same for a replica that `executor` hosts, with its newest weights, after what is in the stream.
Status compareMembers(Executor& executor, const HostedStage& hosted);

} // namespace pdcrt
