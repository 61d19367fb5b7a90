// The states of cost model `pipedream-code` (Code.h), with what a solver needs to know of each.
//
// Enumerated breadth first from the first state, each set once (open addressing over the sets' words): hundreds of
// thousands in a fraction of a second.
#pragma once

#include "pdc/Planner/Order/Dag.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace pdc {

struct CostGraph;

struct CodeStates {
  std::size_t words = 0;           ///< 64-bit words of one set
  std::vector<std::uint64_t> bits; ///< set after set
  std::vector<double> timeMs;      ///< of the nodes inside, one device of speed 1
  std::vector<double> weights;     ///< bytes of parameters
  std::vector<double> stash;       ///< bytes of activations and parameters
  std::vector<double> cut;         ///< bytes, O of Code.h; 0 of the last state

  std::size_t size() const { return timeMs.size(); }
  std::span<const std::uint64_t> set(std::size_t state) const { return {&bits[state * words], words}; }
  std::size_t nodesIn(std::size_t state) const;

  /// Whether every node of state a is in state b.
  bool includes(std::size_t b, std::size_t a) const {
    const std::uint64_t *outer = &bits[b * words], *inner = &bits[a * words];
    for (std::size_t i = 0; i < words; ++i)
      if (inner[i] & ~outer[i]) return false;
    return true;
  }

  /// The given states only, by size and then as given. A state that includes another comes after it.
  CodeStates select(std::vector<std::size_t> states) const;

  /// The states inside `end` that include `begin` (-1: all of them) and are not it, with sums from `begin` on.
  CodeStates interval(int begin, std::size_t end) const;
};

/// What the enumeration needs to know of the nodes.
struct CodeNodes {
  Dag dag;
  std::vector<double> timeMs, weights, stash, activation;
  std::vector<std::vector<std::size_t>> colours; ///< nodes that share a stage

  /// Whether a set holds only a part of some colour.
  bool tears(std::span<const std::uint64_t> set) const;

  static CodeNodes of(const CostGraph& graph, double speed);
};

/// All states in the order in which they are found, the first one first. Nothing if there are more than `limit`.
///
/// `reduced`: only states of which no other one is as good, for plans that need not use every component. Of two states
/// with equal sums of times and weights that differ by such nodes, the one with the smaller cut is kept:
///  - an eager node takes no time and has no weights, is the only consumer of a node that follows its other
///  predecessors,
///    and sends no more than that one: a state with its predecessors has it, too
///  - a lazy node, and all before it, take no time and have no weights: it is added with a node that needs it only
/// Each maps a chain of states to a chain of states with the same sums and no larger cuts. Stages may become empty.
std::optional<CodeStates> allStates(const CodeNodes& nodes, std::size_t limit, bool reduced = false);

/// Whether `reduced` may leave out states.
bool canReduce(const CodeNodes& nodes);

/// Those of the states that tear no colour apart.
std::vector<std::size_t> wholeStates(const CodeNodes& nodes, const CodeStates& states);

/// Whole states that are a node with its ancestors or that the topological order of the nodes passes through, the last
/// state among them; sorted as CodeStates::select sorts. As many as nodes, whatever the graph.
CodeStates simpleStates(const CodeNodes& nodes);

/// The nodes that belong to no state, since nothing connects them with the first node.
std::vector<int> nodesOutsideAllStates(const Dag& dag);

} // namespace pdc
