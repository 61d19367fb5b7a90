// Two ways to give buffers their offsets in a block: one after the other, or shared by lifetime.
#pragma once

#include "pdc/Memory/MemoryPlan.h"

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

/// What temporaries take beside the slot.
struct TemporaryBytes {
  std::int64_t scratch = 0, handover = 0;
  std::int64_t sum() const { return scratch + handover; }
};

/// Places buffers that are alive from `first` to `last` where nothing is that lives at the same time: in the slot,
/// whose `slotBytes` hold the buffers `kept`, else in the block that their place names. A buffer that replaces another
/// may begin where that does. Greedy by size: from the largest to the smallest, each at the lowest offset (Pisarchyk
/// and Lee, arXiv 2001.03288), again by size times lifetime, and in some orders by chance; from the best of them,
/// buffers that reach the end are moved forward in the order until the result is near the bytes that are alive at most;
/// every other time, what replaces another lies with it wherever it can. The best result is kept. `values` are placed
/// before `others`, unless all together take so much less that it does not matter that the places of values depend on
/// `others` then. Last, what replaces another is moved to it where nothing is in the way. Where the slot `grows`
/// nothing is placed in scratch, whose bytes are then those by which the slot is larger.
TemporaryBytes placeByLifetime(const std::vector<Buffer*>& values, const std::vector<Buffer*>& others,
                               const std::vector<const Buffer*>& kept, std::int64_t slotBytes, bool grows);

} // namespace pdc
