// Rows that are read are copied side by side, and multiplied by the product whose number of rows is the next one.
#include "pdcrt/kernels/LinearOfRows.h"

#include "cpu/support/Product.h"
#include "cpu/support/RowsTogether.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace pdcrt {
namespace {

/// Sizes of products. Of the rows that are multiplied in vain there are half as many as between two of them.
constexpr std::int64_t sizesAtMost = 16, rowsOfTile = 16;
/// Of the copies: a workspace is part of every arena, whether rows are left out or not.
constexpr std::size_t mostBytes = std::size_t{4} << 20;

std::size_t bytesOf(std::int64_t floats) {
  return (static_cast<std::size_t>(floats) * sizeof(float) + 63) / 64 * 64;
}

} // namespace

struct LinearOfRows::Impl {
  Options options;
  std::int64_t step = 0;
  std::vector<Product> products; ///< of step, 2 · step, … rows
  Product whole;
  std::size_t xAt = 0, ownAt = 0, bytes = 0; ///< in the workspace: copies of rows, and what the product needs
};

LinearOfRows::LinearOfRows(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>()) {
  const auto what = [&] {
    return "linear layer of some of " + std::to_string(o.rows) + " rows, " + std::to_string(o.inputs) + " inputs, " +
           std::to_string(o.outputs) + " outputs: ";
  };
  if (o.rows < 1 || o.inputs < 1 || o.outputs < 1) throw std::runtime_error(what() + "sizes must be positive");
  Impl& impl = *impl_;
  impl.options = o;
  const std::int64_t tiles = (o.rows + rowsOfTile - 1) / rowsOfTile;
  impl.step = (tiles + sizesAtMost - 1) / sizesAtMost * rowsOfTile;
  std::int64_t most = (o.rows - 1) / impl.step * impl.step;
  while (most > 0 && bytesOf(most * o.inputs) > mostBytes) most -= impl.step;
  impl.xAt = bytesOf(o.rows); // behind the numbers of rows
  impl.ownAt = impl.xAt + bytesOf(most * o.inputs);
  impl.bytes = impl.ownAt;
  try {
    const auto product = [&](std::int64_t rows) {
      Setup own;
      Product made(own, {.m = rows, .k = o.inputs, .n = o.outputs, .transposeB = o.transposed}, o.bias);
      impl.bytes = std::max(impl.bytes, impl.ownAt + own.workspaceBytes());
      return made;
    };
    for (std::int64_t rows = impl.step; rows <= most; rows += impl.step) impl.products.push_back(product(rows));
    impl.whole = product(o.rows);
  } catch (const dnnl::error& error) {
    throw std::runtime_error(what() + "oneDNN " + error.what());
  }
  setup.needWorkspace(impl.bytes);
}

LinearOfRows::~LinearOfRows() = default;
LinearOfRows::LinearOfRows(LinearOfRows&&) noexcept = default;
LinearOfRows& LinearOfRows::operator=(LinearOfRows&&) noexcept = default;

void LinearOfRows::forward(Stream& q, View<const float> x, View<const float> w, View<const float> live,
                           View<const float> b, View<float> y) const {
  const Impl& impl = *impl_;
  const Options& o = impl.options;
  const float* const bias = o.bias ? b.data : nullptr;
  auto* const rows = reinterpret_cast<std::int32_t*>(q.workspace());
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < o.rows; ++row)
    if (live.data[row] != 0) rows[count++] = static_cast<std::int32_t>(row);
  const SomeRows some{rows, count};
  const std::int64_t number = (count + impl.step - 1) / impl.step;
  Stream own(q.workspace() + impl.ownAt, impl.bytes - impl.ownAt);
  if (number > static_cast<std::int64_t>(impl.products.size())) {
    impl.whole.run(own, x.data, w.data, y.data, bias);
    std::int64_t next = 0;
    for (std::int64_t row = 0; row < o.rows; ++row)
      if (next < count && rows[next] == row)
        ++next;
      else
        std::fill_n(y.data + row * o.outputs, o.outputs, 0.0f);
    return;
  }
  if (number > 0) {
    copyRows(some, o.inputs, x.data, number * impl.step, q.workspace() + impl.xAt);
    impl.products[static_cast<std::size_t>(number - 1)].run(
        own, reinterpret_cast<const float*>(q.workspace() + impl.xAt), w.data, y.data, bias);
  }
  spreadRows(some, o.outputs, o.rows, y.data);
}

} // namespace pdcrt
