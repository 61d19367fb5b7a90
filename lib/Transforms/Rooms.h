// The rooms of this library, each of which registers its own passes.
#pragma once

#include "pdc/Pass/Pass.h"

namespace pdc {

void registerExpertPasses(PassRegistry& registry);
void registerFusionPasses(PassRegistry& registry);
void registerLossPasses(PassRegistry& registry);
void registerPrecisionPasses(PassRegistry& registry);
void registerSplitPasses(PassRegistry& registry);

} // namespace pdc
