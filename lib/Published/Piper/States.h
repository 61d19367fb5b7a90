// The down-sets between which the search places its cuts, and what bounds the stages between them.
#pragma once

#include "Piper/Instance.h"
#include "pdc/Planner/Order/NodeSet.h"

namespace pdc {

struct PiperStates {
  /// Sums over a state's nodes for one tensor-parallel degree: what they take at least, whatever is cut.
  struct Least {
    double time = 0, memory = 0; ///< memory with one sample in flight
    int missing = 0;             ///< nodes that do not offer the degree
  };

  std::vector<NodeSet> sets;                       ///< by size; the first is empty, the last has all nodes
  bool isComplete = true;                          ///< whether these are all down-sets
  std::vector<double> work;                        ///< device-time per sample that the nodes of a state take at least
  std::vector<std::vector<Least>> least;           ///< by state and index of degree
  std::vector<std::vector<std::size_t>> supersets; ///< the states that hold more nodes and all of this one's, ascending

  /// All down-sets if there are at most `most`, else so many prefixes of a few topological orders.
  static PiperStates make(const PiperInstance& instance, std::size_t most);
};

} // namespace pdc
