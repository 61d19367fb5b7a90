// What an exporter has done to the parameters of a network, told with the remedy.
#pragma once

#include "Initializers.h"
#include "Weights/ExportedProgram.h"
#include "Weights/InitializerRules.h"

#include <vector>

namespace pdc {

/// Warns of parameters that were folded, renamed, merged or left out. `list` has one entry per initializer.
void warnOfExporter(const OnnxFile& file, const ExportedProgram& program, const ValueUses& uses,
                    const std::vector<Initializer>& list, Diagnostics& diags);

} // namespace pdc
