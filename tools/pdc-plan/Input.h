// What pdc-plan plans: a cost graph on a cluster, or a problem that brings its devices along.
#pragma once

#include "pdc/Plan/CostGraph.h"
#include "pdc/Planner/Planner.h"
#include "pdc/Published/DnnPartitioning.h"
#include "pdc/Published/Piper.h"

#include <string>
#include <variant>

namespace pdc {

class Diagnostics;

using PlanInput = std::variant<CostGraph, DnnPartitioningProblem, PiperProblem>;

/// What of the flags says where to run; empty or 0 where not given.
struct PlaceFlags {
  std::string levels, cluster, memory;
  std::int64_t devices = 0;
  double bandwidthBytesPerS = 0;
};

/// The text of a file.
Expected<std::string> readInput(const std::string& path, Diagnostics& diags);

/// "pdc", "pipedream", "dnn-partitioning" or "piper", by what stands in the file.
std::string guessFormat(const std::string& text);

Expected<PlanInput> parseInput(const std::string& text, const std::string& format, const std::string& file,
                               Diagnostics& diags);

/// The cost model to use: `asked`, or if that is empty the format's own. Refuses one that needs what the format lacks.
Expected<std::string> costModelFor(const std::string& format, const std::string& asked, Diagnostics& diags);

/// The cluster for a cost graph; options.memoryBytes if --memory is given.
Expected<Cluster> clusterFor(const PlaceFlags& flags, PlannerOptions& options, Diagnostics& diags);

/// Devices, memory and bandwidth of a problem, where the flags say other ones.
Status applyTo(DnnPartitioningProblem& problem, const PlaceFlags& flags, Diagnostics& diags);
Status applyTo(PiperProblem& problem, const PlaceFlags& flags, std::int64_t microbatches, Diagnostics& diags);

} // namespace pdc
