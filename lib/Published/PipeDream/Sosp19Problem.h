// What the solvers of the cost models `sosp19` and `pipedream-2018` work on: units that cannot be torn apart, the
// levels that matter, and what a cut, a synchronisation and a computation take.
#pragma once

#include "pdc/Planner/Order/Dag.h"

#include "pdc/Plan/Cluster.h"
#include "pdc/Plan/CostGraph.h"

#include <string>

namespace pdc::sosp19 {

/// A level of more than one component. What travels in it takes time per byte.
struct Level {
  std::int64_t count = 1;
  std::int64_t devicesInside = 1; ///< of one component
  double cutMsPerByte = 0;        ///< 2 / B
  double syncMsPerByte = 0;       ///< 2 / B, or 4 / B in the model of 2018
  std::size_t position = 0;       ///< in Cluster::levels
};

/// A tensor between units. Without repetition in `to`; never inside one unit only.
struct UnitTensor {
  int from = 0;
  std::vector<int> to;
  double bytes = 0;
};

struct Problem {
  Problem(const CostGraph& graph, const Cluster& cluster, const std::string& costModel);

  /// Synchronisation of m replicas per minibatch, as a part of syncMsPerByte · bytes: (m-1)/m, or (m-1)/m² in 2018.
  double syncShare(double m) const { return isOf2018 ? (m - 1) / (m * m) : (m - 1) / m; }

  bool isOf2018 = false;
  std::vector<Level> levels; ///< from the inside out
  std::int64_t devices = 1;
  std::vector<std::vector<std::int64_t>> units;  ///< nodes of each, ascending
  std::vector<double> computeMs, parameterBytes; ///< of units
  std::vector<UnitTensor> tensors;
  Dag dag; ///< of units
};

/// A linear order of the units and its prefixes: position p stands for the first p units.
struct Chain {
  Chain(const Problem& problem, std::vector<int> order);
  Chain reversed() const;

  int size() const { return static_cast<int>(order.size()); }

  std::vector<int> order;
  std::vector<double> computeMs, parameterBytes; ///< of the first p units, p = 0 … size
  std::vector<double> cutBytes;                  ///< of the tensors that cross position p
};

/// `count` components of a level for the next part of the work.
struct Share {
  int stage = 0; ///< of its level, within the component of the level outside
  std::int64_t replicas = 1;
};

/// A stage of the innermost level: the units, and what each of Problem::levels gives it (innermost first).
struct PlacedStage {
  std::vector<int> units;
  std::vector<Share> shares;
};
using Placement = std::vector<PlacedStage>;

} // namespace pdc::sosp19
