// Sizes that the arena and what is in use of it share.
#pragma once

#include "pdc/Predict/Memory.h"

namespace pdc {

/// What a minibatch keeps in a slot: what the backward needs, and the values that are sent, each once.
std::int64_t slotBytesOf(const Plan& plan, int stage);

} // namespace pdc
