// What is left of a sum over a team when it has arrived. One implementation per target.
#pragma once

#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>

namespace pdcrt {

/// What is added to a sum: `size` elements along an axis, behind which `inner` elements lie, and `lanes` neighbours of
/// the axis in each of those places.
struct AddedAlong {
  std::int64_t size = 1, inner = 1, lanes = 1;

  /// The element that is added to element i.
  constexpr std::int64_t at(std::int64_t i) const { return i / (inner * lanes) % (size / lanes) * lanes + i % lanes; }
};

/// y[i] = sum[i] / divisor + added[along.at(i)], in the element's type or, of 16 bits, as float; `added` may be null. y
/// may be `sum`, or an `added` as large as it.
void finishTeamSum(Stream& q, Element element, const void* sum, double divisor, const void* added,
                   const AddedAlong& along, void* y, std::int64_t count);

} // namespace pdcrt
