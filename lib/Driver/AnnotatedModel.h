// Plans in models: ONNX's annotations for devices (docs/Annotations.md), written by --emit=annotated-onnx and read by
// --plan=model.
#pragma once

#include "NodePlaces.h"
#include "pdc/Driver/Compile.h"
#include "pdc/Pass/Pass.h"
#include "pdc/Plan/CostGraph.h"
#include "pdc/Plan/Plan.h"
#include "pdc/Plan/PlannerOptions.h"
#include "pdc/Transforms/Split.h"

#include <map>
#include <string>
#include <vector>

namespace pdc {

/// The annotations of one model in the course of its compilation.
class AnnotatedModel {
public:
  /// Reads them where options.planFromModel or options.emit ask for them. A plan that is asked for decides
  /// options.split, so far only how many members teams have, and options.devices, where that is 0.
  Status read(CompileOptions& options, Diagnostics& diags);

  /// Learns where the nodes of the file are in @main, which no team divides yet. A plan that is asked for decides
  /// options.split or options.stageSplits, with which @main is divided as the file says. Errors: there are no such
  /// splits.
  Status takeSplits(PassContext& context, CompileOptions& options);

  /// Learns what `split`, or each of `stageSplits`, divides of @main, which no team divides yet.
  Status learnParts(PassContext& context, const TeamSplit& split, const std::vector<TeamSplit>& stageSplits);

  /// Makes the file's stages those of every plan. Errors: groups that cannot be cut so.
  Status constrain(CostGraph& costs, PlannerOptions& planner, Diagnostics& diags) const;

  /// Writes a copy of the model with the plan in it. `costs` are those of the plan, `member` is @main as a member of a
  /// team has it.
  Status write(const Plan& plan, const CostGraph& costs, const Graph& member, const std::string& out,
               Diagnostics& diags) const;

private:
  Location at(const std::string& node = "") const { return {.file = path_, .node = node}; }
  std::string path_;
  DeviceAnnotations file_;
  DeviceConfiguration configuration_; ///< that is read
  TeamSplit flags_;                   ///< that they say
  NodePlaces places_;
  std::map<std::string, TeamParts> parts_; ///< by split
};

} // namespace pdc
