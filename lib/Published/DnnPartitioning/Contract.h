// Classes that no better plan separates, merged.
#pragma once

#include "DnnPartitioning/Instance.h"

namespace pdc::placement {

/// Merges a class v into its only neighbour p on one side (its only predecessor, or its only successor) where that
/// makes no plan with a largest load of at most `bound` worse: some plan of the same value has both on one device.
///
/// Why: let p be on device A and v on another, B. Moving v to A keeps the order, since p is v's only neighbour on that
/// side. By submodularity, with {p} inside both A and the complement of B,
///
///   load(A + v) - load(A) <= time(v) + cut({p, v}) - cut({p})        load(B - v) - load(B) <= the same - 2 time(v)
///
/// and no other load changes. So it suffices that the right side is not positive, that v may be on an accelerator, and
/// that its size fits there. Nothing but p may be assumed to be on A, not even p's own ancestors.
///
/// If A is a CPU it pays v's time and saves no transfer. Where p may be on a CPU within the bound, v is merged for
/// free: the merged class takes p's time on a CPU. What the result proves impossible is impossible in `instance`, but
/// a plan of the result with such a class on a CPU may have a larger load in `instance`. Classes that hold one of
/// `strict` (as many flags as classes, or none) get no others for free.
Instance contract(const Instance& instance, Amount bound, const std::vector<char>& strict = {});

} // namespace pdc::placement
