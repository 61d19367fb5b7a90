// Which elements of a stage's trained parameters belong to which replica, where replicas divide what they hold
// (Sharding in Schedule.h): for the compiler, which plans the memory, and for the runtime.
//
// Parameters are taken in the order of their table, and each in chunks. Of every chunk each replica owns one range, the
// first replica the first one. So whatever is summed at a time keeps the links of all replicas busy. Ranges begin at
// multiples of a unit; what one chunk deals out unevenly the next one balances.
//
// Where only `owners` neighbouring replicas have everything together, there are so many shards, and several groups of
// owners. A chunk still has a range for every replica, of which it makes the sum; those of the owners of one shard are
// neighbours, and together are what each of them has.
// Standard library only.
#pragma once

#include "pdcrt/Stage.h"

#include <cstdint>
#include <span>
#include <vector>

namespace pdcrt {

/// The squares of a gradient are added up in blocks of so many neighbouring elements, the blocks exactly
/// (collectives/GradientNorm.h): whoever has whole blocks adds up the same bits.
inline constexpr std::int64_t squaresBlock = 1024;

/// Elements of a chunk: as many as are reduced at a time.
inline constexpr std::int64_t shardChunk = std::int64_t{1} << 20;

/// What matters of a trained parameter.
struct ShardedParameter {
  int row = 0;               ///< of Stage::parameters
  std::int64_t elements = 0; ///< in the order of memory
  std::int64_t unit = squaresBlock;
};

/// The units of a parameter. `outputs`: of one that lies in blocks (FilterBlocks.h), else 0. Units are whole blocks of
/// outputs there, which are neighbours in files, too.
ShardedParameter shardedParameter(int row, std::int64_t elements, std::int64_t outputs);
std::vector<ShardedParameter> shardedParameters(std::span<const ParameterRow> rows);

class Shards {
public:
  /// Elements [begin, begin + count) of a parameter.
  struct Range {
    int row = 0;
    std::int64_t begin = 0, count = 0;
    std::int64_t at = 0; ///< elements that precede it in its replica's shard
    friend bool operator==(const Range&, const Range&) = default;
  };
  struct Chunk {
    int row = 0;
    std::vector<Range> of; ///< by replica, the sums that it makes; some may be empty
  };

  /// `owners` divides `replicas`; 0: all replicas together.
  Shards(std::span<const ShardedParameter> parameters, int replicas, int owners = 0);

  std::span<const Chunk> chunks() const { return chunks_; }
  /// Number of shards, and which one a replica has.
  int owners() const { return owners_; }
  int shardOf(int replica) const { return replica % owners_; }
  /// All ranges of a shard, in the order of the chunks; none is empty, neighbours are one.
  std::vector<Range> of(int shard) const;
  /// Elements of the largest shard, and of the most of which a replica makes the sum, or each of its `members` where
  /// these have terms of the gradients, too, and divide each range.
  std::int64_t most() const { return most_; }
  std::int64_t mostSummed(int members = 1) const;

private:
  int replicas_, owners_;
  std::vector<Chunk> chunks_;
  std::int64_t most_ = 0;
};

} // namespace pdcrt
