// Where the planner's costs come from: measured in a generated program, remembered from an earlier measurement, or
// estimated.
#pragma once

#include "Generate.h"
#include "pdc/Analysis/Profile.h"

namespace pdc {

/// Generates and builds a one-stage program of the module in a temporary folder, and has it time every group in
/// context, and the link between two ranks of this machine.
Expected<Profile> measure(PassContext& context, const pdcrt::Training& training, const Provenance& provenance);

/// --profile=: "auto" takes a valid measurement from the cache ($XDG_CACHE_HOME/pdc, else ~/.cache/pdc), else measures,
/// else estimates with a warning; "measure" always measures; "analytic" estimates; anything else is a file, which must
/// be a profile of this model.
Expected<Profile> chooseProfile(const std::string& choice, PassContext& context, const pdcrt::Training& training,
                                const Provenance& provenance, const DeviceKind& device);

} // namespace pdc
