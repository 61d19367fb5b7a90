#include "pdcrt/Shards.h"

#include "pdcrt/FilterBlocks.h"

#include <algorithm>
#include <numeric>

using namespace pdcrt;

ShardedParameter pdcrt::shardedParameter(int row, std::int64_t elements, std::int64_t outputs) {
  ShardedParameter parameter{.row = row, .elements = elements};
  if (outputs > 0) parameter.unit = std::lcm(squaresBlock, elements / outputs * filterBlock);
  return parameter;
}

std::vector<ShardedParameter> pdcrt::shardedParameters(std::span<const ParameterRow> rows) {
  std::vector<ShardedParameter> parameters;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].trained)
      parameters.push_back(shardedParameter(static_cast<int>(i), rows[i].shape.elements(),
                                            rows[i].inBlocks ? rows[i].shape.dims[0] : 0));
  return parameters;
}

/// The multiple of `unit`, or `end`, that is nearest to `wanted`, within [least, end].
static std::int64_t nearest(std::int64_t wanted, std::int64_t unit, std::int64_t least, std::int64_t end) {
  const std::int64_t rounded = (wanted + unit / 2) / unit * unit;
  const std::int64_t border = wanted >= end || rounded > end ? end : rounded;
  return std::clamp(border, least, end);
}

Shards::Shards(std::span<const ShardedParameter> parameters, int replicas) {
  std::vector<std::int64_t> owned(static_cast<std::size_t>(replicas));
  std::int64_t before = 0; // elements dealt out
  for (const ShardedParameter& parameter : parameters) {
    const std::int64_t step = std::max(parameter.unit, shardChunk / parameter.unit * parameter.unit);
    for (std::int64_t begin = 0; begin < parameter.elements; begin += step) {
      const std::int64_t end = std::min(begin + step, parameter.elements);
      before += end - begin;
      Chunk& chunk = chunks_.emplace_back(Chunk{parameter.row, {}});
      std::int64_t at = begin;
      for (int replica = 0; replica < replicas; ++replica) {
        std::int64_t& own = owned[static_cast<std::size_t>(replica)];
        const std::int64_t even = before / replicas + (replica < before % replicas ? 1 : 0);
        const std::int64_t wanted = at + std::max<std::int64_t>(0, even - own);
        const std::int64_t to = replica + 1 == replicas ? end : nearest(wanted, parameter.unit, at, end);
        chunk.of.push_back({.row = parameter.row, .begin = at, .count = to - at, .at = own});
        own += to - at;
        at = to;
      }
    }
  }
  for (std::int64_t own : owned) most_ = std::max(most_, own);
}

std::vector<Shards::Range> Shards::of(int replica) const {
  std::vector<Range> ranges;
  for (const Chunk& chunk : chunks_) {
    const Range& range = chunk.of[static_cast<std::size_t>(replica)];
    if (range.count == 0) continue;
    if (!ranges.empty() && ranges.back().row == range.row && ranges.back().begin + ranges.back().count == range.begin)
      ranges.back().count += range.count;
    else
      ranges.push_back(range);
  }
  return ranges;
}
