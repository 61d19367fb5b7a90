#include "BlockLayout.h"

#include <algorithm>

using namespace pdc;

std::int64_t pdc::aligned(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

std::int64_t pdc::shareByLifetime(std::vector<Buffer*> buffers) {
  std::stable_sort(buffers.begin(), buffers.end(),
                   [](const Buffer* a, const Buffer* b) { return a->bytes > b->bytes; });
  std::vector<const Buffer*> placed; // by offset
  std::int64_t end = 0;
  for (Buffer* buffer : buffers) {
    std::int64_t offset = 0;
    for (const Buffer* other : placed) {
      const bool together = other->first <= buffer->last && buffer->first <= other->last;
      if (!together) continue;
      if (other->place.offset >= offset + aligned(buffer->bytes)) break; // fits before it, and before all that follow
      offset = std::max(offset, other->place.offset + aligned(other->bytes));
    }
    buffer->place.offset = offset;
    end = std::max(end, offset + aligned(buffer->bytes));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), buffer,
                                   [](const Buffer* a, const Buffer* b) { return a->place.offset < b->place.offset; }),
                  buffer);
  }
  return end;
}
