// What the planner knows of a model: a directed acyclic graph of costs, without tensors.
//
// Times are milliseconds per minibatch on a device of speed 1, sizes are bytes.
#pragma once

#include "pdc/Plan/TeamSplit.h"
#include "pdc/Support/Expected.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace pdc {

class Diagnostics;

/// An atom of the partition: a fusion group with its forward and backward operations.
struct CostNode {
  std::string name;
  double forwardMs = 0;
  double inputGradientMs = 0;
  double weightGradientMs = 0;
  double updateMs = 0;             ///< optimizer, per update
  std::int64_t parameterBytes = 0; ///< trained parameters and running state
  std::int64_t gradientBytes = 0;  ///< accumulators, one per use of a trained parameter
  std::int64_t savedBytes = 0;     ///< kept from forward to backward, per minibatch in flight
  std::int64_t scratchBytes = 0;   ///< most that lives at once inside a phase
  std::int64_t workspaceBytes = 0; ///< most that one kernel call uses
  std::int64_t colour = -1;        ///< nodes of one colour (>= 0) share a stage
  std::int64_t handoverBytes = 0;  ///< what its weight gradients read of what input gradients have made; on a GPU also
                                   ///< data that it reads first, which waits beside the slot
  double lateUpdateMs = 0;         ///< what an update takes more where replicas add up gradients before it
  std::int64_t frozenBytes = 0;    ///< parameters that never change: no version, gradient or optimizer state
  /// The share of forwardMs, and of the gradients' times, in which members of a team wait for each other.
  double forwardTeamMs = 0, backwardTeamMs = 0;
  /// What the team's collectives take beside what is computed: no share of any time.
  double forwardHiddenTeamMs = 0, backwardHiddenTeamMs = 0;
  std::int64_t teamBytes = 0; ///< that a member sends to its team per minibatch
};

/// What a tensor is if it crosses encoded.
struct CostCodec {
  std::int64_t bytes = 0;
  double encodeMs = 0, decodeMs = 0; ///< of the value, and as much of its gradient
};

/// A tensor made by `from` and used by the nodes `to`. It is sent once to each stage that uses it. The parts of its
/// gradient are added up from that of the last user to that of the first on their way to the stage that makes the
/// tensor (GradientTrips.h).
struct CostTensor {
  std::string name;
  std::int64_t from = 0;
  std::vector<std::int64_t> to;
  std::int64_t bytes = 0;
  bool hasGradient = true; ///< whether as many bytes come back
  /// The users of the parts of its gradient, ascending; empty: each of `to` has one. Only with hasGradient.
  std::vector<std::int64_t> gradientFrom = {};
  std::optional<CostCodec> codec = {}; ///< where the planner may encode it
  /// Members of a team have parts of it, of so many bytes each, or of its gradient. Between stages of different splits
  /// it crosses whole: the sender gathers it.
  bool isPart = false;
  /// Members have terms of some of the parts of its gradient: its users are not divided by a border between different
  /// splits, and it does not cross one if it isPart.
  bool hasTerms = false;
  /// Only stages of this split can have it: members have terms of it, or other splits do without it.
  bool isOwn = false;

  /// The user of each part of its gradient, ascending: none, some or all of `to`, some of them several times.
  std::span<const std::int64_t> gradientUsers() const {
    if (!hasGradient) return {};
    return gradientFrom.empty() ? to : gradientFrom;
  }
};

/// A parameter that nodes of several stages may use (tied embeddings). It belongs to the first stage that uses it; its
/// bytes are not counted in any node's parameterBytes or gradientBytes.
struct CostSharedParameter {
  std::string name;
  std::vector<std::int64_t> nodes; ///< that use it, ascending; one accumulator each
  std::int64_t bytes = 0;
  bool isPart = false; ///< members have parts of it, or terms of its gradient: it is for stages of one split
};

/// A frozen parameter that several nodes use. Every stage with one of them has a copy; its bytes are not counted in any
/// node's frozenBytes.
struct CostFrozenParameter {
  std::string name;
  std::vector<std::int64_t> nodes; ///< that use it, ascending
  std::int64_t bytes = 0;
};

/// Nodes are in program order, which is topological. Of a graph that is divided over a team, everything is that of a
/// member.
struct CostGraph {
  std::string model;
  std::string costSource; ///< "measured", "analytic", or a file
  TeamSplit split = {};
  std::vector<CostNode> nodes;
  std::vector<CostTensor> tensors;
  std::vector<CostSharedParameter> sharedParameters;
  std::vector<CostFrozenParameter> frozenParameters;
  /// The same graph in the other splits that the planner may choose for a stage. They have the same nodes and colours,
  /// and the same tensors and parameters in the same order; none has graphs of its own here.
  std::vector<CostGraph> divided = {};

  /// How many splits there are to choose from; number 0 is that of this graph.
  int splits() const { return 1 + static_cast<int>(divided.size()); }
  const CostGraph& in(int number) const { return number == 0 ? *this : divided[static_cast<std::size_t>(number) - 1]; }
};

/// Bytes of a whole tensor: those of a split in which it is whole, else of all parts.
std::int64_t wholeBytes(const CostGraph& graph, std::size_t tensor);

/// What keeps graphs of two splits from being of one model, for people; empty if nothing does.
std::string differenceOf(const CostGraph& graph, const CostGraph& divided);

/// JSON with units in the key names (docs/Planning.md). Reading reports what is wrong with a JSON pointer.
std::string toJson(const CostGraph& graph);
Expected<CostGraph> costGraphFromJson(const std::string& text, const std::string& file, Diagnostics& diags);

} // namespace pdc
