// The algorithms of pdcrt::Linear as an attribute of the ops that call it.
#pragma once

#include "pdc/IR/OpDef.h"

#include "pdcrt/kernels/Linear.h"

namespace pdc::ops {

/// `algorithms`: one name for each method of the kernel.
AttributeDef linearAlgorithms();
/// What the attributes say. Nothing where it is not three names of algorithms.
std::optional<pdcrt::Linear::Algorithms> linearAlgorithmsOf(const Attributes& attributes);

/// Of a call of `method`, which has to choose where products are for tensor cores.
KernelAlternatives linearAlternatives(pdcrt::Linear::Options options, const std::string& method, Target target);

} // namespace pdc::ops
