// What a replica writes into checkpoints where replicas divide the updates of a stage (Shards.h): its ranges of the
// weights, and of what the optimizer keeps.
#pragma once

#include "exec/HostedStage.h"
#include "files/MemberRecords.h"
#include "pdcrt/Status.h"

#include <cstddef>

namespace pdcrt {

/// Bytes of the weights that a replica which has some to write writes.
std::size_t weightsBytes(const HostedStage& hosted);

/// Copies the shard of a version of the weights to `to`, with its elements one after the other, as they are where
/// weights lie in shards.
void copyShard(Stream& q, const HostedStage& hosted, const std::byte* weights, std::byte* to);

/// Puts such a copy, and that of the optimizer block, into the order of files, and lists the records that the member of
/// a team writes of them: ranges of its parts, and of whole parameters where it is member 0.
Status storeShard(const HostedStage& hosted, std::byte* weights, std::byte* optimizer, MemberRecords& weightRecords,
                  MemberRecords& optimizerRecords);

} // namespace pdcrt
