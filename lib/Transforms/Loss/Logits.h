// Where a value comes from a softmax or a sigmoid: what losses that take logits, or probabilities, ask.
#pragma once

#include "pdc/IR/Builder.h"
#include "pdc/IR/OpDef.h"

#include <optional>
#include <vector>

namespace pdc {

/// The operation that made probabilities of logits, and the way from its result to a value.
struct FromLogits {
  const Operation* operation = nullptr;
  /// From the value back to the operation's result.
  std::vector<const Operation*> way;
  /// Whether the way changes nothing but the shape and the order of axes.
  bool moved = true;
  /// The axis of the operation's result that is the asked one of the value; -1 where they are not the same elements.
  std::int64_t axis = -1;

  OfLogits kind() const { return operation->def().facts.ofLogits; }
  /// Whether the value is the softmax, or its logarithm, along the asked axis.
  bool isSoftmaxOfAxis() const;
};

/// Follows `value` back through operations that see nothing but it and constants. Nothing where none of them makes
/// probabilities.
std::optional<FromLogits> fromLogits(const Value& value, std::int64_t axis);

/// The logits, in the shape and the order of axes of the value that `from` was found for (`from.moved`). Null where an
/// operation cannot be made, which is reported.
Value* logitsOf(const FromLogits& from, Builder& builder);

/// What the ONNX file calls the logits; empty where it has no name for them.
std::string nameOfLogits(const FromLogits& from, const Module& module);

} // namespace pdc
