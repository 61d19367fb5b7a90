// Recognises dispatch and combine of a mixture of experts in the masks that exporters write.
#pragma once

#include "pdc/IR/Builder.h"

namespace pdc::ops {

/// The rows that `root` moves into the slots of experts, or fetches from there, by index: where it is a product with a
/// mask that is a sum of terms, each a number for a token times 1 at one expert and 1 at one slot (ChoiceMask.h). What
/// the indices say does not matter: an index outside is dropped, and rows that share a slot are added. Null for other
/// products.
Value* raiseExperts(Operation& root, Builder& b);

} // namespace pdc::ops
