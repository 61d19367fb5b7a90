// Recognises products with the weights of a chosen expert.
#pragma once

#include "pdc/IR/Builder.h"

namespace pdc::ops {

/// Where `root` multiplies each row by a matrix that is gathered for it from those of all experts (`batched_mm` of
/// transformers): the rows move into slots of their experts, so that each expert's rows are one product, and back. A
/// slot is there for every row that may choose the expert, so that none is dropped. Null for other products, and where
/// the slots would have more elements than the matrices that are gathered.
Value* raiseChosenWeights(Operation& root, Builder& b);

} // namespace pdc::ops
