// The best plan for cost model `piper` by trying all, for tests. Written from the definition (Piper/Definition.h);
// shares only the records with the solver.
#pragma once

#include "pdc/Published/Piper.h"

#include <optional>

namespace pdc {

/// Of the best plan: each number is the least of the plans that have the ones before (up to rounding).
struct PiperOptimum {
  double tps = 0;         ///< largest of the stages
  double memoryBytes = 0; ///< peak
  double movedBytes = 0;  ///< per sample: Σ over stages of edgeBytes + d·resyncBytes
  double devices = 0;
};

/// Tries every chain of down-sets, every pair of degrees and every vector of choices. Exponential: for up to about ten
/// nodes and devices. Nothing if no plan is feasible.
std::optional<PiperOptimum> bruteForcePiper(const PiperProblem& problem, bool replicate = true);

} // namespace pdc
