// Copies elements between two arrangements in memory: what transposing, slicing, padding and broadcasting have in
// common.
#pragma once

#include "pdcrt/Shape.h"

#include <cstddef>
#include <cstdint>

namespace pdcrt {

/// Where the elements of a box lie in memory, in elements: index (i, j, …) at begin + i · strides[0] + j · strides[1] +
/// …
struct Arrangement {
  std::int64_t begin = 0;
  std::int64_t strides[maxRank] = {};
};

/// The arrangement of a whole tensor of `shape`.
Arrangement rowMajor(const Shape& shape);

class StridedCopy {
public:
  StridedCopy() = default;
  /// Copies a box of `box` elements. A stride of 0 in `from` repeats.
  StridedCopy(const Shape& box, const Arrangement& from, const Arrangement& to);

  /// The copy back; for copies that repeat nothing.
  StridedCopy reversed() const;

  /// Elements have 1, 2, 4 or 8 bytes. The two memories may not overlap.
  void run(const void* from, void* to, std::size_t elementBytes) const;

private:
  Shape box_; ///< without axes of size 1, and neighbours merged where both arrangements allow it
  Arrangement from_, to_;
};

} // namespace pdcrt
