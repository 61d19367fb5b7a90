// Prints modules and graphs. Everything that the parser needs to build the same thing is in the text, and what is usual
// is left out: attributes that have their default value, empty annotations.
#include "pdc/IR/Text.h"

#include "Lexer.h"

#include <bit>
#include <charconv>
#include <cmath>

using namespace pdc;

static std::string nameText(char sigil, const std::string& name) {
  return sigil + (isBareName(name) ? name : quoted(name));
}
static std::string valueText(const Value* value) {
  return value ? nameText('%', value->name()) : "_";
}

static std::string hexOf(std::uint64_t bits) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), bits, 16).ptr;
  return "0x" + std::string(buffer, end);
}

/// The shortest text that reads back to the same bits, and that is no integer. Of a NaN, the bits are given.
template <class Float, class Bits>
static std::string numberText(Float value) {
  if (std::isnan(value)) return "nan(" + hexOf(std::bit_cast<Bits>(value)) + ")";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}
static std::string numberText(double value) {
  return numberText<double, std::uint64_t>(value);
}

static std::string elementText(const Tensor& tensor, std::int64_t i) {
  switch (tensor.type().element) {
  case ElementType::f64: return numberText(tensor.data<double>()[static_cast<std::size_t>(i)]);
  case ElementType::f32: return numberText<float, std::uint32_t>(tensor.data<float>()[static_cast<std::size_t>(i)]);
  case ElementType::f16:
  case ElementType::bf16: {
    const double value = tensor.asDouble(i);
    if (std::isnan(value)) return "nan(" + hexOf(tensor.data<std::uint16_t>()[static_cast<std::size_t>(i)]) + ")";
    return numberText<float, std::uint32_t>(static_cast<float>(value));
  }
  case ElementType::boolean: return tensor.asInt(i) ? "true" : "false";
  case ElementType::u64: return std::to_string(tensor.data<std::uint64_t>()[static_cast<std::size_t>(i)]);
  default: break;
  }
  return std::to_string(tensor.asInt(i));
}

template <class List, class Print>
static std::string listText(const List& list, Print print) {
  std::string text = "[";
  for (std::size_t i = 0; i < list.size(); ++i) text += (i ? ", " : "") + print(list[i]);
  return text + "]";
}

namespace {
struct AttributePrinter {
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return numberText(value); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(const std::string& value) const { return quoted(value); }
  std::string operator()(const std::vector<std::int64_t>& list) const { return toString(list); }
  std::string operator()(const std::vector<double>& list) const {
    return listText(list, [](double value) { return numberText(value); });
  }
  std::string operator()(const std::vector<std::string>& list) const { return listText(list, quoted); }
  std::string operator()(const Tensor& tensor) const {
    std::string text = "dense<" + toString(tensor.type()) + ", [";
    for (std::int64_t i = 0; i < tensor.elements(); ++i) text += (i ? ", " : "") + elementText(tensor, i);
    return text + "]>";
  }
};
} // namespace

static std::string attributesText(const Operation& operation) {
  std::string text;
  for (const auto& [name, value] : operation.attributes) {
    bool usual = false;
    for (const AttributeDef& def : operation.def().attributes) usual |= def.name == name && def.defaultValue == value;
    if (usual) continue;
    text += (text.empty() ? "" : ", ") + (isBareName(name) ? name : quoted(name)) + " = ";
    text += std::visit(AttributePrinter(), value);
  }
  return text.empty() ? "" : " {" + text + "}";
}

static const Value* firstResult(const Operation& operation) {
  for (const Value* result : operation.results())
    if (result) return result;
  return nullptr;
}

/// " <I of %0, group 3, stage 1>", without what is usual; "I again of %0" for a recomputed operation.
static std::string annotationText(const Operation& operation) {
  std::string text;
  if (operation.phase != Phase::forward || operation.origin()) text = nameOf(operation.phase);
  if (operation.origin())
    text += std::string(operation.again ? " again" : "") + " of " + valueText(firstResult(*operation.origin()));
  if (operation.group != -1) text += (text.empty() ? "" : ", ") + ("group " + std::to_string(operation.group));
  if (operation.stage != -1) text += (text.empty() ? "" : ", ") + ("stage " + std::to_string(operation.stage));
  return text.empty() ? "" : " <" + text + ">";
}

static std::string locationText(const Location& location) {
  return location.node.empty() ? "" : " loc(" + quoted(location.node) + ")";
}

static std::string operationText(const Operation& operation) {
  std::string results, types, operands;
  for (const Value* result : operation.results()) {
    results += (results.empty() ? "" : ", ") + valueText(result);
    types += (types.empty() ? "" : ", ") + (result ? toString(result->type()) : "_");
  }
  for (const Value* operand : operation.operands()) operands += (operands.empty() ? " " : ", ") + valueText(operand);
  return results + " = " + operation.def().name + operands + attributesText(operation) + " : " + types +
         annotationText(operation) + locationText(operation.location);
}

/// " share of "label" ignoring -100 weights "1/0.5"".
static std::string shareText(const LossShare& share) {
  std::string text = " share of " + quoted(share.labels), weights;
  if (share.ignoreIndex) text += " ignoring " + std::to_string(*share.ignoreIndex);
  for (double weight : share.classWeights) weights += (weights.empty() ? "" : "/") + numberText(weight);
  return weights.empty() ? text : text + " weights " + pdc::quoted(weights);
}

static std::string inputText(const GraphInput& input) {
  std::string text = valueText(input.value) + ": " + toString(input.value->type());
  switch (input.kind) {
  case InputKind::data: break;
  case InputKind::label:
    text += " label";
    if (input.classes > 0) text += " of " + std::to_string(input.classes);
    break;
  case InputKind::lossScale: text += " loss_scale"; break;
  case InputKind::lossShare: text += shareText(*input.share); break;
  case InputKind::received: text += (input.gradient ? " gradient from " : " from ") + std::to_string(input.peer); break;
  }
  return text;
}

/// axis 1 blocks 3
static std::string splitText(const Form& form) {
  return "axis " + std::to_string(form.axis) + " blocks " + std::to_string(form.blocks);
}

static std::string outputText(const GraphOutput& output) {
  const std::string value = valueText(output.value);
  switch (output.kind) {
  case OutputKind::result: return "result " + quoted(output.name) + " = " + value;
  case OutputKind::loss: return "loss " + value;
  case OutputKind::term: return "term " + quoted(output.name) + " = " + value;
  case OutputKind::prediction:
    return "prediction " + value + (output.part.isSplit() ? " " + splitText(output.part) : "");
  case OutputKind::load: return "load " + quoted(output.name) + " = " + value;
  case OutputKind::gradient: return "gradient " + nameText('%', output.parameter->name) + " = " + value;
  case OutputKind::state: return "state " + nameText('%', output.parameter->name) + " = " + value;
  case OutputKind::sent: break;
  }
  return (output.isGradient ? "send gradient " : "send ") + value + " to " + std::to_string(output.peer);
}

/// The type of what the reference is for.
static const Type& sourceOf(const Parameter& parameter) {
  return parameter.derived ? parameter.derived->source : parameter.type;
}

static std::string parameterText(const Parameter& parameter) {
  std::string text = "param " + nameText('%', parameter.name) + " : " + toString(parameter.type);
  if (parameter.role == ParameterRole::frozen) text += " frozen";
  if (parameter.role == ParameterRole::state) text += " state";
  if (const auto& derived = parameter.derived) {
    text += std::string(" derived ") + nameOf(derived->kind);
    if (!derived->inputs.empty()) text += " " + toString(derived->inputs);
    text += " of " + quoted(derived->of) + " " + toString(derived->source) + " axis " + std::to_string(derived->axis);
  }
  const Reference& reference = parameter.reference;
  if (reference != Reference{}) {
    text += " from " + quoted(reference.file);
    if (reference.origin == ReferenceOrigin::externalData) text += " of " + quoted(reference.model);
    text += " at " + std::to_string(reference.offset) + " length " + std::to_string(reference.length);
    if (reference.stored != sourceOf(parameter).shape) text += " stored " + toString(reference.stored);
    if (!reference.permutation.empty()) text += " permutation " + toString(reference.permutation);
  }
  return text + locationText(parameter.location);
}

/// " order [1, 0]", where the elements of a part are in another order.
static std::string orderText(const Team& team, const Value& value) {
  const auto order = team.orders.find(value.parameter());
  if (order == team.orders.end()) return "";
  return " order " + toString(Shape(order->second.begin(), order->second.end()));
}

static std::string graphText(const Graph& graph, const std::string& indent) {
  std::string inputs;
  for (const GraphInput& input : graph.inputs) inputs += (inputs.empty() ? "" : ", ") + inputText(input);
  std::string text = indent + "graph " + nameText('@', graph.name()) + "(" + inputs + ")";
  if (graph.team.members > 1) text += " team " + std::to_string(graph.team.members) + (graph.team.sums ? " sums" : "");
  text += " {\n";
  for (const Value* value : graph.parameterValues())
    if (const Form form = graph.team.formOf(*value->parameter()); form.isSplit())
      text += indent + "  part " + valueText(value) + " = " + splitText(form) + orderText(graph.team, *value) + "\n";
  for (const auto& operation : graph.operations()) text += indent + "  " + operationText(*operation) + "\n";
  for (const GraphOutput& output : graph.outputs) text += indent + "  " + outputText(output) + "\n";
  return text + indent + "}\n";
}

std::string pdc::print(const Graph& graph) {
  return graphText(graph, "");
}

std::string pdc::print(const Module& module) {
  std::string text = "module " + nameText('@', module.name);
  if (!module.file.empty()) text += " from " + quoted(module.file);
  text += " {\n";
  for (const auto& parameter : module.parameters) text += "  " + parameterText(*parameter) + "\n";
  for (const auto& graph : module.graphs) text += graphText(*graph, "  ");
  return text + "}\n";
}
