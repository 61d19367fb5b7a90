// Some rows of a matrix side by side, so that a product of fewer rows takes them, and its results back in their places.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pdcrt {

/// Numbers of rows, ascending.
struct SomeRows {
  const std::int32_t* rows = nullptr;
  std::int64_t count = 0;
};

/// Copies these rows of `from`, `size` wide, to `to`, and zeros behind them up to `padded` rows.
inline void copyRows(const SomeRows& some, std::int64_t size, const float* from, std::int64_t padded, std::byte* to) {
  float* const copies = reinterpret_cast<float*>(to);
  for (std::int64_t i = 0; i < some.count; ++i) std::copy_n(from + some.rows[i] * size, size, copies + i * size);
  std::fill(copies + some.count * size, copies + padded * size, 0.0f);
}

/// The results of these rows lie side by side at the beginning of `matrix`, `size` wide. Moves each to its place, and
/// makes the other rows, of `all`, zeros. From the last on: behind a place all others are there already.
inline void spreadRows(const SomeRows& some, std::int64_t size, std::int64_t all, float* matrix) {
  std::int64_t left = some.count;
  for (std::int64_t row = all - 1; row >= 0; --row) {
    float* const place = matrix + row * size;
    if (left == 0 || some.rows[left - 1] != row)
      std::fill_n(place, size, 0.0f);
    else if (--left != row)
      std::copy_n(matrix + left * size, size, place);
  }
}

} // namespace pdcrt
