// The oracle of cost model `dnn-partitioning`.
#pragma once

#include "pdc/Published/DnnPartitioning.h"

#include <optional>

namespace pdc {

/// The smallest largest load over all sequences of devices, each an accelerator or a CPU with some nodes that obey the
/// definition (Model.h), by trying all of them; nothing if there is none. For problems of up to about ten nodes.
std::optional<double> bruteForceDnnPartitioning(const DnnPartitioningProblem& problem);

} // namespace pdc
