// How the algorithms of attention are chosen where nobody has chosen yet.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/kernels/Attention.h"

#include <vector>

namespace pdcrt::cuda {

/// The fastest among `times`, with the workspace that they take, to which it adds what plain and fused attention of
/// these sizes take if it does not say so yet. Where there is nothing to choose, or no memory to try it, nothing is
/// added, and plain ones hold.
Attention::Algorithms fastest(const Attention::Options& options, std::vector<KernelTime>& times);

} // namespace pdcrt::cuda
