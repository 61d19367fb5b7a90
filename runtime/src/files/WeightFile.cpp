#include "files/WeightFile.h"

#include "pdcrt/FilterBlocks.h"

namespace pdcrt {
namespace {

Status each(std::span<const ParameterRow> parameters, std::byte* weights, std::byte* frozen,
            Status (*convert)(const ParameterRow&, std::span<std::byte>)) {
  for (const ParameterRow& row : parameters) {
    std::byte* const block = row.trained ? weights : frozen;
    if (!block) continue;
    const auto bytes = static_cast<std::size_t>(row.shape.elements()) * bytesOf(row.element);
    if (Status status = convert(row, {block + row.offset, bytes}); !status) return status;
  }
  return {};
}

} // namespace

Status WeightFile::load(const ParameterRow& row, std::span<std::byte> values) {
  return row.inBlocks ? toFilterBlocks(row.shape, values) : Status();
}

Status WeightFile::store(const ParameterRow& row, std::span<std::byte> values) {
  return row.inBlocks ? fromFilterBlocks(row.shape, values) : Status();
}

Status WeightFile::load(std::span<const ParameterRow> parameters, std::byte* weights, std::byte* frozen) {
  return each(parameters, weights, frozen, load);
}

Status WeightFile::store(std::span<const ParameterRow> parameters, std::byte* weights, std::byte* frozen) {
  return each(parameters, weights, frozen, store);
}

} // namespace pdcrt
