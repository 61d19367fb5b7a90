// From the stages of nodes in a file to those of fusion groups.
#pragma once

#include "NodePlaces.h"
#include "pdc/Plan/CostGraph.h"

namespace pdc {

/// The configuration that pdc writes, whose metadata is beside it.
inline constexpr const char* ownConfiguration = "pdc";
/// Metadata with the stage of a group that no node tells: this, and the name of the group.
inline constexpr const char* groupMetadata = "pdc.pipeline_stage.";

/// What a file says of one of its configurations.
struct StagesOfFile {
  const std::string& path;
  const DeviceAnnotations& file;
  const std::string& configuration;
  const NodePlaces& places;

  std::optional<std::int32_t> of(std::size_t node) const;
};

/// The stage of each group, as the file numbers them; empty: it says nothing. A group of which neither a node nor the
/// metadata tells joins those of its colour, else the last stage of what it reads, else the first of what reads it,
/// else the first of all. Errors: two stages in a group or in a colour; a tensor that goes back to an earlier stage.
Expected<std::vector<int>> stagesOfGroups(const StagesOfFile& stages, const CostGraph& costs, Diagnostics& diags);

/// Warns of nodes that are computed elsewhere than the file says, because they are parts of other operations.
void warnOfNodesElsewhere(const StagesOfFile& stages, const std::vector<int>& stageOfGroup, Diagnostics& diags);

/// The names of the groups; of those with one name all but the first have a number behind it.
std::vector<std::string> uniqueNames(const CostGraph& costs);

} // namespace pdc
