// Tensors of ONNX: in models, and in files of their own such as input_0.pb of ONNX's tests.
#pragma once

#include "pdc/IR/Tensor.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Expected.h"

#include <string>

namespace onnx {
class TensorProto;
}

namespace pdc {

/// Errors, with exit code 3 for an element type that pdc does not have: dimensions that are negative or overflow.
Expected<Type> typeFromOnnx(const onnx::TensorProto& proto, const Location& where, Diagnostics& diags);

/// The tensor, whose elements `proto` must hold itself. Errors: as of typeFromOnnx, and another number of elements than
/// the dimensions say.
Expected<Tensor> tensorFromOnnx(const onnx::TensorProto& proto, const Location& where, Diagnostics& diags);

/// The tensor in the file at `path`.
Expected<Tensor> readOnnxTensor(const std::string& path, Diagnostics& diags);

} // namespace pdc
