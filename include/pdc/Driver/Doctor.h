// What this machine has of what generated programs need, and what to type where something lacks.
#pragma once

#include <iosfwd>

namespace pdc {

/// Prints a line for each thing to `out`. Whether all is there that a run on this machine's CPUs needs.
bool examineMachine(std::ostream& out);

} // namespace pdc
