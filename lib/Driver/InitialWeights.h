// Starting weights from other files than the model.
#pragma once

#include "pdc/IR/Graph.h"
#include "pdc/Support/Expected.h"

#include <string>
#include <vector>

namespace pdc {

/// --init-from=F.safetensors: the parameters of `module`, which has just been imported, refer to the tensors of their
/// names in `files`, in the layout of the model. Says how many did. Errors: a file that cannot be read, another type or
/// shape, a tensor in two files, no name that is a parameter's.
Status takeInitialWeights(Module& module, const std::vector<std::string>& files, Diagnostics& diags);

} // namespace pdc
