// Tensors whose channels lie together in blocks of 16, for tests of kernels.
#pragma once

#include "KernelTest.h"
#include "pdcrt/Shape.h"

namespace pdcrt {

inline constexpr std::int64_t lanes = 16;

/// Calls visit(position in row-major order, position in blocks) for all elements of [N, C, H, W].
template <class Visit>
void forEachPosition(const Shape& shape, Visit visit) {
  const std::int64_t channels = shape.dims[1], inner = shape.dims[2] * shape.dims[3];
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const std::int64_t sample = i / inner / channels, channel = i / inner % channels, position = i % inner;
    visit(i, ((sample * channels / lanes + channel / lanes) * inner + position) * lanes + channel % lanes);
  }
}

template <class T>
Buffer<T> inBlocks(const Buffer<T>& plain, const Shape& shape) {
  Buffer<T> blocks(plain.count());
  forEachPosition(shape, [&](std::int64_t from, std::int64_t to) { blocks[to] = plain[from]; });
  return blocks;
}

/// What is in `blocks`, in row-major order.
template <class T>
std::vector<double> plainOf(const Buffer<T>& blocks, const Shape& shape) {
  std::vector<double> plain(static_cast<std::size_t>(blocks.count()));
  forEachPosition(shape, [&](std::int64_t to, std::int64_t from) {
    plain[static_cast<std::size_t>(to)] = static_cast<double>(blocks[from]);
  });
  return plain;
}

} // namespace pdcrt
