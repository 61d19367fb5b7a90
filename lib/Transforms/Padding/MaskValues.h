// Values that follow from one input of the model, element by element: what exporters make of an attention mask.
#pragma once

#include "pdc/IR/Tensor.h"
#include "pdc/Pass/Pass.h"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace pdc {

class MaskValues {
public:
  MaskValues(const Value& mask, PassContext& context) : mask_(mask), context_(context) {}

  /// Each element is a function of at most one element of the mask.
  struct Known {
    std::vector<std::int32_t> of; ///< by element: the element of the mask; -1: none
    Tensor atZero, atOne;         ///< the elements where those of the mask are 0, and where they are 1
  };
  /// Null: it is no such value.
  const Known* of(const Value* value);

  /// The elements that an operation whose first operand alone is no constant puts where: those of `first`, which stand
  /// for the operand's. Nothing: it does not only move or pick them.
  std::optional<std::vector<std::int64_t>> moved(const Operation& operation, const std::vector<std::int64_t>& first);

private:
  std::optional<Known> compute(const Value& value);
  std::optional<Known> elementwise(const Operation& operation, std::size_t result);
  bool interpretAll(const Operation& operation, std::size_t result, Known& known);
  std::optional<Tensor> interpreted(const Operation& operation, std::size_t result,
                                    const std::vector<const Tensor*>& operands);

  const Value& mask_;
  PassContext& context_;
  std::map<const Value*, std::optional<Known>> known_;
};

} // namespace pdc
