// The data inputs of a model and their shapes.
#pragma once

#include "OnnxFile.h"
#include "pdc/IR/Type.h"
#include "pdc/Import/OnnxImport.h"

#include <set>
#include <vector>

namespace pdc {

/// A dimension as the model states it: a number, or a symbol.
struct StatedDim {
  std::int64_t value = 0; ///< of fixed dimensions
  std::string symbol;     ///< empty: fixed. "INPUT.AXIS" when the model gives no name
  bool named = true;      ///< whether the symbol is the model's
};

struct DataInput {
  std::string name;
  ElementType element = ElementType::f32;
  std::vector<StatedDim> dims;
};

/// The graph inputs that are not initializers, in order. Errors: no tensor, a type that pdc lacks.
Expected<std::vector<DataInput>> dataInputs(const OnnxFile& file, Diagnostics& diags);
/// The graph outputs whose shapes the model states, in order; types do not count.
std::vector<DataInput> statedOutputs(const OnnxFile& file);

/// "f32[batch, 3, 224, 224]".
std::string toString(const DataInput& input);

/// "--dim rows=V", in quotes where a shell needs them.
std::string dimFlag(const std::string& symbol);
/// "'x', 'y'".
std::string listOf(const std::vector<DataInput>& inputs);

/// What the shapes of the inputs depend on.
struct InputContext {
  const std::vector<DataInput>& inputs;
  const std::vector<DataInput>& outputs;             ///< those with stated shapes
  const std::set<std::string>& unread;               ///< inputs that no node reads
  const std::map<std::string, Shape>& shapesOfBound; ///< of inputs that a file gives values
  const ImportOptions& options;
  const std::string& path; ///< of the model
  Diagnostics& diags;
};

/// Binds every symbol; the error lists all that have no value, with the flags that give one. `batch` gets what is found
/// about batch axes; `strict`: an input whose axis is not known is an error, and what was guessed is told.
Expected<std::vector<Type>> bindDimensions(const InputContext& context, bool strict, BatchAxes& batch);

} // namespace pdc
