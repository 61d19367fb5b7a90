// Recognises layer and root mean square normalisation in what exporters make of them.
#pragma once

#include "pdc/IR/Builder.h"

namespace pdc::ops {

/// OpRewrites::raise of layer_norm: (x - mean) / sqrt(variance + epsilon) in its usual spellings, then the product with
/// a scale, then the sum with a bias, one piece at a time; or all at once with the mean folded into the bias. Mean and
/// variance are over the last axes.
Value* raiseLayerNorm(Operation& root, Builder& b);

/// OpRewrites::raise of rms_norm: x / sqrt(mean of x² + epsilon), then the product with a scale.
Value* raiseRmsNorm(Operation& root, Builder& b);

} // namespace pdc::ops
