// Copies elements between two arrangements in memory: what transposing, slicing, padding and broadcasting have in
// common.
#pragma once

#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

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
  void run(Stream& q, const void* from, void* to, std::size_t elementBytes) const;

private:
  Shape box_; ///< without axes of size 1, and neighbours merged where both arrangements allow it
  Arrangement from_, to_;
};

/// Writes `count` elements of 1, 2, 4 or 8 bytes that have the bits of `pattern`.
void fill(Stream& q, void* to, std::int64_t count, std::uint64_t pattern, std::size_t elementBytes);

/// Writes `count` times `value`.
template <class T>
void fill(Stream& q, T* to, std::int64_t count, T value) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t,
                                                     std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;
  fill(q, to, count, std::uint64_t{std::bit_cast<Bits>(value)}, sizeof(T));
}

} // namespace pdcrt
