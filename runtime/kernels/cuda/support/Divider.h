// Division by a number that is the same for a whole launch.
#pragma once

#include "device/cuda/Cuda.h"

#include <bit>
#include <limits>

namespace pdcrt::cuda {

/// Quotients of the numbers 0 … `largest` by `divisor`, which is positive. A GPU has no instruction for them: one of 64
/// bits takes longer than all else that a copy or a normalisation does with an element. Below 2^31 a product and a
/// shift do (Granlund and Montgomery, Division by Invariant Integers using Multiplication, PLDI 1994, figure 4.1; there
/// the sum of its last step cannot overflow).
class Divider {
public:
  Divider() = default;
  Divider(std::int64_t divisor, std::int64_t largest) : divisor_(divisor) {
    constexpr std::int64_t limit = std::numeric_limits<std::int32_t>::max();
    if (divisor < 1 || divisor > limit || largest > limit) return;
    shift_ = static_cast<int>(std::bit_width(static_cast<std::uint32_t>(divisor - 1)));
    const std::uint64_t above = (std::uint64_t{1} << shift_) - static_cast<std::uint64_t>(divisor);
    multiplier_ = static_cast<std::uint32_t>((above << 32) / static_cast<std::uint64_t>(divisor) + 1);
  }

  __device__ std::int64_t quotient(std::int64_t number) const {
    if (multiplier_ == 0) return number / divisor_;
    const auto n = static_cast<std::uint32_t>(number);
    const auto high = static_cast<std::uint32_t>(std::uint64_t{multiplier_} * n >> 32);
    return (high + n) >> shift_;
  }
  __device__ std::int64_t remainder(std::int64_t number) const { return number - quotient(number) * divisor_; }

private:
  std::int64_t divisor_ = 1;
  std::uint32_t multiplier_ = 0; ///< 0: numbers may be too large for it
  int shift_ = 0;
};

} // namespace pdcrt::cuda
