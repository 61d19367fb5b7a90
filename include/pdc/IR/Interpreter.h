// Runs a graph operation by operation with the ops' references: the slow, obvious oracle.
#pragma once

#include "pdc/IR/OpDef.h"

#include <map>

namespace pdc {

enum class Precision { f32, f64 };

/// The element type in which the interpreter holds values of type `element`: the precision for every float type.
ElementType heldAs(ElementType element, Precision precision);

struct InterpreterResult {
  std::map<std::string, Tensor> values;    ///< by value name, of every graph output
  std::map<std::string, Tensor> gradients; ///< by parameter name: the sum over uses, in program order
  std::map<std::string, Tensor> states;    ///< by parameter name: new values
  std::map<std::string, Tensor> outputs;   ///< by the model's output names
  double loss = 0;                         ///< sum of the losses
};

/// What a value of type `element` can hold, where the interpreter holds it in f32.
void roundTo(Tensor& tensor, ElementType element);

/// Adds what a graph has for one of its outputs: gradients of several uses of a parameter are summed.
void add(InterpreterResult& result, const GraphOutput& output, const Tensor& tensor);

/// Runs one operation, as a member of a team does; `operands` as ReferenceContext has them. In f32, every float tensor
/// is f32.
Expected<std::vector<Tensor>> interpretOperation(const Operation& operation, const std::vector<const Tensor*>& operands,
                                                 Precision precision, Diagnostics& diags, std::uint64_t seed = 0,
                                                 std::uint64_t minibatch = 0, std::int64_t member = 0);

/// Runs `graph` on `inputs` (by input name) and `parameters` (by parameter name). In f64 every float tensor is f64,
/// inputs are converted. In f32, values of type bf16 and f16 are computed in f32 and then rounded, as hardware does
/// that multiplies in low precision and adds in f32. Errors: missing or wrongly shaped inputs, ops without reference,
/// labels out of range.
Expected<InterpreterResult> interpret(const Graph& graph, const std::map<std::string, Tensor>& inputs,
                                      const std::map<std::string, Tensor>& parameters, Precision precision,
                                      Diagnostics& diags, std::uint64_t seed = 0, std::uint64_t minibatch = 0);

} // namespace pdc
