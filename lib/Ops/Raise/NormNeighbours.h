// Which elementwise operations beside a norm, or beside its gradient for X, its kernel takes over (OpRewrites::absorb).
#pragma once

#include "pdc/IR/OpDef.h"

namespace pdc::ops {

/// Which operand of a norm may be added to X, or of its gradient to dX.
inline std::size_t addedToNorm(const Operation& op) {
  return op.def().operands.size() - 1;
}
/// Which result of a norm is the sum of X and what is added to it; the next one is Y, rounded.
inline std::size_t sumOfNorm(const Operation& op) {
  return op.def().results.size() - 2;
}

/// A sum with X in low precision becomes the norm's, and so does the conversion of Y to low precision.
Absorbed absorbAroundNorm(Operation& op, Builder& b);
/// A sum with dX becomes that of the gradient, and so does the conversion of either.
Absorbed absorbAroundNormGradient(Operation& op, Builder& b);

} // namespace pdc::ops
