// What an exporter has done to the parameters of a network, told with the remedy.
#pragma once

#include "Initializers.h"
#include "Weights/ExportedProgram.h"
#include "Weights/InitializerRules.h"

#include <vector>

namespace pdc {

/// What to type so that PyTorch's default exporter keeps the module's parameters, and its older one.
inline constexpr const char* keepNamesWithoutOptimizer =
    "export with torch.onnx.export(…, optimize=False), which keeps the module's parameters and their names";
inline constexpr const char* keepNamesInTraining =
    "export with training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False";

/// Warns of parameters that were folded, renamed, merged or left out. `list` has one entry per initializer.
void warnOfExporter(const OnnxFile& file, const ExportedProgram& program, const ValueUses& uses,
                    const std::vector<Initializer>& list, Diagnostics& diags);

} // namespace pdc
