// See PaddedProduct.h.
#include "pdcrt/PaddedProduct.h"

#include "pdcrt/CudaWorkspace.h"

#include <algorithm>

namespace pdcrt::cuda {
namespace {

using Cut = PaddedProduct::Cut;

std::int64_t roundedUpTo(std::int64_t multiple, std::int64_t count) {
  return (count + multiple - 1) / multiple * multiple;
}

constexpr std::int64_t packBytes = 16;
/// Of an element of a, b and c.
using ElementBytes = std::array<std::int64_t, 3>;

/// With parts of `part` rows, or columns, of the result.
void placeCopies(PaddedProduct& p, std::int64_t part, const ElementBytes& elementBytes) {
  p.part = part;
  p.bytes = 0;
  for (std::size_t i = 0; i < p.matrices.size(); ++i) {
    PaddedProduct::Matrix& matrix = p.matrices[i];
    if (!matrix.copied) continue;
    matrix.stride = roundedUpTo(packBytes / elementBytes[i], matrix.cut == Cut::columns ? part : matrix.columns);
    const std::int64_t rows = matrix.cut == Cut::rows ? part : matrix.rows;
    p.offsets[i] = p.bytes;
    p.bytes += roundedUp(static_cast<std::size_t>(rows * matrix.stride * elementBytes[i]));
  }
}

/// The longest parts within the limit, all about as long as the others; none where none fits.
PaddedProduct cut(PaddedProduct p, const ElementBytes& elementBytes, const PaddingLimits& limits) {
  for (std::int64_t parts = 1; (parts - 1) * limits.grain < p.extent; ++parts) {
    const std::int64_t part = parts == 1 ? p.extent : roundedUpTo(limits.grain, (p.extent + parts - 1) / parts);
    placeCopies(p, part, elementBytes);
    if (p.bytes <= limits.bytes) return p;
  }
  return {};
}

std::int64_t partsIn(const PaddedProduct& p) {
  return (p.extent + p.part - 1) / p.part;
}

} // namespace

PaddedProduct paddedProduct(const ProductSizes& s, Element element, const PaddingLimits& limits) {
  const auto own = static_cast<std::int64_t>(bytesOf(element)),
             ofResult = s.wideResult ? static_cast<std::int64_t>(bytesOf(Element::f32)) : own;
  const ElementBytes elementBytes = {own, own, ofResult};
  if (std::min({s.m, s.k, s.n}) < limits.leastSize || s.m * s.k < limits.leastWork / s.n) return {};
  const Cut aCut = s.transposeA ? Cut::columns : Cut::rows, bCut = s.transposeB ? Cut::rows : Cut::columns;
  PaddedProduct byRows = {.matrices = {{{.rows = s.transposeA ? s.k : s.m, .columns = s.transposeA ? s.m : s.k},
                                        {.rows = s.transposeB ? s.n : s.k, .columns = s.transposeB ? s.k : s.n},
                                        {.rows = s.m, .columns = s.n}}}};
  for (std::size_t i = 0; i < elementBytes.size(); ++i)
    byRows.matrices[i].copied = byRows.matrices[i].columns * elementBytes[i] % packBytes != 0;
  if (std::ranges::none_of(byRows.matrices, &PaddedProduct::Matrix::copied)) return {};
  PaddedProduct byColumns = byRows;
  byRows.extent = s.m;
  byRows.matrices[0].cut = aCut;
  byRows.matrices[2].cut = Cut::rows;
  byColumns.extent = s.n;
  byColumns.matrices[1].cut = bCut;
  byColumns.matrices[2].cut = Cut::columns;
  byRows = cut(byRows, elementBytes, limits);
  byColumns = cut(byColumns, elementBytes, limits);
  if (byRows.part == 0 || byColumns.part == 0) return byRows.part > 0 ? byRows : byColumns;
  return partsIn(byRows) <= partsIn(byColumns) ? byRows : byColumns;
}

} // namespace pdcrt::cuda
