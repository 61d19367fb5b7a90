// Recognises lengths of vectors in what exporters make of them, for their gradient at 0.
#pragma once

#include "pdc/IR/Builder.h"

namespace pdc::ops {

/// The length that `root` computes, with the gradient 0 where it is 0, as PyTorch's functions have it. These spellings
/// of its exporters are known: the root of order p of a sum of powers |x|^p, by pow (norm of another order than 2,
/// cdist, pairwise_distance); the square root of a variance (std); that of the product of two sums of squares
/// (cosine_similarity). Null for others, in particular for sqrt of a sum of squares: written so, the gradient is no
/// number in PyTorch either.
Value* raiseLength(Operation& root, Builder& b);

/// `expression` of a0, a sum of powers, but 0 with the gradient 0 where a0 is 0.
std::string lengthOf(const std::string& expression);

} // namespace pdc::ops
