// Heads that are split from rows before attention, and put together again behind it (OpRewrites::mergeHeads).
#pragma once

#include "pdc/IR/Builder.h"

namespace pdc::ops {

/// Result 0 of dot_product_attention, from multi_head_attention on the rows that its operands are split from; null:
/// they are not, or the kernel on rows would only copy.
Value* mergeAttentionHeads(Operation& attention, Builder& b);

} // namespace pdc::ops
