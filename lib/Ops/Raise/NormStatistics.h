// Statistics of a norm that a model reads beside what is normalised.
#pragma once

#include "pdc/IR/OpDef.h"

namespace pdc::ops {

/// The gradient for `x`, which the operation under differentiation (layer_norm where `centred`, else rms_norm)
/// normalises, through its statistics: mean and 1 / std, or 1 / rms alone. Null where the loss depends on none of them.
/// It has their element type. With x̂ the normalised x and n elements, ∂mean/∂x = 1 / n, ∂(1 / std)/∂x = -x̂ / (n ·
/// std²).
Value* gradientThroughStatistics(GradientContext& g, std::size_t operand, Value* x, bool centred);

} // namespace pdc::ops
