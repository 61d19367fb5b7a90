// Recognises a function of one operand that an exporter has taken to pieces.
#pragma once

#include "pdc/IR/Builder.h"

#include <functional>
#include <string>

namespace pdc::ops {

/// OpRewrites::raise of the elementwise op `op`, which computes the analytic function `expression` of X: fires where a
/// chain of elementwise operations, in which the op `part` occurs, computes the same function of one value, in whatever
/// order its factors stand.
///
/// The chain is made of + - * / and analytic functions alone, and is compared with `expression` at points between -50
/// and 50; it may differ by 3e-7 · |x|, which is what exporters lose by rounding constants to single precision.
/// (Analytic functions that agree on an interval agree everywhere.)
std::function<Value*(Operation&, Builder&)> raiseFunction(std::string op, const std::string& expression,
                                                          std::string part);

} // namespace pdc::ops
