// Runs graphs with the ops' references, one operation after another.
#include "pdc/IR/Interpreter.h"

#include "pdc/IR/Elementwise.h"

#include <map>
#include <unordered_map>

using namespace pdc;

ElementType pdc::heldAs(ElementType element, Precision precision) {
  if (!isFloat(element)) return element;
  return precision == Precision::f64 ? ElementType::f64 : ElementType::f32;
}

Expected<std::vector<Tensor>> pdc::interpretOperation(const Operation& operation,
                                                      const std::vector<const Tensor*>& operands, Precision precision,
                                                      Diagnostics& diags, std::uint64_t seed, std::uint64_t minibatch,
                                                      std::int64_t member) {
  const OpDef& def = operation.def();
  std::vector<Tensor> results(operation.results().size());
  std::vector<Tensor*> pointers;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (operation.result(i)) {
      const Type& type = operation.result(i)->type();
      results[i] = Tensor(Type{heldAs(type.element, precision), type.shape});
    }
    pointers.push_back(operation.result(i) ? &results[i] : nullptr);
  }
  const bool inDouble = precision == Precision::f64;
  if (def.reference) {
    ReferenceContext context{.op = operation,
                             .operands = operands,
                             .results = pointers,
                             .seed = seed,
                             .minibatch = minibatch,
                             .member = member};
    (inDouble ? def.reference.f64 : def.reference.f32)(context);
    if (!context.error.empty()) return diags.error(operation.location) << "'" << def.name << "' op: " << context.error;
    return results;
  }
  switch (def.kind) {
  case OpKind::constant:
    results[0] = operation.attributes.get<Tensor>("value");
    results[0] = results[0].convertedTo(heldAs(results[0].type().element, precision));
    return results;
  case OpKind::view: results[0] = operands[0]->reshaped(results[0].shape()); return results;
  case OpKind::elementwise: evaluateElementwise(operation, operands, pointers, inDouble); return results;
  case OpKind::kernel:
  case OpKind::collective: return diags.error(operation.location) << "'" << def.name << "' op needs a team";
  case OpKind::composed: break;
  }
  return diags.error(operation.location).exit(ExitCode::internal) << "'" << def.name << "' op has no reference";
}

void pdc::roundTo(Tensor& tensor, ElementType element) {
  if (isFloat(element) && element != ElementType::f32 && element != ElementType::f64)
    tensor = tensor.convertedTo(element).convertedTo(ElementType::f32);
}

namespace {
/// One run of a graph.
class Interpreter {
public:
  Interpreter(const Graph& graph, Precision precision, Diagnostics& diags)
      : graph_(graph), precision_(precision), diags_(diags) {}

  Status bind(const std::map<std::string, Tensor>& inputs, const std::map<std::string, Tensor>& parameters);
  Status run(std::uint64_t seed, std::uint64_t minibatch);
  InterpreterResult collect();

private:
  Status bind(const Value& value, const char* what, const std::map<std::string, Tensor>& tensors);
  void releaseOperands(const Operation& operation);

  const Graph& graph_;
  Precision precision_;
  Diagnostics& diags_;
  std::unordered_map<const Value*, Tensor> tensors_;
  std::unordered_map<const Value*, std::size_t> usesLeft_;
};
} // namespace

Status Interpreter::bind(const Value& value, const char* what, const std::map<std::string, Tensor>& tensors) {
  const Location location{.node = "@" + graph_.name()};
  auto it = tensors.find(value.name());
  if (it == tensors.end()) return diags_.error(location) << what << " '" << value.name() << "' has no value";
  if (it->second.shape() != value.type().shape)
    return diags_.error(location) << what << " '" << value.name() << "' is " << toString(value.type().shape)
                                  << ", its value " << toString(it->second.shape());
  if (isFloat(it->second.type().element) != isFloat(value.type().element))
    return diags_.error(location) << what << " '" << value.name() << "' is " << toString(value.type()) << ", its value "
                                  << toString(it->second.type());
  tensors_[&value] = it->second.convertedTo(heldAs(value.type().element, precision_));
  if (precision_ == Precision::f32) roundTo(tensors_[&value], value.type().element);
  return success;
}

Status Interpreter::bind(const std::map<std::string, Tensor>& inputs, const std::map<std::string, Tensor>& parameters) {
  for (const GraphInput& input : graph_.inputs)
    if (!bind(*input.value, "input", inputs)) return failure;
  for (const Value* value : graph_.parameterValues())
    if (!bind(*value, "parameter", parameters)) return failure;
  return success;
}

/// Frees the operands of which this was the last use.
void Interpreter::releaseOperands(const Operation& operation) {
  for (const Value* operand : operation.operands())
    if (operand && --usesLeft_.at(operand) == 0) tensors_.erase(operand);
}

Status Interpreter::run(std::uint64_t seed, std::uint64_t minibatch) {
  for (const auto& operation : graph_.operations())
    for (const Value* operand : operation->operands())
      if (operand) ++usesLeft_[operand];
  for (const GraphOutput& output : graph_.outputs) ++usesLeft_[output.value]; // outputs stay

  for (const auto& operation : graph_.operations()) {
    std::vector<const Tensor*> operands;
    for (const Value* operand : operation->operands()) operands.push_back(operand ? &tensors_.at(operand) : nullptr);
    Expected<std::vector<Tensor>> results =
        interpretOperation(*operation, operands, precision_, diags_, seed, minibatch);
    if (!results) return failure;
    for (std::size_t i = 0; i < results->size(); ++i)
      if (const Value* result = operation->result(i); result && usesLeft_.contains(result)) {
        if (precision_ == Precision::f32) roundTo((*results)[i], result->type().element);
        tensors_[result] = std::move((*results)[i]);
      }
    releaseOperands(*operation);
  }
  return success;
}

/// sum += part, element by element.
static void accumulate(Tensor& sum, const Tensor& part) {
  auto add = [&]<class T>(T) {
    auto to = sum.mutableData<T>();
    auto from = part.data<T>();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  };
  if (sum.type().element == ElementType::f64)
    add(double());
  else
    add(float());
}

void pdc::add(InterpreterResult& result, const GraphOutput& output, const Tensor& tensor) {
  result.values[output.value->name()] = tensor;
  switch (output.kind) {
  case OutputKind::result: result.outputs[output.name] = tensor; break;
  case OutputKind::loss: result.loss += tensor.asDouble(0); break;
  case OutputKind::state: result.states[output.parameter->name] = tensor; break;
  case OutputKind::gradient: {
    auto [sum, first] = result.gradients.try_emplace(output.parameter->name, tensor);
    if (!first) accumulate(sum->second, tensor);
    break;
  }
  case OutputKind::term:
  case OutputKind::prediction:
  case OutputKind::load:
  case OutputKind::sent: break;
  }
}

InterpreterResult Interpreter::collect() {
  InterpreterResult result;
  for (const GraphOutput& output : graph_.outputs) add(result, output, tensors_.at(output.value));
  return result;
}

Expected<InterpreterResult> pdc::interpret(const Graph& graph, const std::map<std::string, Tensor>& inputs,
                                           const std::map<std::string, Tensor>& parameters, Precision precision,
                                           Diagnostics& diags, std::uint64_t seed, std::uint64_t minibatch) {
  Interpreter interpreter(graph, precision, diags);
  if (!interpreter.bind(inputs, parameters) || !interpreter.run(seed, minibatch)) return failure;
  return interpreter.collect();
}
