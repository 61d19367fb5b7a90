#include "ShardRecords.h"

#include "files/WeightFile.h"
#include "pdcrt/Device.h"

#include <vector>

namespace pdcrt {
namespace {

constexpr std::size_t bytesAt(std::int64_t elements) {
  return static_cast<std::size_t>(elements) * sizeof(float);
}

/// Puts the values of one range into the order of files: where a parameter lies in blocks, a range is whole outputs.
Status store(const ParameterRow& row, const Shards::Range& range, std::byte* values) {
  ParameterRow some = row;
  if (row.inBlocks) some.shape.dims[0] = range.count / (row.shape.elements() / row.shape.dims[0]);
  return row.inBlocks ? WeightFile::store(some, {values, bytesAt(range.count)}) : Status();
}

} // namespace

std::size_t weightsBytes(const HostedStage& hosted) {
  const Shards* shards = hosted.optimizer->shards();
  return shards ? bytesAt(shards->most()) : hosted.stage->bytes.weights;
}

void copyShard(Stream& q, const HostedStage& hosted, const std::byte* weights, std::byte* to) {
  if (hosted.sweeps.isUsed()) return device::copy(q, to, weights, weightsBytes(hosted));
  const Shards& shards = *hosted.optimizer->shards();
  for (const Shards::Range& range : shards.of(shards.shardOf(hosted.host.replica)))
    device::copy(q, to + bytesAt(range.at),
                 weights + hosted.stage->parameters[static_cast<std::size_t>(range.row)].offset + bytesAt(range.begin),
                 bytesAt(range.count));
}

Status storeShard(const HostedStage& hosted, std::byte* weights, std::byte* optimizer, MemberRecords& weightRecords,
                  MemberRecords& optimizerRecords) {
  const Stage& stage = *hosted.stage;
  const OptimizerLayout& layout = hosted.optimizer->layout();
  const Shards& shards = *hosted.optimizer->shards();
  const std::vector<Shards::Range> all = shards.of(shards.shardOf(hosted.host.replica));
  for (std::size_t first = 0, end = 0; first < all.size(); first = end) {
    const ParameterRow& row = stage.parameters[static_cast<std::size_t>(all[first].row)];
    for (end = first; end < all.size() && all[end].row == all[first].row;) ++end;
    if (!writes(row.part, hosted.member)) continue;
    std::vector<ElementRange> ranges;
    std::int64_t elements = 0;
    for (std::size_t i = first; i < end; ++i) {
      ranges.push_back({all[i].begin, all[i].count});
      elements += all[i].count;
    }
    const auto add = [&](MemberRecords& records, const std::string& name, std::byte* block) -> Status {
      for (std::size_t i = first; i < end; ++i)
        if (Status status = store(row, all[i], block + bytesAt(all[i].at)); !status) return status;
      records.records.push_back({name, row.element, {elements}, {block + bytesAt(all[first].at), bytesAt(elements)}});
      records.metadata.insert(rangesMetadata(name, ranges, row.shape));
      if (!row.part.isWhole())
        records.metadata.insert(partMetadata(name, {row.part, hosted.member}, wholeShape(row.shape, row.part)));
      return {};
    };
    if (Status status = add(weightRecords, row.name, weights); !status) return status;
    for (std::size_t piece = 0; piece < layout.pieces(row).size(); ++piece)
      if (Status status = add(optimizerRecords, layout.pieces(row)[piece] + "/" + row.name,
                              optimizer + layout.offsetOf(piece, std::int64_t{0}));
          !status)
        return status;
  }
  return {};
}

} // namespace pdcrt
