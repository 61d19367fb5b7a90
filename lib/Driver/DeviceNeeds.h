// How many devices of the given memory a model needs, with and without what saves memory.
#pragma once

#include "PlanRequest.h"

#include <functional>
#include <string>

namespace pdc {

/// A line: the fewest devices (fewestDevices) as asked, without --quantize and without --lora, where these are given.
/// Without --lora everything trains in full that --freeze does not name, nothing is in 8 bits. `costs` are those of
/// this compilation, `costsWith` gives those of one with other flags, estimated: memory does not depend on times.
std::string deviceNeedsText(const CompileOptions& options, const CostGraph& costs, const PlanRequest& request,
                            const std::function<Expected<CostGraph>(const CompileOptions&)>& costsWith);

} // namespace pdc
