// What it takes to time ways to compute the same, while a kernel is constructed.
#pragma once

#include "device/cuda/Cuda.h"
#include "pdcrt/Device.h"
#include "pdcrt/Setup.h"
#include "pdcrt/StreamClock.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pdcrt::cuda {

/// Of a method of a kernel; of equal ones the first. Null: there is none.
inline const KernelTime* fastestOf(const std::vector<KernelTime>& times, const std::string& kernel,
                                   std::string_view method) {
  const KernelTime* best = nullptr;
  for (const KernelTime& time : times)
    if (time.kernel == kernel && time.method == method && (!best || time.ms < best->ms)) best = &time;
  return best;
}

/// Numbers of both signs: how much current a device draws, so how fast it is, depends on what is multiplied.
template <class T>
__global__ void fillWithNoise(std::int64_t count, T* to) {
  for (std::int64_t i = thread(); i < count; i += threads()) {
    const auto bits = static_cast<std::uint32_t>(i) * 2654435761u;
    to[i] = static_cast<T>(static_cast<float>(bits >> 16) / 32768 - 1);
  }
}
template <class T>
void makeNoise(Stream& q, std::int64_t count, T* to) {
  launchLoop(q, "noise", fillWithNoise<T>, count, count, to);
}

/// A block of the device's memory for as long as algorithms are tried. Null where there is none left.
class Block {
public:
  explicit Block(std::size_t bytes) : bytes_(bytes), memory_(device::allocate(bytes)) {}
  ~Block() { device::release(memory_, bytes_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  std::byte* data() const { return memory_; }
  std::size_t bytes() const { return bytes_; }

private:
  std::size_t bytes_;
  std::byte* memory_;
};

/// The median of what call(i) takes, in seconds, for each i below `count`. They are called in turns, so that what else
/// the machine does meets all of them. Nothing: the device has failed.
template <class Call>
std::vector<double> mediansOf(Stream& q, std::size_t count, Call call) {
  constexpr int warmUp = 2;
  constexpr std::size_t leastRounds = 5, mostRounds = 21;
  constexpr double enoughSeconds = 0.1;
  for (int round = 0; round < warmUp; ++round)
    for (std::size_t i = 0; i < count; ++i) call(i);
  std::vector<std::vector<double>> seconds(count);
  double sum = 0;
  for (std::size_t round = 0; round < leastRounds || (round < mostRounds && sum < enoughSeconds); ++round) {
    StreamClock clock;
    clock.mark(q);
    for (std::size_t i = 0; i < count; ++i) {
      call(i);
      clock.mark(q);
    }
    if (!device::wait(q)) return {};
    for (std::size_t i = 0; i < count; ++i) {
      seconds[i].push_back(clock.seconds(i, i + 1));
      sum += seconds[i].back();
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& of : seconds) {
    const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
    std::nth_element(of.begin(), middle, of.end());
    medians.push_back(*middle);
  }
  return medians;
}

} // namespace pdcrt::cuda
