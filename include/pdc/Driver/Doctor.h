// What this machine has of what generated programs need, and what to type where something lacks.
#pragma once

#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Expected.h"

#include <iosfwd>
#include <string>

namespace pdc {

/// Prints a line for each thing to `out`. Whether all is there that a run on this machine's CPUs needs.
bool examineMachine(std::ostream& out);

/// Measures messages within the first machine of mpirun's `hostfile`, and between it and the second one, with the
/// program in `folder`, and collectives of teams within the first, and writes the cluster file `out`: machines of as
/// many devices as they have slots. Errors: machines of different numbers of slots; a link that cannot be measured.
Status measureCluster(const std::string& folder, const std::string& hostfile, const std::string& out,
                      std::ostream& text, Diagnostics& diags);

} // namespace pdc
