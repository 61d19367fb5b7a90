// ONNX's poolings over one, two and three axes, said with max_pool and average_pool.
#pragma once

#include "Convert/Onnx.h"

namespace pdc::ops {

/// One axis is a plane of height 1. Over three, the planes are pooled first and the depth then, which is the same for
/// maxima, sums and means alike.
Expected<std::vector<Value*>> convertMaxPool(OnnxReader& n);
/// With dilations, a mean is a sum (below) divided by how many elements count.
Value* convertAveragePool(OnnxReader& n);
/// (sum of |x| to the power p) to the power 1 / p. Sums are convolutions, channel by channel, with a filter of ones.
Value* convertLpPool(OnnxReader& n);
Value* convertGlobalLpPool(OnnxReader& n);
/// The mean over all axes but the first two.
Value* convertGlobalAveragePool(OnnxReader& n);
/// A pooling with one window, so that one element has the gradient, as in PyTorch; a reduction would share it.
Value* convertGlobalMaxPool(OnnxReader& n);

} // namespace pdc::ops
