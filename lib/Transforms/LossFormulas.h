// The losses that --loss adds to an output.
#pragma once

#include "pdc/IR/Builder.h"
#include "pdc/Transforms/Transforms.h"

namespace pdc {

/// The scalar loss `options.kind` of `prediction`, without its weight, together with its label input, which losses
/// share by name. Null where it cannot be, which is reported.
Value* lossOf(const LossOptions& options, Value& prediction, Builder& builder);

} // namespace pdc
