// The gradient of the bias of dot-product attention.
#pragma once

#include "pdc/IR/OpDef.h"

namespace pdc::ops {

/// Of a bias that is no constant: the weights are computed once more, out in the open. Null, with an error reported,
/// where that fails.
Value* attentionBiasGradient(GradientContext& context);

} // namespace pdc::ops
