// See FilledRows.h.
#include "FilledRows.h"

#include "ZeroRows.h"

#include <algorithm>

namespace pdcrt {
namespace {

/// Below, a product takes too little time.
constexpr std::int64_t fewestRows = 64, fewestProducts = 1 << 22;
/// Sizes of products. Of the rows that are multiplied in vain there are half as many as between two of them.
constexpr std::int64_t sizesAtMost = 16, rowsOfTile = 8;

} // namespace

FilledRows::FilledRows(Setup& setup, const MatMul::Options& o) : o_(o), rows_(o.transposeA ? o.k : o.m) {
  if (o.batch < 2 || o.broadcastA || o.broadcastB || (o.transposeA && o.transposeB) || rows_ < fewestRows ||
      o.m * o.k * o.n < fewestProducts)
    return;
  const std::int64_t tiles = (rows_ + rowsOfTile - 1) / rowsOfTile;
  step_ = (tiles + sizesAtMost - 1) / sizesAtMost * rowsOfTile;
  for (std::int64_t rows = step_; rows < rows_ + step_; rows += step_) {
    const std::int64_t some = std::min(rows, rows_);
    products_.emplace_back(setup, TiledProduct::Options{.m = o.transposeA ? o.m : some,
                                                        .k = o.transposeA ? some : o.k,
                                                        .n = o.n,
                                                        .transposeA = o.transposeA,
                                                        .transposeB = o.transposeB});
  }
}

std::int64_t FilledRows::filled(const float* a, const float* b, std::int64_t i) const {
  const std::int64_t ofA = rowsBeforeZeros(a + i * o_.m * o_.k, rows_, o_.transposeA ? o_.m : o_.k);
  return o_.transposeA ? rowsBeforeZeros(b + i * o_.k * o_.n, ofA, o_.n) : ofA;
}

bool FilledRows::run(Stream& q, const float* a, const float* b, float* c) const {
  if (products_.empty()) return false;
  const auto most = static_cast<std::int64_t>(products_.size());
  const auto numberOf = [&](std::int64_t i) { return (filled(a, b, i) + step_ - 1) / step_; };
  std::int64_t first = 0;
  while (first < o_.batch && numberOf(first) == most) ++first;
  if (first == o_.batch) return false;
  for (std::int64_t i = 0; i < o_.batch; ++i) {
    const std::int64_t number = i < first ? most : numberOf(i);
    float* const result = c + i * o_.m * o_.n;
    if (number > 0)
      products_[static_cast<std::size_t>(number - 1)].run(q, a + i * o_.m * o_.k, b + i * o_.k * o_.n, result);
    const std::int64_t done = number == 0 ? 0 : o_.transposeA ? o_.m : std::min(number * step_, o_.m);
    std::fill(result + done * o_.n, result + o_.m * o_.n, 0.0f);
  }
  return true;
}

} // namespace pdcrt
