// Running a model once on given inputs, by the interpreter or by generated code.
#pragma once

#include "pdc/Driver/Compile.h"

#include <string>

namespace pdc {

struct EvaluateOptions {
  CompileOptions model; ///< model, import and loss count
  std::string
      inputs; ///< folder with NAME.npy per input (and label), or NAME.pb or input_POSITION.pb as ONNX's tests have
  std::string outputs;                ///< folder to write
  std::string engine = "interpreter"; ///< or cpu
  bool inDouble = false;              ///< the interpreter computes in f64
  bool gradients = false;             ///< differentiate, and write gradients too
  bool unfused = false;               ///< where gradients are wanted: one kernel for each operation
  std::uint64_t seed = 0;             ///< of random operators
};

/// Runs @main of the model as it was exported, once, with its stored weights. Writes NAME.npy per output, and with
/// gradients loss.npy (f64) and gradients.safetensors with one tensor per trained parameter. Characters that a file
/// name cannot have become '_'.
Status evaluate(const EvaluateOptions& options, Diagnostics& diags);

} // namespace pdc
