// Creates operations: fills in defaults, infers types, folds constants.
#include "pdc/IR/Builder.h"

#include "pdc/IR/Interpreter.h"
#include "pdc/IR/Verifier.h"

#include <algorithm>

using namespace pdc;

/// Results of folding are kept in the text and in the compiler's memory: larger ones stay operations.
static constexpr std::int64_t maxFoldedBytes = std::int64_t{64} * 1024;
/// What is only looked at, and not kept.
static constexpr std::int64_t maxEvaluatedBytes = std::int64_t{256} * 1024 * 1024;

Builder::Builder(Module& module, Graph& graph, const OpRegistry& registry, Diagnostics& diags, bool fold)
    : module_(module), graph_(graph), registry_(registry), diags_(diags), fold_(fold) {}

/// Whether the value of `operation` follows from its operands alone, can be computed here, and takes at most so many
/// bytes.
static bool isComputable(const Operation& operation, std::int64_t bytes) {
  const OpDef& def = operation.def();
  if (def.kind == OpKind::constant || def.facts.random || operation.operands().empty()) return false;
  if (operation.results().size() != 1 || !operation.result(0)) return false;
  return operation.result(0)->type().bytes() <= bytes &&
         (def.reference || def.kind == OpKind::elementwise || def.kind == OpKind::view);
}

static bool folds(const Operation& operation) {
  return isComputable(operation, maxFoldedBytes) &&
         std::all_of(operation.operands().begin(), operation.operands().end(), [](const Value* operand) {
           return !operand || (operand->definer() && operand->definer()->def().kind == OpKind::constant);
         });
}

/// The result of an operation whose operands have the values `constants`.
static Expected<Tensor> computed(const Operation& operation, std::vector<Tensor> constants, Diagnostics& diags) {
  const Value* result = operation.result(0);
  bool inDouble = result->type().element == ElementType::f64;
  for (const Value* operand : operation.operands()) inDouble |= operand && operand->type().element == ElementType::f64;
  const Precision precision = inDouble ? Precision::f64 : Precision::f32;
  std::vector<const Tensor*> operands;
  for (std::size_t i = 0; i < constants.size(); ++i) {
    if (operation.operand(i)) constants[i] = constants[i].convertedTo(heldAs(constants[i].type().element, precision));
    operands.push_back(operation.operand(i) ? &constants[i] : nullptr);
  }
  Expected<std::vector<Tensor>> values = interpretOperation(operation, operands, precision, diags);
  if (!values) return failure;
  return values->front().convertedTo(result->type().element);
}

/// The value of an operation that folds.
static Expected<Tensor> foldedValue(const Operation& operation, Diagnostics& diags) {
  std::vector<Tensor> constants;
  for (const Value* operand : operation.operands())
    constants.push_back(operand ? *Builder::constantValue(operand) : Tensor());
  return computed(operation, std::move(constants), diags);
}

Operation* Builder::create(const std::string& name, std::vector<Value*> operands, Attributes attributes,
                           const std::vector<bool>& wantedResults, const std::vector<std::string>& names) {
  const OpDef* def = registry_.find(name);
  if (!def || def->kind == OpKind::composed) {
    diags_.error(location_).exit(ExitCode::internal)
        << "there is no op '" << name << "'" << (def ? " in graphs: it is composed of others" : "");
    return nullptr;
  }
  for (const AttributeDef& attribute : def->attributes)
    if (attribute.defaultValue && !attributes.has(attribute.name))
      attributes.set(attribute.name, *attribute.defaultValue);
  if (!checkOperands(*def, operands, location_, diags_) || !checkAttributes(*def, attributes, location_, diags_))
    return nullptr;

  InferContext context{.attributes = attributes, .location = location_, .diags = diags_};
  for (const Value* operand : operands) context.operands.push_back(operand ? &operand->type() : nullptr);
  const Expected<std::vector<Type>> types = inferTypes(*def, context);
  if (!types) return nullptr;
  std::vector<const Type*> wanted;
  for (std::size_t i = 0; i < types->size(); ++i) {
    const bool byDefault = i >= def->results.size() || !def->results[i].asked;
    wanted.push_back((i < wantedResults.size() ? wantedResults[i] : byDefault) ? &(*types)[i] : nullptr);
  }

  Operation* operation =
      graph_.addOperation(*def, std::move(operands), wanted, std::move(attributes), location_, before_, names);
  operation->phase = phase_;
  operation->setOrigin(origin_);
  operation->group = group_;
  if (def->verify && !def->verify(*operation, diags_)) {
    graph_.erase(operation);
    return nullptr;
  }
  if (!fold_ || !folds(*operation)) return operation;
  const Expected<Tensor> folded = foldedValue(*operation, diags_);
  graph_.erase(operation);
  if (!folded) return nullptr;
  Value* value = constant(*folded);
  if (value && !names.empty()) graph_.rename(value, names[0]);
  return value ? value->definer() : nullptr;
}

Value* Builder::value(const std::string& name, std::vector<Value*> operands, Attributes attributes) {
  Operation* operation = create(name, std::move(operands), std::move(attributes));
  return operation ? operation->result(0) : nullptr;
}

Value* Builder::constant(const Tensor& tensor) {
  for (const OpDef* def : registry_.all())
    if (def->kind == OpKind::constant) return value(def->name, {}, {{"value", tensor}});
  diags_.error(location_).exit(ExitCode::internal) << "no op is registered for constants";
  return nullptr;
}

Value* Builder::constant(double scalar, ElementType element) {
  return constant(Tensor::scalar(scalar, element));
}

std::optional<Tensor> Builder::constantValue(const Value* value) {
  if (!value || !value->definer() || value->definer()->def().kind != OpKind::constant) return {};
  return value->definer()->attributes.get<Tensor>("value");
}

std::optional<Tensor> Builder::evaluated(const Value* value) {
  if (std::optional<Tensor> constant = constantValue(value)) return constant;
  const Operation* definer = value ? value->definer() : nullptr;
  if (!definer || !isComputable(*definer, maxEvaluatedBytes)) return {};
  std::vector<Tensor> constants;
  for (const Value* operand : definer->operands()) {
    std::optional<Tensor> constant = operand ? evaluated(operand) : Tensor();
    if (!constant) return {};
    constants.push_back(*std::move(constant));
  }
  Expected<Tensor> tensor = computed(*definer, std::move(constants), diags_);
  return tensor ? std::optional<Tensor>(*std::move(tensor)) : std::nullopt;
}
