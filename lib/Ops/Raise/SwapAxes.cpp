#include "Raise/SwapAxes.h"

#include "Raise/Match.h"

#include <algorithm>
#include <numeric>

using namespace pdc;
using namespace pdc::ops;

Value* pdc::ops::withLastAxesSwapped(const Value* operand, Builder& b) {
  const Operation* transpose = definedBy(operand, "transpose");
  if (!transpose || operand->type().rank() < 2) return nullptr;
  std::vector<std::int64_t> permutation = transpose->attributes.getInts("permutation");
  const auto rank = static_cast<std::int64_t>(permutation.size());
  std::swap(permutation[permutation.size() - 2], permutation.back());
  if (permutation.back() != rank - 1) return nullptr;
  if (std::is_sorted(permutation.begin(), permutation.end())) return transpose->operand(0);
  return b.value("transpose", {transpose->operand(0)}, {{"permutation", permutation}});
}

Value* pdc::ops::swappedInGroups(const Operation& reshaped, Builder& b) {
  const Operation* transpose = definedBy(reshaped.operand(0), "transpose");
  const Operation* grouped = transpose ? definedBy(transpose->operand(0), "reshape") : nullptr;
  if (!grouped || !hasOneUse(b.graph(), reshaped.operand(0))) return nullptr;
  const auto swap = [](Shape axes) {
    std::swap(axes[axes.size() - 2], axes.back());
    return axes;
  };
  const auto inOrder = [](std::size_t rank) {
    Shape axes(rank);
    std::iota(axes.begin(), axes.end(), 0);
    return axes;
  };
  Value* const x = grouped->operand(0);
  const Shape &from = x->type().shape, &inGroups = grouped->result()->type().shape;
  if (from.size() < 2 || inGroups.size() < 2 || !std::equal(from.end() - 2, from.end(), inGroups.end() - 2) ||
      transpose->attributes.getInts("permutation") != swap(inOrder(inGroups.size())) ||
      reshaped.result()->type().shape != swap(from))
    return nullptr;
  return b.value("transpose", {x}, {{"permutation", swap(inOrder(from.size()))}});
}
