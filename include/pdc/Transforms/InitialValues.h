// How parameters usually start, by the ops that use them.
#pragma once

#include "pdc/IR/Graph.h"

#include <map>

namespace pdc {

/// The initial values of the parameters of `graph` that have a usage: what the first op, in program order, says that
/// takes the parameter or what ops that move or add elements made of it (OpUsage::initialValues). Ask before
/// differentiation.
std::map<const Parameter*, InitialValues> usualValues(const Graph& graph);

} // namespace pdc
