// Rows of zeros, which products may leave out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace pdcrt {

/// No value of the row is other than 0; the sign of a 0 does not matter.
inline bool isZero(const float* row, std::int64_t count) {
  constexpr std::int64_t together = 16;
  std::int64_t i = 0;
  for (; i + together <= count; i += together) {
    std::uint32_t bits = 0;
    for (std::int64_t j = 0; j < together; ++j) {
      std::uint32_t one = 0;
      std::memcpy(&one, row + i + j, sizeof one);
      bits |= one << 1;
    }
    if (bits) return false;
  }
  return std::all_of(row + i, row + count, [](float value) { return value == 0; });
}

/// How many rows of a matrix there are before those of zeros at its end.
inline std::int64_t rowsBeforeZeros(const float* matrix, std::int64_t rows, std::int64_t columns) {
  while (rows > 0 && isZero(matrix + (rows - 1) * columns, columns)) --rows;
  return rows;
}

} // namespace pdcrt
