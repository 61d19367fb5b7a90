// Down-sets: sets of nodes that hold every predecessor of their members. What the first stages of a pipeline compute
// together is always one; a stage is the difference of two neighbours in a chain of down-sets.
#pragma once

#include "pdc/Planner/Order/Dag.h"

#include <unordered_map>

namespace pdc {

class DownSets {
public:
  /// All of them, the empty one first, by size and then by NodeSet's order. Nothing if there are more than `limit`.
  static std::optional<DownSets> all(const Dag& dag, std::size_t limit);

  std::size_t size() const { return sets_.size(); }
  const NodeSet& operator[](std::size_t index) const { return sets_[index]; }

  /// The index of a down-set; size() if it is not one of them.
  std::size_t find(const NodeSet& set) const;

private:
  std::vector<NodeSet> sets_;
  std::unordered_map<NodeSet, std::size_t, NodeSetHash> index_;
};

} // namespace pdc
