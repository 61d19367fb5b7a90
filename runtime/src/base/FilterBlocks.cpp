// Sixteen outputs are one piece of memory in both layouts, so that one piece at a time is converted.
#include "pdcrt/FilterBlocks.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace pdcrt {
namespace {

std::string textOf(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank; ++i) text += (i ? ", " : "") + std::to_string(shape.dims[i]);
  return text + "]";
}

/// Calls convert(from, to) with a copy of each 16 outputs and their place.
template <class Convert>
Status eachSixteen(const Shape& filter, std::span<std::byte> bytes, Convert convert) {
  if (!fitsFilterBlocks(filter))
    return {Exit::invalid, "a filter " + textOf(filter) + " has no whole blocks of 16 outputs and 16 inputs"};
  const auto elements = static_cast<std::size_t>(filter.elements());
  if (bytes.size() != elements * sizeof(float))
    return {Exit::invalid, "a filter " + textOf(filter) + " has " + std::to_string(elements * sizeof(float)) +
                               " bytes, here are " + std::to_string(bytes.size())};
  const std::size_t count = elements * filterBlock / static_cast<std::size_t>(filter.dims[0]);
  std::vector<float> from(count), to(count);
  for (std::size_t done = 0; done < bytes.size(); done += count * sizeof(float)) {
    std::memcpy(from.data(), bytes.data() + done, count * sizeof(float));
    convert(from.data(), to.data());
    std::memcpy(bytes.data() + done, to.data(), count * sizeof(float));
  }
  return {};
}

/// Calls visit(row-major index, index in blocks) for all elements of 16 outputs.
template <class Visit>
void eachElement(const Shape& filter, Visit visit) {
  const std::int64_t inputs = filter.dims[1], taps = filter.dims[2] * filter.dims[3];
  for (std::int64_t i = 0, at = 0; i < inputs; i += filterBlock)
    for (std::int64_t tap = 0; tap < taps; ++tap)
      for (std::int64_t input = i; input < i + filterBlock; ++input)
        for (std::int64_t output = 0; output < filterBlock; ++output, ++at)
          visit((output * inputs + input) * taps + tap, at);
}

} // namespace

bool fitsFilterBlocks(const Shape& filter) {
  return filter.rank == 4 && filter.elements() > 0 && filter.dims[0] % filterBlock == 0 &&
         filter.dims[1] % filterBlock == 0;
}

Status toFilterBlocks(const Shape& filter, std::span<std::byte> bytes) {
  return eachSixteen(filter, bytes, [&](const float* rows, float* blocks) {
    eachElement(filter, [&](std::int64_t row, std::int64_t block) { blocks[block] = rows[row]; });
  });
}

Status fromFilterBlocks(const Shape& filter, std::span<std::byte> bytes) {
  return eachSixteen(filter, bytes, [&](const float* blocks, float* rows) {
    eachElement(filter, [&](std::int64_t row, std::int64_t block) { rows[row] = blocks[block]; });
  });
}

} // namespace pdcrt
