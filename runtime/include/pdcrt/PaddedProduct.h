// Products of matrices whose rows do not all begin at a multiple of 16 bytes: tensor cores then work at a quarter of
// their speed. Copies of such matrices with gaps between the rows cost less than that where the product is large. They
// are of parts of the matrices, so that they need little memory: the result is made so many rows, or columns, at once,
// and no sum is split. Arithmetic, because the compiler plans the memory.
#pragma once

#include "pdcrt/View.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace pdcrt::cuda {

/// c[m, n] = op(a)[m, k] · op(b)[k, n], by rows; a transposed a is stored [k, m], a transposed b [n, k].
struct ProductSizes {
  std::int64_t m = 0, k = 0, n = 0;
  bool transposeA = false, transposeB = false;
  bool wideResult = false; ///< c is of f32, whatever a and b are
};

struct PaddingLimits {
  std::int64_t leastWork = std::int64_t{1} << 30; ///< m · k · n
  std::int64_t leastSize = 256;                   ///< of m, k and n: so often an element of a copy is used
  std::int64_t grain = 128;                       ///< parts are of a multiple of so many rows or columns
  std::size_t bytes = std::size_t{128} << 20;     ///< of all copies
};

/// How a product is made.
struct PaddedProduct {
  enum class Cut { none, rows, columns };
  /// As it is stored.
  struct Matrix {
    std::int64_t rows = 0, columns = 0;
    Cut cut = Cut::none; ///< how a part of the result takes a part of it
    bool copied = false;
    std::int64_t stride = 0; ///< elements from row to row of the copy, of a whole matrix or of a part
  };

  std::array<Matrix, 3> matrices;       ///< a, b, c
  std::int64_t extent = 0;              ///< rows or columns of c
  std::int64_t part = 0;                ///< so many of them are made at once; 0: nothing is copied
  std::array<std::size_t, 3> offsets{}; ///< of the copies
  std::size_t bytes = 0;                ///< of them together
};

PaddedProduct paddedProduct(const ProductSizes& sizes, Element element, const PaddingLimits& limits = {});

} // namespace pdcrt::cuda
