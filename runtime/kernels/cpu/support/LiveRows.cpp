// See LiveRows.h.
#include "LiveRows.h"

#include "RowsTogether.h"
#include "ZeroRows.h"

#include <algorithm>
#include <cstring>

namespace pdcrt {
namespace {

// Below, copies and the search take too much of the time of the products.
constexpr std::int64_t fewestRows = 64, fewestInputs = 64, fewestOutputs = 64;
/// Of the copies: a workspace is part of every arena, whether rows are left out or not.
constexpr std::size_t mostBytes = std::size_t{4} << 20;
/// Sizes of products. Of the rows that are multiplied in vain there are half as many as between two of them.
constexpr std::int64_t sizesAtMost = 16, rowsOfTile = 16;

std::size_t roundedUp(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}
std::size_t bytesOf(std::int64_t floats) {
  return roundedUp(static_cast<std::size_t>(floats) * sizeof(float));
}

} // namespace

struct LiveRows::Found {
  const std::int32_t* rows; ///< numbers, ascending
  std::int64_t count;       ///< of them
  std::int64_t size;        ///< rows of the product: count, rounded up; 0: none is live
  const Product* product;   ///< null: there are too many, or none
  SomeRows some() const { return {rows, count}; }
};

LiveRows::LiveRows(const Linear::Options& o) : o_(o) {
  if (o.rows < fewestRows || o.inputs < fewestInputs || o.outputs < fewestOutputs) return;
  const std::int64_t tiles = (o.rows + rowsOfTile - 1) / rowsOfTile;
  step_ = (tiles + sizesAtMost - 1) / sizesAtMost * rowsOfTile;
  const std::int64_t most = (o.rows - 1) / step_ * step_; // of the largest product
  if (bytesOf(most * o.outputs) + bytesOf(most * o.inputs) > mostBytes) return;
  const std::size_t copiesAt = bytesOf(o.rows); // behind the numbers of rows
  for (Sizes* const sizes : {&inputs_, &weights_}) {
    sizes->dyAt = copiesAt;
    sizes->xAt = sizes->dyAt + bytesOf(most * o.outputs);
    sizes->ownAt = sizes == &inputs_ ? sizes->xAt : sizes->xAt + bytesOf(most * o.inputs);
  }
  const auto add = [](Sizes& sizes, const TiledProduct::Options& product) {
    Setup own;
    sizes.products.emplace_back(own, product);
    sizes.bytes = std::max(sizes.bytes, sizes.ownAt + own.workspaceBytes());
  };
  for (std::int64_t rows = step_; rows <= most; rows += step_) {
    add(inputs_, {.m = rows, .k = o.outputs, .n = o.inputs, .transposeB = !o.transposed});
    add(weights_, {.m = o.transposed ? o.outputs : o.inputs,
                   .k = rows,
                   .n = o.transposed ? o.inputs : o.outputs,
                   .transposeA = true});
  }
}

LiveRows::Found LiveRows::find(Stream& q, const Sizes& sizes, const float* dy) const {
  auto* const rows = reinterpret_cast<std::int32_t*>(q.workspace());
  std::int64_t count = 0;
  const std::int64_t most = static_cast<std::int64_t>(sizes.products.size()) * step_;
  for (std::int64_t row = 0; row < o_.rows && count <= most; ++row)
    if (!isZero(dy + row * o_.outputs, o_.outputs)) rows[count++] = static_cast<std::int32_t>(row);
  if (count > most) return {rows, count, 0, nullptr};
  const std::int64_t number = (count + step_ - 1) / step_;
  return {rows, count, number * step_, number ? &sizes.products[static_cast<std::size_t>(number - 1)] : nullptr};
}

bool LiveRows::inputGradient(Stream& q, const float* dy, const float* w, float* dx) const {
  if (!inputs_.bytes) return false;
  const Found found = find(q, inputs_, dy);
  if (!found.product && found.count) return false;
  if (found.product) {
    std::byte* const dyRows = q.workspace() + inputs_.dyAt;
    copyRows(found.some(), o_.outputs, dy, found.size, dyRows);
    Stream own(q.workspace() + inputs_.ownAt, inputs_.bytes - inputs_.ownAt);
    found.product->run(own, reinterpret_cast<const float*>(dyRows), w, dx);
  }
  spreadRows(found.some(), o_.inputs, o_.rows, dx);
  return true;
}

bool LiveRows::weightGradient(Stream& q, const float* x, const float* dy, float* dw) const {
  if (!weights_.bytes) return false;
  const Found found = find(q, weights_, dy);
  if (!found.product && found.count) return false;
  if (!found.product) {
    std::fill_n(dw, o_.inputs * o_.outputs, 0.0f);
    return true;
  }
  std::byte *const dyRows = q.workspace() + weights_.dyAt, *const xRows = q.workspace() + weights_.xAt;
  copyRows(found.some(), o_.outputs, dy, found.size, dyRows);
  copyRows(found.some(), o_.inputs, x, found.size, xRows);
  const auto *const left = reinterpret_cast<const float*>(o_.transposed ? dyRows : xRows),
                    *const right = reinterpret_cast<const float*>(o_.transposed ? xRows : dyRows);
  Stream own(q.workspace() + weights_.ownAt, weights_.bytes - weights_.ownAt);
  found.product->run(own, left, right, dw);
  return true;
}

} // namespace pdcrt
