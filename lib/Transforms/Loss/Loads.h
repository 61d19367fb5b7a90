// What an evaluation tells of layers that deal out rows to places.
#pragma once

#include "pdc/IR/Graph.h"
#include "pdc/Pass/Pass.h"

#include <string>
#include <vector>

namespace pdc {

/// An operation of a forward that deals out rows to places, and what its layer is called.
struct LayerWithLoads {
  Operation* operation = nullptr;
  std::string name; ///< "blocks.0.experts"; of several with one name, "blocks.0.experts 2" is the second
};

/// In program order; of operations with the same choices the first. Of a graph to which no loads have been added.
std::vector<LayerWithLoads> layersWithLoads(const Module& module, const Graph& graph);

/// Adds an output of kind load for each operation of @evaluate that has one; operations with the same choices have one
/// in common. It is called as the layer is.
Status addLoads(PassContext& context, Graph& graph);

} // namespace pdc
