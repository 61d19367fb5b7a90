// Which layouts (Type.h) an operation takes.
#pragma once

#include "pdc/IR/OpDef.h"

namespace pdc {

/// Operands and results of `op` that may have their channels in blocks, also where that follows from its kind: an
/// elementwise operation takes blocks where every operand has them or is broadcast over channels or planes.
ChannelBlocks channelBlocksOf(const Operation& op);

/// Operands and results of `op` that may be filters in blocks.
std::vector<const Value*> filterBlocksOf(const Operation& op);

/// The row-major shape in memory, aligned with memoryShape(result), of an operand that is broadcast to `result`.
Shape memoryShape(const Type& operand, const Type& result);

/// Reports layouts that the kernel of `op` does not take.
Status checkLayouts(const Operation& op, Diagnostics& diags);

} // namespace pdc
