// Which elements of a stage's trained parameters belong to which replica, where replicas divide what they hold
// (Sharding in Schedule.h): for the compiler, which plans the memory, and for the runtime.
//
// Parameters are taken in the order of their table, and each in chunks. Of every chunk each replica owns one range, the
// first replica the first one. So whatever is summed at a time keeps the links of all replicas busy. Ranges begin at
// multiples of a unit; what one chunk deals out unevenly the next one balances.
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
    std::vector<Range> of; ///< by replica; some may be empty
  };

  Shards(std::span<const ShardedParameter> parameters, int replicas);

  std::span<const Chunk> chunks() const { return chunks_; }
  /// All ranges of a replica, in the order of the chunks; none is empty, neighbours are one.
  std::vector<Range> of(int replica) const;
  /// Elements of the largest shard.
  std::int64_t most() const { return most_; }

private:
  std::vector<Chunk> chunks_;
  std::int64_t most_ = 0;
};

} // namespace pdcrt
