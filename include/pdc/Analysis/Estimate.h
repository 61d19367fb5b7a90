// Estimated times alone, where many graphs are compared.
#pragma once

#include "pdc/Analysis/Profile.h"

namespace pdc {

/// analyticProfile() without the hash of the graph, which takes longer than all else of it.
Profile estimatedTimes(const Graph& graph, const DeviceKind& device, const std::string& version);

} // namespace pdc
