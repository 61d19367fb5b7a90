// The registry of ops. An OpDef that contradicts itself is a programmer's error and stops the program at start-up,
// where nobody can overlook it.
#include "pdc/IR/OpDef.h"

#include "pdc/IR/Elementwise.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <set>

using namespace pdc;

std::optional<ElementType> pdc::elementTypeFromOnnx(std::int64_t number) {
  switch (number) {
  case 1: return ElementType::f32;
  case 2: return ElementType::u8;
  case 3: return ElementType::i8;
  case 4: return ElementType::u16;
  case 5: return ElementType::i16;
  case 6: return ElementType::i32;
  case 7: return ElementType::i64;
  case 9: return ElementType::boolean;
  case 10: return ElementType::f16;
  case 11: return ElementType::f64;
  case 12: return ElementType::u32;
  case 13: return ElementType::u64;
  case 16: return ElementType::bf16;
  default: return std::nullopt;
  }
}

Value* GradientContext::value(std::size_t forOperand, const std::string& name, std::vector<Value*> operands,
                              Attributes attributes) {
  Operation* operation = create(forOperand, name, std::move(operands), std::move(attributes));
  return operation ? operation->result(0) : nullptr;
}

Cost pdc::costOf(const Operation& operation) {
  switch (operation.def().kind) {
  case OpKind::elementwise: return costOfElementwise(operation);
  case OpKind::kernel:
  case OpKind::collective: return operation.def().cost ? operation.def().cost(operation) : Cost{};
  case OpKind::composed:
  case OpKind::view:
  case OpKind::constant: break;
  }
  return {};
}

OpRegistry::OpRegistry() = default;
OpRegistry::~OpRegistry() = default;

static bool isIdentifier(const std::string& text) {
  auto isPart = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), isPart);
}

/// What is wrong with operands or results: only the last may be variadic, names are distinct identifiers.
template <class Def>
static std::string contradictionInList(const std::vector<Def>& list, const char* what, std::set<std::string>& names) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!isIdentifier(list[i].name)) return std::string(what) + " '" + list[i].name + "' is not an identifier";
    if (!names.insert(list[i].name).second) return "two things are named '" + list[i].name + "'";
    if (list[i].variadic && i + 1 < list.size()) return std::string("only the last ") + what + " can be variadic";
  }
  return "";
}

/// What is wrong with the expressions of an elementwise op, which may only speak of its operands and attributes; its
/// derivatives may also speak of its results.
static std::string contradictionInExpressions(const OpDef& def) {
  const bool generic = def.expressions.empty();
  if (generic) {
    const bool stated = std::any_of(def.attributes.begin(), def.attributes.end(),
                                    [](const AttributeDef& a) { return a.name == "expressions"; });
    return stated ? "" : "it has neither expressions nor an attribute 'expressions'";
  }
  if (def.expressions.size() != def.results.size()) return "it needs one expression per result";
  if (def.derivatives.size() > def.operands.size()) return "it has more derivatives than operands";
  if (!def.derivatives.empty() && def.results.size() != 1) return "derivatives are those of a single result";
  std::set<std::string> known;
  const bool variadic = !def.operands.empty() && def.operands.back().variadic;
  for (const OperandDef& operand : def.operands) known.insert(operand.name);
  for (const AttributeDef& attribute : def.attributes) known.insert(attribute.name);
  auto check = [&](const std::string& text) -> std::string {
    if (text.empty()) return "";
    std::string error;
    const ExpressionPtr e = parseExpression(text, error);
    if (!e) return "'" + text + "' is not an expression: " + error;
    for (const std::string& name : namesIn(*e))
      if (!known.contains(name) && !variadic) return "'" + text + "' speaks of '" + name + "', which is not known";
    return "";
  };
  for (const std::string& text : def.expressions)
    if (std::string problem = check(text); !problem.empty()) return problem;
  for (const ResultDef& result : def.results) known.insert(result.name);
  for (const std::string& text : def.derivatives)
    if (std::string problem = check(text); !problem.empty()) return problem;
  return "";
}

/// The first thing in which `def` contradicts itself, or "".
static std::string contradictionIn(const OpDef& def) {
  if (!isIdentifier(def.name)) return "its name is not an identifier";
  if (def.summary.empty()) return "it has no summary";
  if (def.summary.back() == '.') return "its summary ends with a full stop";
  std::set<std::string> names;
  if (std::string problem = contradictionInList(def.operands, "operand", names); !problem.empty()) return problem;
  if (std::string problem = contradictionInList(def.results, "result", names); !problem.empty()) return problem;
  for (const AttributeDef& attribute : def.attributes) {
    if (!isIdentifier(attribute.name)) return "attribute '" + attribute.name + "' is not an identifier";
    if (!names.insert(attribute.name).second) return "two things are named '" + attribute.name + "'";
    if (attribute.defaultValue && attribute.defaultValue->index() != attribute.example.index())
      return "attribute '" + attribute.name + "' has an example of another kind than its default";
  }
  if (def.kind == OpKind::composed) return def.onnx.empty() ? "it is composed, and maps no ONNX operator" : "";
  if (def.results.empty()) return "it has no result";
  if (def.kind == OpKind::elementwise) return contradictionInExpressions(def);
  if (!def.expressions.empty() || !def.derivatives.empty()) return "it has expressions, and is not elementwise";
  if (!def.infer) return "it infers no types";
  if ((def.kind == OpKind::collective) != static_cast<bool>(def.split.forms))
    return "collectives, and no other ops, say in which forms their values are";
  const bool hasValue = std::any_of(def.attributes.begin(), def.attributes.end(),
                                    [](const AttributeDef& a) { return a.name == "value"; });
  if (def.kind == OpKind::constant && !hasValue) return "it is a constant, and has no attribute 'value'";
  return "";
}

std::int64_t pdc::partsOf(const Operation& operation) {
  return operation.attributes.has(partsAttribute) ? operation.attributes.getInt(partsAttribute) : 1;
}

const Operation* pdc::startThatSends(const Value& value) {
  for (const Operation* user : value.users())
    if (user->def().split.half == CollectiveHalf::start) return user;
  return nullptr;
}

void OpRegistry::add(OpDef def) {
  std::string problem = contradictionIn(def);
  if (problem.empty() && find(def.name)) problem = "there are two ops of this name";
  if (!problem.empty()) {
    std::fprintf(stderr, "op '%s': %s\n", def.name.c_str(), problem.c_str());
    std::abort();
  }
  order_.push_back(defs_.emplace_back(std::make_unique<OpDef>(std::move(def))).get());
}

const OpDef* OpRegistry::find(const std::string& name) const {
  for (const OpDef* def : order_)
    if (def->name == name) return def;
  return nullptr;
}

const OnnxMapping* OpRegistry::findOnnx(const std::string& opType, std::int64_t version) const {
  for (const OpDef* def : order_)
    for (const OnnxMapping& mapping : def->onnx)
      if (mapping.opType == opType && mapping.since <= version && version <= mapping.until) return &mapping;
  return nullptr;
}
