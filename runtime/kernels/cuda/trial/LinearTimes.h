// How the algorithms of linear layers are chosen where nobody has chosen yet.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/kernels/Linear.h"

#include <vector>

namespace pdcrt::cuda {

/// The fastest among `times`, to which it adds what the products of these sizes take by each of the library's first
/// algorithms if it does not say so yet. Where there is nothing to choose, or no memory to try it, nothing is added,
/// and the first ones hold.
Linear::Algorithms fastest(const Linear::Options& options, std::vector<KernelTime>& times);

} // namespace pdcrt::cuda
