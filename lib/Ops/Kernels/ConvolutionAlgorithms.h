// The algorithms of pdcrt::Conv2d as an attribute of the ops that call it, and calls of them to be timed.
#pragma once

#include "pdc/IR/OpDef.h"

#include "pdcrt/kernels/Conv2d.h"

namespace pdc::ops {

/// `algorithms`: one name for each method of the kernel.
AttributeDef convolutionAlgorithms();
/// `workspace`: what they take, see KernelAlternatives.
AttributeDef convolutionWorkspace();

/// What the attributes say. Nothing where it is not three names of algorithms.
std::optional<pdcrt::Conv2d::Algorithms> convolutionAlgorithmsOf(const Attributes& attributes);

/// Of a call of `method`; the kernel is named without its algorithms and its bias, which do not matter.
KernelAlternatives convolutionAlternatives(pdcrt::Conv2d::Options options, const std::string& method, Target target);

} // namespace pdc::ops
