// ONNX's convolutions over one, two and three axes, said with conv2d.
#pragma once

#include "Convert/Onnx.h"

namespace pdc::ops {

/// ONNX Conv. One axis is a plane of height 1; three are a sum over the depth of the filter.
Value* convertConv(OnnxReader& n);

/// ONNX ConvTranspose, which is the gradient of a convolution for its input.
Value* convertConvTranspose(OnnxReader& n);

} // namespace pdc::ops
