// What the tests of transports send from device to device.
#pragma once

#include "pdcrt/Device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace pdcrt {

inline constexpr std::int64_t floats = 64;
inline constexpr std::size_t bytes = floats * sizeof(float);
inline constexpr std::uint64_t seeds = 1000;

/// Floats on the device of a rank.
class Block {
public:
  explicit Block(int rank, float value = 0) : rank_(rank) {
    device::use(rank_);
    memory_ = device::allocate(bytes);
    fill(value);
  }
  ~Block() {
    device::use(rank_);
    device::release(memory_, bytes);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void fill(float value) {
    const std::vector<float> values(floats, value);
    copy(memory_, values.data());
  }
  std::byte* memory() const { return memory_; }
  float* values() const { return reinterpret_cast<float*>(memory_); }
  /// What is there now, if all values are equal; else NaN.
  float value() const {
    std::vector<float> values(floats);
    copy(values.data(), memory_);
    for (float v : values)
      if (v != values[0]) return NAN;
    return values[0];
  }

private:
  void copy(void* to, const void* from) const {
    device::use(rank_);
    Stream now = device::openStream();
    device::copy(now, to, from, bytes);
    EXPECT_TRUE(device::wait(now));
    device::close(now);
  }
  int rank_;
  std::byte* memory_ = nullptr;
};

} // namespace pdcrt
