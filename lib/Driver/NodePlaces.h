// Where the nodes of an ONNX file have gone: which fusion groups compute each, and which value its output is.
#pragma once

#include "pdc/IR/Graph.h"
#include "pdc/Import/DeviceAnnotations.h"

#include <set>
#include <string>
#include <vector>

namespace pdc {

/// By node of the file. A node of which nothing is left has no groups: it is a view, was computed at import, or is a
/// part of an operation that stands for several nodes.
struct NodePlaces {
  std::vector<std::set<int>> groups;
  std::vector<std::string> values; ///< in @main, that the first output of the node is; empty: unknown
};

/// For @main of a training, in fusion groups, not divided over a team.
NodePlaces placesOf(const DeviceAnnotations& file, const Graph& main);

/// The stage of each node, by the stages of groups: the last of those that compute it. A node without groups is where
/// its first reader is, or its last producer if it has no reader; else in stage 0.
std::vector<int> stagesOfNodes(const DeviceAnnotations& file, const NodePlaces& places,
                               const std::vector<int>& stageOfGroup);

} // namespace pdc
