// Questions that recognisers of exporters' patterns (OpRewrites::raise) ask about values.
#pragma once

#include "pdc/IR/Builder.h"

#include <cmath>
#include <utility>

namespace pdc::ops {

/// The operation of op `op` that computes `value`, or null.
inline const Operation* definedBy(const Value* value, const char* op) {
  const Operation* definer = value ? value->definer() : nullptr;
  return definer && definer->def().name == op ? definer : nullptr;
}

/// The number that `value` always is, where it is a constant with one element.
inline std::optional<double> numberOf(const Value* value) {
  if (value->type().elements() != 1) return std::nullopt; // before a large constant is copied
  const std::optional<Tensor> tensor = Builder::constantValue(value);
  return tensor ? std::optional(tensor->asDouble(0)) : std::nullopt;
}

inline bool isNumber(const Value* value, double number) {
  return numberOf(value) == number;
}

/// Whether nothing but one operand reads `value`: what computes it dies with its reader.
inline bool hasOneUse(const Graph& graph, const Value* value) {
  return value->users().size() == 1 && !graph.isOutput(value);
}

/// The operands of `operation` in both orders: for (auto [a, b] : bothOrders(sum)) …
inline std::vector<std::pair<Value*, Value*>> bothOrders(const Operation& operation) {
  return {{operation.operand(0), operation.operand(1)}, {operation.operand(1), operation.operand(0)}};
}

/// What is squared to give `value` (a product with itself, or the power of 2); null when nothing is.
inline Value* squareRootOf(const Value* value) {
  const Operation *product = definedBy(value, "mul"), *power = definedBy(value, "pow");
  if (product && product->operand(0) == product->operand(1)) return product->operand(0);
  return power && isNumber(power->operand(1), 2) ? power->operand(0) : nullptr;
}

} // namespace pdc::ops
