// Where the elements of a replica's shard (Shards.h) lie: in a whole block of weights or gradients, and one after the
// other in a block that has the shard only.
#pragma once

#include "pdcrt/Device.h"
#include "pdcrt/Optimizer.h"

#include <cstddef>

namespace pdcrt {

/// Copies the shard out of a block of all gradients, or of all weights, of a stage.
inline void takeOwnGradients(Stream& q, const Optimizer& optimizer, const std::byte* all, std::byte* shard) {
  for (const Optimizer::Own& own : optimizer.own())
    device::copy(q, shard + static_cast<std::size_t>(own.range.at) * sizeof(float),
                 all + own.parameter->gradient + static_cast<std::size_t>(own.range.begin) * sizeof(float),
                 static_cast<std::size_t>(own.range.count) * sizeof(float));
}
inline void takeOwnWeights(Stream& q, const Optimizer& optimizer, const std::byte* all, std::byte* shard) {
  for (const Optimizer::Own& own : optimizer.own())
    device::copy(q, shard + static_cast<std::size_t>(own.range.at) * sizeof(float),
                 all + own.parameter->row->offset + static_cast<std::size_t>(own.range.begin) * sizeof(float),
                 static_cast<std::size_t>(own.range.count) * sizeof(float));
}

/// Copies the shard into a block of all weights.
inline void placeOwnWeights(Stream& q, const Optimizer& optimizer, const std::byte* shard, std::byte* all) {
  for (const Optimizer::Own& own : optimizer.own())
    device::copy(q, all + own.parameter->row->offset + static_cast<std::size_t>(own.range.begin) * sizeof(float),
                 shard + static_cast<std::size_t>(own.range.at) * sizeof(float),
                 static_cast<std::size_t>(own.range.count) * sizeof(float));
}

} // namespace pdcrt
