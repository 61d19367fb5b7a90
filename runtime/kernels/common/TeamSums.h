// What is left of a sum over a team when it has arrived. One implementation per target.
#pragma once

#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>

namespace pdcrt {

/// y[i] = sum[i] / divisor + added[i / inner % size], in the element's type or, of 16 bits, as float; `added` may be
/// null. y may be `sum` or `added`.
void finishTeamSum(Stream& q, Element element, const void* sum, double divisor, const void* added, std::int64_t inner,
                   std::int64_t size, void* y, std::int64_t count);

} // namespace pdcrt
