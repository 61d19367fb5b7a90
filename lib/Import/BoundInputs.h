// --bind: inputs that are always the same.
#pragma once

#include "Inputs.h"
#include "pdc/IR/Builder.h"

namespace pdc {

/// The shapes of the files that --bind names, by input. Errors: an input that is not there, a file that cannot be read.
Expected<std::map<std::string, Shape>> shapesOfBound(const std::vector<DataInput>& inputs, const ImportOptions& options,
                                                     const std::string& path, Diagnostics& diags);

/// The value of the bound input `name` of type `type`: a constant, or a frozen parameter of the module where a file has
/// more than 64 KiB. `shapeOnly`: one that only has its type.
Expected<Value*> valueOfBound(const std::string& name, const std::string& bound, const Type& type, bool shapeOnly,
                              Builder& builder);

} // namespace pdc
