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

Shards::Shards(std::span<const ShardedParameter> parameters, int replicas, int owners)
    : replicas_(replicas), owners_(owners > 0 ? owners : replicas) {
  const int groups = replicas_ / owners_;
  // Elements dealt out: of all, by shard, and by replica that makes the sum.
  std::int64_t before = 0;
  std::vector<std::int64_t> owned(static_cast<std::size_t>(owners_)), summed(static_cast<std::size_t>(replicas));
  for (const ShardedParameter& parameter : parameters) {
    const std::int64_t step = std::max(parameter.unit, shardChunk / parameter.unit * parameter.unit);
    for (std::int64_t begin = 0; begin < parameter.elements; begin += step) {
      const std::int64_t end = std::min(begin + step, parameter.elements);
      before += end - begin;
      Chunk& chunk = chunks_.emplace_back(Chunk{parameter.row, std::vector<Range>(static_cast<std::size_t>(replicas))});
      // Part i of n of what `all` elements are dealt out to, who has `own`: from `at` to at most `last`.
      const auto borderOf = [&](std::int64_t all, int i, int n, std::int64_t own, std::int64_t at, std::int64_t last) {
        const std::int64_t even = all / n + (i < all % n ? 1 : 0);
        return i + 1 == n ? last : nearest(at + std::max<std::int64_t>(0, even - own), parameter.unit, at, last);
      };
      std::int64_t at = begin;
      for (int shard = 0; shard < owners_; ++shard) {
        std::int64_t& own = owned[static_cast<std::size_t>(shard)];
        const std::int64_t to = borderOf(before, shard, owners_, own, at, end), all = own + (to - at);
        for (int group = 0; group < groups; ++group) {
          const auto replica = static_cast<std::size_t>(group * owners_ + shard);
          const std::int64_t until = borderOf(all, group, groups, summed[replica], at, to);
          chunk.of[replica] = {.row = parameter.row, .begin = at, .count = until - at, .at = own};
          summed[replica] += until - at;
          own += until - at;
          at = until;
        }
      }
    }
  }
  for (std::int64_t elements : owned) most_ = std::max(most_, elements);
}

std::int64_t Shards::mostSummed(int members) const {
  std::int64_t most = 0;
  for (std::size_t replica = 0; replica < static_cast<std::size_t>(replicas_); ++replica) {
    std::int64_t summed = 0;
    for (const Chunk& chunk : chunks_) summed += (chunk.of[replica].count + members - 1) / members;
    most = std::max(most, summed);
  }
  return most;
}

std::vector<Shards::Range> Shards::of(int shard) const {
  std::vector<Range> ranges;
  for (const Chunk& chunk : chunks_)
    for (int replica = shard; replica < replicas_; replica += owners_) {
      const Range& range = chunk.of[static_cast<std::size_t>(replica)];
      if (range.count == 0) continue;
      if (!ranges.empty() && ranges.back().row == range.row && ranges.back().begin + ranges.back().count == range.begin)
        ranges.back().count += range.count;
      else
        ranges.push_back(range);
    }
  return ranges;
}
