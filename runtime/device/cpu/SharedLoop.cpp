// See SharedLoop.h.
#include "pdcrt/SharedLoop.h"

#include "Parts.h"

void pdcrt::shareRange(std::int64_t count, std::int64_t elements, void (*loop)(const void*, std::int64_t, std::int64_t),
                       const void* context) {
  parts::runRanges(parts::countOf(count, elements), count,
                   [&](std::int64_t begin, std::int64_t end) { loop(context, begin, end); });
}
