// Sums: what members have terms of may be added before it is put together.
#pragma once

namespace pdc {

class Operation;

/// Whether the operation is the sum of its operands, two or more, all of them of the result's shape.
bool addsOperands(const Operation& operation);

} // namespace pdc
