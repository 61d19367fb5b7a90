// The best plan for cost model `piper` by trying all, for tests. Written from the definition (Piper/Definition.h);
// shares only the records with the solver.
#pragma once

#include "pdc/Plan/Piper.h"

#include <optional>

namespace pdc {

struct PiperOptimum {
  double tps = 0;         ///< smallest largest TPS
  double memoryBytes = 0; ///< least peak memory of the plans that reach it (up to rounding)
};

/// Tries every chain of down-sets, every pair of degrees and every vector of choices. Exponential: for up to about ten
/// nodes and devices. Nothing if no plan is feasible.
std::optional<PiperOptimum> bruteForcePiper(const PiperProblem& problem, bool replicate = true);

} // namespace pdc
