// Instances of the operator-placement problem of Tarnawski et al., "Efficient Algorithms for Device Placement of DNN
// Graph Operators" (NeurIPS 2020), in that paper's JSON. Times, tensor costs and sizes are in the file's own units.
#pragma once

#include "pdc/Support/Expected.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pdc {

class Diagnostics;

struct DnnPartitioningNode {
  std::int64_t id = 0; ///< as in the file
  std::string name;
  bool onAccelerator = true; ///< whether an accelerator can compute it
  double cpuTime = 0, acceleratorTime = 0;
  bool isBackward = false;
  std::int64_t colour = -1; ///< nodes of one colour (>= 0) share a device
  double size = 0;          ///< memory
};

/// All edges out of a node carry its output and must cost the same (docs/PlannerModels.md); `cost` is the
/// time of the transfer.
struct DnnPartitioningEdge {
  std::int64_t from = 0, to = 0; ///< indices of nodes
  double cost = 0;
};

struct DnnPartitioningProblem {
  std::string name;
  std::vector<DnnPartitioningNode> nodes; ///< in the file's order
  std::vector<DnnPartitioningEdge> edges;
  std::int64_t accelerators = 0, cpus = 0;
  double acceleratorMemory = 0;
};

Expected<DnnPartitioningProblem> dnnPartitioningFromJson(const std::string& text, const std::string& file,
                                                         Diagnostics& diags);

} // namespace pdc
