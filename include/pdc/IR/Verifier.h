// Structural rules of the IR, then each op's own. Runs after every pass.
#pragma once

#include "pdc/IR/OpDef.h"

namespace pdc {

/// Reports every violation: definition before use, operand and result counts, inferred against stated types,
/// attribute names and kinds, unique names, outputs that exist, backward operations with an origin, loss scalars, one
/// state update per state.
Status verify(const Module& module, Diagnostics& diags);

} // namespace pdc
