// The tiles of Int8Product.cpp, by each kind of instructions: how weights are packed for them, integer sums, and the
// products of outliers. Four bytes of a lane are a group: four inputs of 8 bits, or two of 16.
#pragma once

#include "Int8Product.h"
#include "pdcrt/Int8.h"

#include <cstddef>
#include <cstdint>

namespace pdcrt::int8 {

using Instructions = Int8Product::Instructions;

inline constexpr std::int64_t tallest = 12, mostColumns = 32, groupBytes = 4;

/// Of a tile and of a panel of weights.
inline std::int64_t columnsOf(Instructions instructions) {
  return instructions >= Instructions::avx512 ? 32 : 16;
}
/// Inputs of which a group has the integers.
inline std::int64_t perGroup(Instructions instructions) {
  return instructions == Instructions::vnni ? 4 : 2;
}
/// Rows of the highest tile.
inline std::int64_t heightOf(Instructions instructions) {
  return instructions >= Instructions::avx512 ? tallest : tallest / 2;
}

/// Packs `width` columns of w [outputs, inputs], group by group, columnsOf() columns of each together; 0 behind the
/// last column and the last input. With vnni, 128 is added to each integer.
void packWeights(const std::int8_t* w, std::int64_t inputs, std::int64_t groups, std::int64_t width,
                 Instructions instructions, std::byte* to);

/// Rows of integers, `stride` bytes apart, by a panel of weights; sums[row][column] of `groups` groups.
struct IntegerTile {
  const std::byte *x, *w;
  std::int64_t stride, groups;
  std::int32_t* sums;
};
/// Computes `height` rows or a few more, up to heightOf(), which must be there to be read and written. Sums are right
/// modulo 2^32.
void runTile(Instructions instructions, std::int64_t height, const IntegerTile& tile);

/// Adds the products of `count` outliers, ascending, to rows of y with as many columns as a panel. Rows of x are
/// `xStride` apart.
using OutlierRows = void (*)(float* y, const float* x, std::int64_t xStride, const std::int32_t* outliers,
                             std::int64_t count, const float* weights);
inline constexpr std::int64_t outlierRows = 4; ///< that are in registers together
/// Of one row, or of `outlierRows`, where that is null if it does not exist.
OutlierRows outlierRowsBy(Instructions instructions, bool isOne);

} // namespace pdcrt::int8
