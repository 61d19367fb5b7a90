// training.json, beyond what flags say: what the runtime must know to read samples and to evaluate.
#pragma once

#include "pdc/Driver/Compile.h"

namespace pdc {

/// Fills in size and axes of a minibatch, the loss that an evaluation computes with its options, and the metric that
/// suits it. `evaluatedLoss`: what an evaluation computes of the first loss; empty: the model has its loss inside.
/// Warns of parameter groups that match no trained parameter of the module.
void completeTraining(pdcrt::Training& training, const CompileOptions& options, const Module& module,
                      const BatchAxes& batch, const std::string& evaluatedLoss, Diagnostics& diags);

} // namespace pdc
