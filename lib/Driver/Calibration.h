// --calibrate=: which inputs frozen weights of 8 bits keep in f32, from data.
#pragma once

#include "pdc/Driver/Compile.h"
#include "pdc/IR/Graph.h"
#include "pdc/IR/KeptInputs.h"

namespace pdc {

/// Runs the forward of @main on the first `options.calibrateBatches` minibatches of the data, with the weights in f32,
/// in a program of one stage. An input of a weight is kept if a value of it is not below alpha in at least a quarter of
/// them. Errors: the data cannot be read, or has too few samples; alpha is 0, so that every input would be kept.
Expected<KeptInputs> calibrate(const Module& module, const OpRegistry& registry, const BatchAxes& batch,
                               const CompileOptions& options, Diagnostics& diags);

} // namespace pdc
