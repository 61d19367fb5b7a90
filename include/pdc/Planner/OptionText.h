// Values of the planner's flags, as they are typed.
#pragma once

#include "pdc/Planner/Planner.h"

#include <string>

namespace pdc {

class Diagnostics;

// Errors have ExitCode::usage, name the flag, and say what is expected.

/// --warmup: "hide", "paper", or forwards per stage, "2,1,0".
Status parseWarmup(const std::string& text, PlannerOptions& planner, Diagnostics& diags);

/// --shard: the name of a policy, "weights:D", D from 2 to 1024, or "none" and "optimizer" for each stage, behind
/// commas.
Status parseShard(const std::string& text, PlannerOptions& planner, Diagnostics& diags);

/// --bucket: a size; empty: the default.
Status parseBucket(const std::string& text, PlannerOptions& planner, Diagnostics& diags);

/// --levels: COUNTxBYTES_PER_SECOND from the inside out, "4x10e9,4x1.25e9": equal devices without a name, latency or
/// limit of memory.
Expected<Cluster> parseLevels(const std::string& text, Diagnostics& diags);

/// A size: a number of bytes ("16e9"), or with a unit ("16GiB", "80GB").
Expected<std::int64_t> parseBytes(const std::string& flag, const std::string& text, Diagnostics& diags);

/// Memory of a device that has as much as a plan can ask for.
constexpr std::int64_t unlimitedMemoryBytes = std::int64_t{1} << 53;

} // namespace pdc
