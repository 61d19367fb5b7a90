// --capacity=auto: the capacities of experts, from data.
#pragma once

#include "pdc/Driver/Compile.h"
#include "pdc/IR/Graph.h"

#include <cstdint>
#include <vector>

namespace pdc {

/// The least capacity with which no more than this share of the choices is dropped. `counts` has how many choices have
/// each place in the queue of their expert; at least 1.
std::int64_t leastCapacity(const std::vector<std::int64_t>& counts, double drop);

/// For each of slotsOfExperts (Transforms/Capacity.h) of @main the least capacity with which no more than
/// options.capacity.drop of the choices are dropped on the first minibatches of its data, where every expert has room
/// for all. Errors: the data cannot be read, or has too few samples; no layer deals out rows by index.
Expected<std::vector<std::int64_t>> chooseCapacities(const Module& module, const OpRegistry& registry,
                                                     const BatchAxes& batch, const CompileOptions& options,
                                                     Diagnostics& diags);

} // namespace pdc
