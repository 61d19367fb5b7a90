// Every parameter is an initializer of the model, its own, whatever the exporter made of it.
#pragma once

#include "OnnxFile.h"
#include "pdc/Import/OnnxImport.h"

#include <functional>
#include <string>

namespace pdc {

/// Lifts weights out of Constant nodes and bodies of control flow, and gives those that were merged initializers of
/// their own; tells of both. `file` is as it was read, but for inputs.
void giveOwnInitializers(OnnxFile& file, const ImportOptions& options, Diagnostics& diags);

/// The same for the parameters whose names `wanted` says.
void giveOwnInitializers(OnnxFile& file, const std::function<bool(const std::string&)>& wanted, Diagnostics& diags);

/// Opens the model at `path`, in which the parameters whose names `wanted` says are initializers: those that the
/// exporter merged or hid, and inputs that were taken for weights (without elements then).
Expected<OnnxFile> openWithOwnInitializers(const std::string& path,
                                           const std::function<bool(const std::string&)>& wanted, Diagnostics& diags);

} // namespace pdc
