// See Random.h.
#include "pdcrt/Random.h"

#include <bit>
#include <numeric>
#include <utility>

namespace pdcrt {
namespace {

/// The numbers of one permutation, in order.
class Draws {
public:
  Draws(std::uint64_t seed, std::uint64_t epoch) : seed_(seed), epoch_(epoch) {}

  std::uint32_t next() {
    if (used_ == block_.size()) {
      block_ = philox(philoxCounter(blocks_++, permutationStream, epoch_), seed_);
      used_ = 0;
    }
    return block_[used_++];
  }

  /// Uniform in 0 … bound - 1: draws of as few bits as can hold it, until one is in range.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t mask = std::bit_ceil(bound) - 1;
    for (;;) {
      std::uint64_t draw = next();
      if (mask >> 32) draw |= static_cast<std::uint64_t>(next()) << 32;
      if ((draw & mask) < bound) return draw & mask;
    }
  }

private:
  std::uint64_t seed_, epoch_;
  PhiloxBlock block_ = {};
  std::size_t used_ = block_.size();
  std::uint32_t blocks_ = 0;
};

} // namespace

std::vector<std::int64_t> permutation(std::uint64_t seed, std::uint64_t epoch, std::int64_t count) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  permute(seed, epoch, order);
  return order;
}

void permute(std::uint64_t seed, std::uint64_t epoch, std::span<std::int64_t> order) {
  std::iota(order.begin(), order.end(), std::int64_t{0});
  Draws draws(seed, epoch);
  for (std::size_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[draws.below(left)]);
}

} // namespace pdcrt
