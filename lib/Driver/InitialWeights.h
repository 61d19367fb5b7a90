// Starting weights from other files than the model.
#pragma once

#include "pdc/IR/Graph.h"
#include "pdc/Support/Expected.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pdc {

/// --init-from=F[,strip=PREFIX][,add=PREFIX]: the parameters of `module`, which has just been imported, refer to the
/// tensors of their names in `files` (WeightFiles.h says which files a word names), in the layout of the model; f16 and
/// bf16 become f32, exactly, f64 is rounded. A prefix that all missing names lack or have is left out or added. Says
/// what was taken, what was not, and what was converted. Errors: a file that cannot be read, another type or shape, a
/// tensor in two files, no name that is a parameter's.
Status takeInitialWeights(Module& module, const std::vector<std::string>& files, Diagnostics& diags);

/// --init=SEED and --reset=REGEX: what starts with the usual initialisation of its op instead of stored values.
struct DrawnWeights {
  std::optional<std::uint64_t> seed; ///< for all parameters without values; else they are an error
  std::string reset;                 ///< for all parameters with a name in which this is found, by `seed` or 0
};

/// Draws the starting values of parameters of `module`, of which @main has been raised (so that weights are operands of
/// the op that they were made for). Says how many and how. Errors: a parameter without values, where there is no seed
/// or no usual initialisation; a `reset` that matches none.
Status drawInitialWeights(Module& module, const DrawnWeights& wanted, Diagnostics& diags);

} // namespace pdc
