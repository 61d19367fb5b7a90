// Operands of products that are transposed before.
#pragma once

#include "pdc/IR/Builder.h"

namespace pdc::ops {

/// `operand` without a transpose of its last two axes, which the product does itself; where other axes move as well,
/// the transpose that leaves the last axis in its place, which copies whole rows. Null when neither is to be had. This
/// is what keys go through on their way to attention's scores.
Value* withLastAxesSwapped(const Value* operand, Builder& b);

/// The transpose of the last two axes of x that ends with the reshape `reshaped`, where the axes before them were
/// merged or divided around the transpose only. Null where `reshaped` is something else.
Value* swappedInGroups(const Operation& reshaped, Builder& b);

} // namespace pdc::ops
