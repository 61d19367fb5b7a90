// Recognises attention in what exporters make of it.
#pragma once

#include "pdc/IR/Builder.h"

namespace pdc::ops {

/// OpRewrites::raise of dot_product_attention: softmax(scores) · V. Scores are a product of queries and keys, scaled by
/// a number before (either or both) or after, then masked: a sum with anything that broadcasts, or a `where` with a
/// number of at most -1e30. A constant mask that hides the keys after each query becomes `causal`; keys and values that
/// are copied for several heads in a row are taken as they were. Rows of a softmax that are put aside because they are
/// -inf stay 0 where the mask may hide all keys of a query.
Value* raiseAttention(Operation& root, Builder& b);

/// OpRewrites::raise of dropout_attention: the same with dropout after the softmax.
Value* raiseDropoutAttention(Operation& root, Builder& b);

} // namespace pdc::ops
