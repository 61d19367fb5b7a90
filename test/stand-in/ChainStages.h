// What the executor's tests on the stand-in share: stages in a row with one value between two of them, and their data.
#pragma once

#include "pdcrt/Stage.h"

#include "ThreadRun.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pdcrt::chain {

/// Element i of an input in a minibatch.
inline float dataAt(const std::string& name, std::int64_t minibatch, std::int64_t i) {
  return static_cast<float>((minibatch * 37 + i * 11 + name[0]) % 101) / 101;
}

class Data : public BatchSource {
  Status read(const DataRow& row, std::int64_t minibatch, std::byte* destination) override {
    auto* values = reinterpret_cast<float*>(destination);
    for (std::int64_t i = 0; i < row.shape.elements(); ++i) values[i] = dataAt(row.name, minibatch, i);
    return {};
  }
};

inline Status readInitial(const char*, Element, const Shape& shape, std::span<std::byte> destination,
                          const MemberPart& = {}) {
  auto* values = reinterpret_cast<float*>(destination.data());
  for (std::int64_t i = 0; i < shape.elements(); ++i) values[i] = static_cast<float>(i % 7) / 7;
  return {};
}

inline float* at(const std::byte* base, std::size_t offset) {
  return reinterpret_cast<float*>(const_cast<std::byte*>(base) + offset);
}

/// The edges of stage `index` of `count`, over which `bytes` travel each way.
inline std::vector<EdgeRow> edgesOf(int index, int count, std::size_t bytes) {
  const bool first = index == 0, last = index == count - 1;
  std::vector<EdgeRow> rows;
  if (!first) rows.push_back({Direction::forward, index - 1, index, bytes});
  if (!last) rows.push_back({Direction::forward, index, index + 1, 0});
  if (!first) rows.push_back({Direction::backward, index, index - 1, bytes});
  if (!last) rows.push_back({Direction::backward, index + 1, index, bytes});
  return rows;
}
/// Places in Call::frame of the gradient that arrives, and of the one that leaves.
constexpr std::size_t gradientFromRight(int index) {
  return index == 0 ? 1 : 3;
}
constexpr std::size_t gradientToLeft(int index, int count) {
  return index == count - 1 ? 1 : 2;
}

} // namespace pdcrt::chain
