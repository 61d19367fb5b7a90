// The rules of the IR. Structural rules are here; what is special to an op is in its OpDef.
#include "pdc/IR/Verifier.h"

#include "pdc/IR/Elementwise.h"
#include "pdc/IR/Layouts.h"

#include <algorithm>
#include <set>
#include <unordered_map>

using namespace pdc;

Expected<std::vector<Type>> pdc::inferTypes(const OpDef& def, const InferContext& context) {
  return def.infer ? def.infer(context) : inferElementwise(def, context);
}

static std::string countOf(std::size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

/// "at least 1 operand", "2 to 3 operands", "1 operand": how many entries a list of definitions takes.
static std::string arityOf(const std::vector<OperandDef>& list) {
  std::size_t required = 0;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (!list[i].optional && !list[i].variadic) required = i + 1;
  if (!list.empty() && list.back().variadic) return "at least " + countOf(required, "operand");
  if (required == list.size()) return countOf(required, "operand");
  return std::to_string(required) + " to " + countOf(list.size(), "operand");
}

Status pdc::checkOperands(const OpDef& def, const std::vector<Value*>& operands, const Location& location,
                          Diagnostics& diags) {
  const bool variadic = !def.operands.empty() && def.operands.back().variadic;
  auto wrongCount = [&] {
    return diags.error(location) << "'" << def.name << "' op takes " << arityOf(def.operands) << ", here are "
                                 << operands.size();
  };
  if (operands.size() > def.operands.size() && !variadic) return wrongCount();
  for (std::size_t i = 0; i < def.operands.size(); ++i) {
    const OperandDef& operand = def.operands[i];
    if (operand.optional || (operand.variadic && i >= operands.size())) continue;
    if (i >= operands.size()) return wrongCount();
    if (!operands[i])
      return diags.error(location) << "'" << def.name << "' op needs its operand '" << operand.name << "'";
  }
  for (std::size_t i = def.operands.size(); i < operands.size(); ++i)
    if (!operands[i])
      return diags.error(location) << "'" << def.name << "' op needs operand " << i << " of '"
                                   << def.operands.back().name << "'";
  return success;
}

static const char* kindOf(const Attribute& attribute) {
  static constexpr const char* names[] = {"an integer",         "a number",          "a boolean",       "a text",
                                          "a list of integers", "a list of numbers", "a list of texts", "a tensor"};
  return names[attribute.index()];
}

Status pdc::checkAttributes(const OpDef& def, const Attributes& attributes, const Location& location,
                            Diagnostics& diags) {
  for (const AttributeDef& attribute : def.attributes) {
    const Attribute* found = attributes.find(attribute.name);
    if (!found)
      return diags.error(location) << "'" << def.name << "' op needs attribute '" << attribute.name << "', "
                                   << kindOf(attribute.example);
    if (found->index() != attribute.example.index())
      return diags.error(location) << "attribute '" << attribute.name << "' of '" << def.name << "' op is "
                                   << kindOf(*found) << ", it must be " << kindOf(attribute.example);
  }
  for (const auto& [name, value] : attributes) {
    auto known = [&name = name](const AttributeDef& attribute) { return attribute.name == name; };
    if (std::none_of(def.attributes.begin(), def.attributes.end(), known))
      return diags.error(location) << "'" << def.name << "' op has no attribute '" << name << "'";
  }
  return success;
}

static Status checkResults(const Operation& operation, Diagnostics& diags) {
  const OpDef& def = operation.def();
  InferContext context{.attributes = operation.attributes, .location = operation.location, .diags = diags};
  for (const Value* operand : operation.operands()) context.operands.push_back(operand ? &operand->type() : nullptr);
  const Expected<std::vector<Type>> types = inferTypes(def, context);
  if (!types) return failure;
  const auto& results = operation.results();
  if (results.size() != types->size())
    return diags.error(operation.location)
           << "'" << def.name << "' op has " << countOf(types->size(), "result") << ", here are " << results.size();
  bool any = false;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ResultDef& result = def.results[std::min(i, def.results.size() - 1)];
    if (!results[i]) {
      if (result.optional) continue;
      return diags.error(operation.location)
             << "result '" << result.name << "' of '" << def.name << "' op cannot be left out";
    }
    any = true;
    const Type &stated = results[i]->type(), &inferred = (*types)[i];
    if (stated.element != inferred.element || stated.shape != inferred.shape)
      return diags.error(operation.location) << "result '" << result.name << "' of '" << def.name << "' op is "
                                             << toString(inferred) << ", not " << toString(stated);
  }
  if (!any) return diags.error(operation.location) << "'" << def.name << "' op has no result that is wanted";
  return success;
}

Status pdc::verifyOperation(const Operation& operation, Diagnostics& diags) {
  const OpDef& def = operation.def();
  if (def.kind == OpKind::composed)
    return diags.error(operation.location) << "'" << def.name << "' op exists in ONNX only, a graph cannot hold it";
  if (!checkOperands(def, operation.operands(), operation.location, diags)) return failure;
  if (!checkAttributes(def, operation.attributes, operation.location, diags)) return failure;
  if (!checkResults(operation, diags) || !checkLayouts(operation, diags)) return failure;
  return def.verify ? def.verify(operation, diags) : Status(success);
}

namespace {
/// Verifies one graph; goes on after a violation, so that all are reported.
class GraphVerifier {
public:
  GraphVerifier(const Module& module, const Graph& graph, Diagnostics& diags)
      : module_(module), graph_(graph), diags_(diags) {
    for (const auto& parameter : module.parameters) parameters_.emplace(parameter->name, parameter.get());
  }

  bool run() {
    for (const GraphInput& input : graph_.inputs) checkInput(input);
    for (const Value* value : graph_.parameterValues()) checkParameterValue(*value);
    for (std::size_t i = 0; i < graph_.operations().size(); ++i) checkOperation(*graph_.operations()[i]);
    for (const auto& operation : graph_.operations()) checkUses(*operation);
    for (const GraphOutput& output : graph_.outputs) checkOutput(output);
    return ok_;
  }

private:
  void checkInput(const GraphInput& input);
  void checkParameterValue(const Value& value);
  void checkOperation(const Operation& operation);
  void checkOrigin(const Operation& operation);
  void checkUses(const Operation& operation);
  void checkOutput(const GraphOutput& output);
  void checkParameterOutput(const GraphOutput& output);

  Diagnostics::Builder error(const Operation& operation) {
    ok_ = false;
    return diags_.error(operation.location);
  }
  Diagnostics::Builder error() {
    ok_ = false;
    return diags_.error({.file = module_.file, .node = "@" + graph_.name()});
  }
  static bool fitsItsLayout(const Type& type) {
    if (type.layout == filterInBlocks) return fitsFilterBlocks(type);
    return type.layout == plain ||
           ((type.layout == channelsInBlocks || type.layout == channelsLast) && fitsChannelBlocks(type));
  }
  void define(const Value& value) {
    if (value.type().bytes() < 0) error() << "the size of '%" << value.name() << "' does not fit into 63 bits";
    if (!fitsItsLayout(value.type()))
      error() << "'%" << value.name() << "' is " << toString(value.type()) << ", no shape for this layout";
    defined_.insert(&value);
  }

  bool isOfModule(const Parameter& parameter) const {
    const auto found = parameters_.find(parameter.name);
    return found != parameters_.end() && found->second == &parameter;
  }

  const Module& module_;
  const Graph& graph_;
  Diagnostics& diags_;
  bool ok_ = true;
  std::set<const Value*> defined_;
  std::set<const Operation*> seen_;
  std::set<const Parameter*> updatedStates_;
  std::unordered_map<std::string, const Parameter*> parameters_; ///< of the module, the first of each name
};
} // namespace

void GraphVerifier::checkInput(const GraphInput& input) {
  define(*input.value);
  const bool received = input.kind == InputKind::received;
  if (received && input.peer < 0) error() << "input '%" << input.value->name() << "' is received from no stage";
  if (!received && (input.peer >= 0 || input.gradient))
    error() << "input '%" << input.value->name() << "' has a sending stage, and is not received";
  if ((input.kind == InputKind::lossShare) != input.share.has_value() ||
      (input.share && input.value->type() != Type{ElementType::f32, {}}))
    error() << "input '%" << input.value->name() << "' is " << toString(input.value->type())
            << ", a share of a loss is f32[], and says of which labels";
}

void GraphVerifier::checkParameterValue(const Value& value) {
  define(value);
  const Parameter* parameter = value.parameter();
  if (!isOfModule(*parameter))
    error() << "'%" << value.name() << "' is no parameter of the module";
  else if (value.name() != parameter->name)
    error() << "parameter '" << parameter->name << "' is named '%" << value.name() << "' here";
  if (const Type type = graph_.team.typeOf(*parameter); value.type() != type)
    error() << "parameter '" << parameter->name << "' is " << toString(type) << ", here " << toString(value.type());
}

void GraphVerifier::checkOperation(const Operation& operation) {
  bool operandsDefined = true;
  for (const Value* operand : operation.operands())
    if (operand && !defined_.contains(operand)) {
      operandsDefined = false;
      error(operation) << "'" << operation.def().name << "' op uses '%" << operand->name() << "' before it is defined";
    }
  if (operandsDefined && !verifyOperation(operation, diags_)) ok_ = false;
  checkOrigin(operation);
  for (const Value* result : operation.results())
    if (result) define(*result);
  seen_.insert(&operation);
}

void GraphVerifier::checkOrigin(const Operation& operation) {
  const std::string& name = operation.def().name;
  if (operation.phase == Phase::forward) {
    if (operation.origin()) error(operation) << "forward '" << name << "' op has an origin, which backward ones have";
    return;
  }
  if (!operation.origin()) {
    // Of a stage's operation it may be in the stage below.
    if (operation.stage < 0) error(operation) << "backward '" << name << "' op has no origin";
  } else if (!seen_.contains(operation.origin())) {
    error(operation) << "the origin of backward '" << name << "' op does not stand before it";
  } else if (operation.origin()->phase != Phase::forward) {
    error(operation) << "the origin of backward '" << name << "' op is not a forward operation";
  }
}

/// Lists of users are kept by Graph and Operation; this finds where somebody went around them.
void GraphVerifier::checkUses(const Operation& operation) {
  for (const Value* operand : operation.operands()) {
    if (!operand) continue;
    const auto& operands = operation.operands();
    const auto& users = operand->users();
    if (std::count(operands.begin(), operands.end(), operand) != std::count(users.begin(), users.end(), &operation))
      error(operation) << "the users of '%" << operand->name() << "' are not those that use it";
  }
}

void GraphVerifier::checkOutput(const GraphOutput& output) {
  if (!output.value || !defined_.contains(output.value)) {
    error() << "an output is not a value of the graph";
    return;
  }
  const Value& value = *output.value;
  const bool isSent = output.kind == OutputKind::sent;
  if (isSent && output.peer < 0) error() << "'%" << value.name() << "' is sent to no stage";
  const bool isTerm = output.kind == OutputKind::term;
  if ((output.kind == OutputKind::loss || isTerm) && !(isFloat(value.type().element) && value.type().shape.empty()))
    error() << (isTerm ? "term '%" : "loss '%") << value.name() << "' is " << toString(value.type())
            << ", it must be a float scalar";
  if (output.kind == OutputKind::load && !(value.type().element == ElementType::f32 && value.type().rank() == 1))
    error() << "load '%" << value.name() << "' is " << toString(value.type()) << ", it must be a list of f32";
  if (output.kind == OutputKind::gradient || output.kind == OutputKind::state) checkParameterOutput(output);
}

void GraphVerifier::checkParameterOutput(const GraphOutput& output) {
  const bool isState = output.kind == OutputKind::state;
  const char* what = isState ? "the new state" : "the gradient";
  const Value& value = *output.value;
  if (!output.parameter || !isOfModule(*output.parameter)) {
    error() << what << " '%" << value.name() << "' belongs to no parameter of the module";
    return;
  }
  const Parameter& parameter = *output.parameter;
  if (const Type type = graph_.team.typeOf(parameter); value.type() != type)
    error() << what << " of '" << parameter.name << "' is " << toString(value.type()) << ", the parameter "
            << toString(type);
  if (isState && parameter.role != ParameterRole::state)
    error() << "parameter '" << parameter.name << "' gets a new state, and its role is not 'state'";
  if (!isState && parameter.role != ParameterRole::trained)
    error() << "parameter '" << parameter.name << "' gets a gradient, and is not trained";
  if (isState && !updatedStates_.insert(&parameter).second)
    error() << "parameter '" << parameter.name << "' gets two new states";
}

Status pdc::verify(const Module& module, Diagnostics& diags) {
  bool ok = true;
  auto error = [&](const Location& location) {
    ok = false;
    return diags.error(location);
  };
  std::set<std::string> parameters, graphs;
  for (const auto& parameter : module.parameters) {
    if (!parameters.insert(parameter->name).second)
      error(parameter->location) << "two parameters are named '" << parameter->name << "'";
    if (parameter->type.bytes() < 0)
      error(parameter->location) << "the size of parameter '" << parameter->name << "' does not fit into 63 bits";
    if (parameter->role == ParameterRole::trained && !isFloat(parameter->type.element))
      error(parameter->location) << "parameter '" << parameter->name << "' is " << toString(parameter->type)
                                 << " and trained, only floats are";
  }
  for (const auto& graph : module.graphs) {
    const Location location{.file = module.file, .node = "@" + graph->name()};
    if (!graphs.insert(graph->name()).second) error(location) << "two graphs are named '@" << graph->name() << "'";
    ok &= GraphVerifier(module, *graph, diags).run();
  }
  if (!ok) return failure;
  return success;
}
