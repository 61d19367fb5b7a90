// Adapters of PEFT as starting values.
#pragma once

#include "pdc/IR/Graph.h"
#include "pdc/Support/Expected.h"

#include <string>

namespace pdc {

/// Whether a word of --init-from names a folder with adapters of PEFT.
bool isAdapterFolder(std::string word);

/// The adapters of `module`, and what else was trained with them, start with those of the folder. Errors: it cannot be
/// read; adapters of another kind; a layer without an adapter here, or one with another rank or scale, with the --lora
/// that fits.
Status takeAdapter(Module& module, std::string word, Diagnostics& diags);

} // namespace pdc
