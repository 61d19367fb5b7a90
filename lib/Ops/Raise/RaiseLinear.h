// What exporters make of a linear layer, recognised.
#pragma once

#include "pdc/IR/Builder.h"

namespace pdc::ops {

/// OpRewrites::raise of `linear`:
///   matmul %x, %w              with a parameter %w of rank 2, transposed or not    linear %x, %w
///   matmul %x, (transpose %w)                                                      linear %x, %w {transposed = true}
///   add (linear %x, %w), %b    with a parameter %b over the outputs                linear %x, %w, %b
Value* raiseLinear(Operation& root, Builder& b);

} // namespace pdc::ops
