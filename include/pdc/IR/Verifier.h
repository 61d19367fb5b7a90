// Structural rules of the IR, then each op's own. Runs after every pass.
#pragma once

#include "pdc/IR/OpDef.h"

namespace pdc {

/// The types that `def` gives its results: one per result, by its `infer` or, for elementwise ops, from its
/// expressions. Counts and kinds must have been checked (checkOperands, checkAttributes).
Expected<std::vector<Type>> inferTypes(const OpDef& def, const InferContext& context);

/// Whether `def` takes that many operands, with null only where they are optional.
Status checkOperands(const OpDef& def, const std::vector<Value*>& operands, const Location& location,
                     Diagnostics& diags);
/// Whether `attributes` are those of `def`: all there, none unknown, each of its kind.
Status checkAttributes(const OpDef& def, const Attributes& attributes, const Location& location, Diagnostics& diags);
/// The rules of one operation by itself: operands, attributes, results that agree with inference, its OpDef's `verify`.
Status verifyOperation(const Operation& operation, Diagnostics& diags);

/// Reports every violation: definition before use, operand and result counts, inferred against stated types,
/// attribute names and kinds, unique names, outputs that exist, backward operations with an origin, loss scalars, one
/// state update per state.
Status verify(const Module& module, Diagnostics& diags);

} // namespace pdc
