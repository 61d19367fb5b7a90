// What tensors become that cross between stages encoded (--edge-codec).
#pragma once

#include "pdc/IR/Graph.h"
#include "pdc/IR/OpDef.h"
#include "pdc/Plan/Cluster.h"
#include "pdc/Plan/CostGraph.h"
#include "pdc/Plan/EdgeCodec.h"

namespace pdc {

/// Adds to each tensor of `cost` that can be encoded, and gets smaller by it, what it becomes (CostTensor::codec).
/// `graph` has the values. Coding reads a value twice and writes it once, at the memory's bandwidth. Errors: internal
/// ones only.
Status addEdgeCodecs(CostGraph& cost, const Graph& graph, const EdgeCodec& codec, const DeviceKind& device,
                     const OpRegistry& registry, Diagnostics& diags);

} // namespace pdc
