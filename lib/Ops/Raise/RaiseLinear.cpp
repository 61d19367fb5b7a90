// What exporters make of a linear layer, recognised one piece at a time: the product first, then its bias.
#include "Raise/RaiseLinear.h"

#include "Raise/Match.h"

using namespace pdc;
using namespace pdc::ops;

static bool isParameter(const Value* value, int rank) {
  return value->parameter() && value->type().rank() == rank;
}

/// A product with a matrix of parameters, which may have been transposed on the way.
static Value* raiseProduct(const Operation& product, Builder& b) {
  if (product.attributes.get<bool>("transpose_a")) return nullptr;
  Value* weight = product.operand(1);
  bool transposed = product.attributes.get<bool>("transpose_b");
  const Operation* transpose = definedBy(weight, "transpose");
  if (transpose && transpose->attributes.getInts("permutation") == std::vector<std::int64_t>{1, 0}) {
    transposed = !transposed;
    weight = transpose->operand(0);
  }
  if (!isParameter(weight, 2)) return nullptr;
  return b.value("linear", {product.operand(0), weight}, {{"transposed", transposed}});
}

/// A linear layer whose result only this addition uses, plus one number per output.
static Value* raiseBias(const Operation& sum, Builder& b) {
  for (std::size_t side : {0, 1}) {
    Value *layer = sum.operand(side), *bias = sum.operand(1 - side);
    const Operation* linear = definedBy(layer, "linear");
    const bool alone = linear && !linear->operand(2) && hasOneUse(b.graph(), layer);
    if (alone && isParameter(bias, 1) && bias->type().shape[0] == layer->type().shape.back())
      return b.value("linear", {linear->operand(0), linear->operand(1), bias}, linear->attributes);
  }
  return nullptr;
}

Value* pdc::ops::raiseLinear(Operation& root, Builder& b) {
  if (root.def().name == "matmul") return raiseProduct(root, b);
  if (root.def().name == "add") return raiseBias(root, b);
  return nullptr;
}
