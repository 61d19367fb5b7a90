#include "EqualMembers.h"

#include "ShardRecords.h"
#include "pdcrt/Device.h"
#include "pdcrt/WriteFile.h"

#include <cinttypes>
#include <cstdio>
#include <string>
#include <type_traits>

namespace pdcrt {
namespace {

/// Calls see(row, block) for every whole row, in the order of the sums.
template <class See>
void eachWhole(const Stage& stage, const std::byte* weights, const std::byte* frozen, const std::byte* state, See see) {
  for (const ParameterRow& row : stage.parameters)
    if (row.part.isWhole()) see(row, row.trained ? weights : frozen);
  for (const StateRow& row : stage.states)
    if (row.part.isWhole()) see(row, state);
}

std::string text(const MemberSums& of, std::size_t i) {
  char sum[9];
  std::snprintf(sum, sizeof sum, "%08" PRIx32, of.sums[i]);
  return "member " + std::to_string(of.member) + " has " + sum;
}

} // namespace

std::vector<std::uint32_t> sumsOfWhole(const Stage& stage, const std::byte* weights, const std::byte* frozen,
                                       const std::byte* state, const OwnShard& own) {
  std::vector<std::uint32_t> sums;
  const std::vector<Shards::Range> ranges = own.shards ? own.shards->of(own.number) : std::vector<Shards::Range>();
  const auto sumOfShard = [&](const ParameterRow& row) {
    FileSum sum;
    for (const Shards::Range& range : ranges)
      if (&stage.parameters[static_cast<std::size_t>(range.row)] == &row)
        sum = extended(sum, {weights + (own.isApart ? 0 : row.offset) +
                                 static_cast<std::size_t>(own.isApart ? range.at : range.begin) * sizeof(float),
                             static_cast<std::size_t>(range.count) * sizeof(float)});
    return sum.crc;
  };
  eachWhole(stage, weights, frozen, state, [&](const auto& row, const std::byte* block) {
    if constexpr (std::is_same_v<decltype(row), const ParameterRow&>)
      if (own.shards && row.trained) return sums.push_back(sumOfShard(row));
    const auto bytes = static_cast<std::size_t>(row.shape.elements()) * bytesOf(row.element);
    sums.push_back(extended({}, {block + row.offset, bytes}).crc);
  });
  return sums;
}

Status checkEqual(const Stage& stage, const MemberSums& one, const MemberSums& other) {
  Status status;
  std::size_t i = 0;
  eachWhole(stage, nullptr, nullptr, nullptr, [&](const auto& row, const std::byte*) {
    if (status && one.sums[i] != other.sums[i])
      status = {Exit::noDevice,
                "members of the team of stage " + std::to_string(stage.index) + " have other bits of '" + row.name +
                    "', which they must have alike: by CRC-32C, " + text(one, i) + ", " + text(other, i),
                "go on from the last checkpoint with --resume, on devices of one kind; if it happens again, tell "
                "the makers of pdc"};
    ++i;
  });
  return status;
}

Status compareMembers(const Stage& stage, std::span<const std::uint32_t> own, int members, const GatherSums& gather) {
  if (members == 1 || own.empty()) return {};
  std::vector<std::uint32_t> all(own.size() * static_cast<std::size_t>(members));
  if (Status status = gather(own, all); !status) return status;
  const auto of = [&](int member) {
    return MemberSums{member, std::span(all).subspan(static_cast<std::size_t>(member) * own.size(), own.size())};
  };
  for (int member = 1; member < members; ++member)
    if (Status status = checkEqual(stage, of(0), of(member)); !status) return status;
  return {};
}

Status compareMembers(Executor& executor, const HostedStage& hosted) {
  if (!hosted.gather) return {};
  const Stage& stage = *hosted.stage;
  Stream stream = executor.stream();
  std::vector<std::byte> mirrors[3];
  const auto seen = [&](int i, const std::byte* block, std::size_t bytes) -> const std::byte* {
    if (device::hostSeesBlocks() || bytes == 0) return block;
    mirrors[i].resize(bytes);
    device::copy(stream, mirrors[i].data(), block, bytes);
    return mirrors[i].data();
  };
  const Shards* const shards = hosted.optimizer->shards();
  const OwnShard shard = {
      .shards = shards, .number = shards ? shards->shardOf(hosted.host.replica) : 0, .isApart = hosted.sweeps.isUsed()};
  const std::byte* const weights =
      seen(0, hosted.versions.at(hosted.versions.newest()), shard.isApart ? weightsBytes(hosted) : stage.bytes.weights);
  const std::byte* const frozen = seen(1, hosted.frozen, stage.bytes.frozen);
  const std::byte* const state = seen(2, hosted.state, stage.bytes.state);
  if (Status status = device::wait(stream); !status) return status;
  return compareMembers(stage, sumsOfWhole(stage, weights, frozen, state, shard), hosted.members,
                        [&](std::span<const std::uint32_t> own, std::span<std::uint32_t> all) {
                          return executor.gatherFromTeam(hosted, own, all);
                        });
}

} // namespace pdcrt
