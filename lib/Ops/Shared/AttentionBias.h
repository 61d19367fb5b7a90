// The gradient of the bias of dot-product attention.
#pragma once

#include "pdc/IR/OpDef.h"

#include "pdcrt/kernels/Attention.h"

namespace pdc::ops {

/// What attention reads, and the gradient of what it gives, [batch, heads, positions, size], or without heads.
struct AttentionHeads {
  Value *query, *key, *value, *dy;
};

/// Of a bias that is no constant, operand 3: the weights are computed once more, out in the open, with the statistics
/// that are results 1 and 2. Null, with an error reported, where that fails.
Value* attentionBiasGradient(GradientContext& context, const pdcrt::Attention::Options& options,
                             const AttentionHeads& heads);

} // namespace pdc::ops
