// Writes a trained model back to ONNX.
#pragma once

#include "pdc/Support/Diagnostics.h"
#include "pdcrt/Safetensors.h"

#include <map>
#include <string>

namespace pdc {

/// Writes to `out` the ONNX model at `model` with the elements of the initializers that `trained` names (running
/// statistics among them) replaced. Types and shapes must be those of the initializers.
///
/// A parameter that the exporter merged with an equal one (PyTorch's Identity) and that was trained apart gets an
/// initializer of its own; a matrix that it stored twice and that was trained as one is written twice.
///
/// A frozen matrix in 8 bits, `W.int8` and `W.scale`, is written as the one that it stands for.
///
/// Otherwise inputs, outputs, nodes, names and metadata stay what they are, with one exception: what was exported in
/// training mode is put into inference mode (BatchNormalization, Dropout), so that the file computes the function that
/// was trained (docs/decisions/0004-trained-onnx.md). External data goes to one new file, OUT.data.
///
/// With an empty `out` nothing is written, and what would be an error is one.
///
/// Errors: the model cannot be read, a name that is no initializer, another type or shape, `out` cannot be written.
Status writeTrainedOnnx(const std::string& model, const std::map<std::string, pdcrt::TensorRecord>& trained,
                        const std::string& out, Diagnostics& diags);

} // namespace pdc
