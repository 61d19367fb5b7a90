// Sums: what members have terms of may be added before it is put together.
#pragma once

#include "pdc/IR/Loops.h"

namespace pdc {

/// Whether the operation is the sum of its operands, two or more, all of them of the result's shape.
bool addsOperands(const Operation& operation);

/// Whether result 0 of an operation that is divided so is a sum to which it adds something: a bias or a residual. Such
/// a sum is put together where it is made.
bool addsToItsSum(const Operation& operation, const Loops& loops, const Division& division);

} // namespace pdc
