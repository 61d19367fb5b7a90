// The last part of the pass `fuse`.
#pragma once

#include "pdc/Pass/Pass.h"

namespace pdc {

/// Asks every operation whose OpDef has `absorb`, once, in program order.
Status absorbElementwise(PassContext& context, Graph& graph);

} // namespace pdc
