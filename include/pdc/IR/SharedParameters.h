// Parameters that fusion groups of several stages use (tied weights).
//
// One belongs to the first stage that uses it. The others get the version that a minibatch takes from there, and send
// the gradient of each of their uses back (docs/Semantics.md).
#pragma once

#include "pdc/IR/Graph.h"

#include <set>
#include <vector>

namespace pdc {

/// A trained parameter with uses in several stages.
struct SharedParameter {
  const Parameter* parameter = nullptr;
  Type type = {};             ///< what a stage has of it: of a team, a member's part
  std::vector<int> useStages; ///< of each use, in program order
  int owner() const;
  /// Uses in `stage`.
  int usesIn(int stage) const;
};

/// The groups that use each parameter of a differentiated and fused graph or replace its state, and whether stages can
/// share it: it is trained, and each of these groups has a gradient of it. `uses` are the groups of its gradients, in
/// program order.
struct ParameterGroups {
  const Parameter* parameter = nullptr;
  Type type = {}; ///< what the graph has of it
  std::set<int> groups;
  std::vector<int> uses;
  bool canBeShared() const;
};
std::vector<ParameterGroups> parameterGroups(const Graph& training);

/// Those that a cut makes several stages use, in the order of their first use; stageOfGroup[g] is the stage of group g.
/// None of them that cannot be shared.
std::vector<SharedParameter> sharedParameters(const Graph& training, const std::vector<int>& stageOfGroup);

} // namespace pdc
