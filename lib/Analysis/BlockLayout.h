// Two ways to give buffers their offsets in a block: one after the other, or shared by lifetime.
#pragma once

#include "pdc/Analysis/MemoryPlan.h"

#include <vector>

namespace pdc {

/// `bytes`, rounded up to a multiple of 64.
std::int64_t aligned(std::int64_t bytes);

/// A block that grows.
class Bump {
public:
  std::int64_t take(std::int64_t bytes) {
    const std::int64_t offset = end_;
    end_ += aligned(bytes);
    return offset;
  }
  std::int64_t end() const { return end_; }

private:
  std::int64_t end_ = 0;
};

/// Places `buffers`, each of them alive from `first` to `last`, and returns how many bytes they take together. Greedy
/// by size: from the largest to the smallest, each at the lowest offset where nothing is that lives at the same time
/// (Pisarchyk and Lee, arXiv 2001.03288).
std::int64_t shareByLifetime(std::vector<Buffer*> buffers);

} // namespace pdc
