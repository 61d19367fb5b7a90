// The order in which nodes depend on each other, without costs.
#pragma once

#include "pdc/Planner/Order/NodeSet.h"

#include <optional>
#include <utility>
#include <vector>

namespace pdc {

struct CostGraph;

/// A directed acyclic graph. Nodes are numbered as in the input; edges are without repetition.
class Dag {
public:
  /// Nothing if the edges form a cycle (an edge from a node to itself is one).
  static std::optional<Dag> make(std::size_t nodes, std::vector<std::pair<int, int>> edges);

  /// Of a cost graph, whose node numbers are a topological order by its definition.
  static Dag of(const CostGraph& graph);

  std::size_t size() const { return successors_.size(); }
  const std::vector<int>& successors(int node) const { return successors_[static_cast<std::size_t>(node)]; }
  const std::vector<int>& predecessors(int node) const { return predecessors_[static_cast<std::size_t>(node)]; }

  /// The topological order that always takes the smallest number that it can.
  const std::vector<int>& order() const { return order_; }

  /// All ancestors of each node, not itself: size²/8 bytes.
  std::vector<NodeSet> ancestors() const;
  std::vector<NodeSet> descendants() const;

private:
  std::vector<std::vector<int>> successors_, predecessors_;
  std::vector<int> order_;
};

/// For each node, the number of its strongly connected component in the graph of any edges; components are numbered
/// from 0 by their smallest node.
std::vector<int> strongComponents(std::size_t nodes, const std::vector<std::pair<int, int>>& edges);

} // namespace pdc
