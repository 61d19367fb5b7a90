// The data inputs of a model and their shapes.
#pragma once

#include "OnnxFile.h"
#include "pdc/IR/Type.h"
#include "pdc/Import/OnnxImport.h"

#include <vector>

namespace pdc {

/// A dimension as the model states it: a number, or a symbol.
struct StatedDim {
  std::int64_t value = 0; ///< of fixed dimensions
  std::string symbol;     ///< empty: fixed. "INPUT.AXIS" when the model gives no name
};

struct DataInput {
  std::string name;
  ElementType element = ElementType::f32;
  std::vector<StatedDim> dims;
};

/// The graph inputs that are not initializers, in order. Errors: no tensor, a type that pdc lacks, no or negative dims.
Expected<std::vector<DataInput>> dataInputs(const OnnxFile& file, Diagnostics& diags);

/// "f32[batch, 3, 224, 224]".
std::string toString(const DataInput& input);

/// "--dim rows=V", in quotes where a shell needs them.
std::string dimFlag(const std::string& symbol);

/// Binds every symbol; the error lists all that have no value, with the flags that give one.
Expected<std::vector<Type>> bindDimensions(const std::vector<DataInput>& inputs, const ImportOptions& options,
                                           const std::string& path, Diagnostics& diags);

} // namespace pdc
