// Expansion of a model's local functions.
#pragma once

#include "OnnxFile.h"
#include "pdc/IR/OpDef.h"

namespace pdc {

/// Replaces every node of `file`'s graph that calls a function of the model by the nodes of the function, and so on for
/// the functions that those call. An operator of ONNX that `registry` has a conversion for is no call, also where the
/// model brings a function of that name.
///
/// Names: node n of a function that node c calls becomes "c/n", as do the values that the function computes for itself;
/// a number is added where such a name is taken. Attributes that a function's node takes from the call
/// (ref_attr_name) have the call's value, else the default that the function states, else they are absent. Nodes keep
/// the opset that their function imports (OnnxFile::opsetOf).
///
/// Errors: functions that call themselves, calls with more inputs or outputs than the function has, opsets that pdc
/// does not read, and expansions beyond all measure.
Status inlineFunctions(OnnxFile& file, const OpRegistry& registry, Diagnostics& diags);

} // namespace pdc
