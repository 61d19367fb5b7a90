// Mixed precision: products in bf16 or f16, everything else, and the weights, in f32 (Micikevicius et al., arXiv
// 1710.03740).
#include "pdc/Transforms/Precision.h"

#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/IR/Builder.h"

#include <algorithm>
#include <map>

using namespace pdc;

namespace {

/// Whether operand i is f32 and may be converted.
bool isNarrowed(const Operation& operation, std::size_t i) {
  const std::vector<OperandDef>& defs = operation.def().operands;
  const Value* operand = operation.operand(i);
  return operand && operand->type().element == ElementType::f32 && !defs[std::min(i, defs.size() - 1)].keepsHigh;
}

/// Whether `value` was made from what is in low precision, not rounded to it as well.
bool isWidened(const Value* value) {
  const Operation* definer = value->definer();
  return definer && definer->def().kind == OpKind::elementwise && definer->operands().size() == 1 &&
         isLowPrecision(definer->operand(0)->type().element);
}

class Lowering {
public:
  Lowering(PassContext& context, Graph& graph, ElementType low)
      : graph_(graph), low_(low), builder_(context.module, graph, context.registry, context.diags) {}

  Status run();

private:
  void findChoosing();
  bool isLowered(const Operation& operation) const;
  bool readsLow(const Operation& operation) const;
  bool movesLow(const Operation& operation) const;
  Status lower(Operation& operation);
  bool givesLow(const Operation& operation) const;
  Status giveLow(Operation& operation);
  Value* narrow(Value* value);
  Value* cast(Value* value, ElementType to);

  Graph& graph_;
  ElementType low_;
  Builder builder_;
  std::unordered_set<const Operation*> choosing_; ///< products whose results choose something: routers of experts
  std::map<const Value*, Value*> narrow_;         ///< what exists in low precision, by its f32 value
};

} // namespace

Value* Lowering::cast(Value* value, ElementType to) {
  return builder_.value("cast", {value}, {{"to", std::string(nameOf(to))}});
}

/// `value` in low precision; made once, before its first use. Of a parameter every use has its own: it stays in the
/// stage of that use, and so does its gradient.
Value* Lowering::narrow(Value* value) {
  if (value->parameter()) return cast(value, low_);
  Value*& known = narrow_[value];
  if (!known) known = cast(value, low_);
  return known;
}

/// The operation again, with its floats in low precision but for what keeps f32; those who use its results get them in
/// f32.
Status Lowering::lower(Operation& operation) {
  builder_.setInsertionPoint(&operation);
  builder_.setLocation(operation.location);
  std::vector<Value*> operands = operation.operands();
  std::vector<bool> wanted;
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (isNarrowed(operation, i) && !(operands[i] = narrow(operands[i]))) return failure;
  for (const Value* result : operation.results()) wanted.push_back(result != nullptr);
  Operation* lowered = builder_.create(operation.def().name, operands, operation.attributes, wanted);
  if (!lowered) return failure;
  for (std::size_t i = 0; i < operation.results().size(); ++i) {
    Value* result = operation.result(i);
    if (!result) continue;
    Value* replacement = lowered->result(i);
    if (replacement->type() != result->type()) {
      replacement = cast(replacement, result->type().element);
      if (!replacement) return failure;
      narrow_[replacement] = lowered->result(i); // what follows in low precision needs no detour
    }
    const std::string name = result->name();
    graph_.replaceAllUses(result, replacement);
    graph_.rename(result, name + ".f32");
    graph_.rename(replacement, name);
  }
  return success;
}

/// Whether all floats that an operation reads exist in low precision, so that it can take them as they are.
bool Lowering::readsLow(const Operation& operation) const {
  bool any = false;
  for (std::size_t i = 0; i < operation.operands().size(); ++i) {
    if (!isNarrowed(operation, i)) continue;
    if (!narrow_.contains(operation.operand(i)) || !isWidened(operation.operand(i))) return false;
    any = true;
  }
  return any;
}

/// Whether an operation moves elements all of which exist in low precision: what was rounded before it need not be
/// widened for it, and what it makes of it is the same.
bool Lowering::movesLow(const Operation& operation) const {
  if (!operation.def().facts.moves && operation.def().kind != OpKind::view) return false;
  std::int64_t read = 0, written = 0;
  for (std::size_t i = 0; i < operation.operands().size(); ++i)
    if (isNarrowed(operation, i)) read += operation.operand(i)->type().elements();
  for (const Value* result : operation.results()) written += result ? result->type().elements() : 0;
  return readsLow(operation) && written <= read; // copies would be widened one by one
}

/// Whether the integers are numbers of things, and not values with few bits.
static bool areIndices(const Value* value) {
  const ElementType element = value ? value->type().element : ElementType::f32;
  return !isFloat(element) && element != ElementType::boolean && pdcrt::bytesOf(element) > 2;
}

/// The float that an operation computes with, but for constants, weights and random numbers; null: there are several.
static const Value* onlyFloat(const Operation& operation) {
  const Value* only = nullptr;
  for (const Value* operand : operation.operands()) {
    if (!operand || !isFloat(operand->type().element) || operand->parameter()) continue;
    if (const Operation* definer = operand->definer(); definer && (isConstant(*definer) || definer->def().facts.random))
      continue;
    if (only && only != operand) return nullptr;
    only = operand;
  }
  return only;
}

/// Rounded logits would choose others, so the product that makes them stays f32, and with it what is made of them.
void Lowering::findChoosing() {
  const std::unordered_set<const Value*> behind = behindLosses(graph_);
  for (const auto& operation : graph_.operations()) {
    const auto chooses = [&](const Value* result) { return areIndices(result) && behind.contains(result); };
    if (std::none_of(operation->results().begin(), operation->results().end(), chooses)) continue;
    const Value* value = onlyFloat(*operation);
    while (value && value->definer() && value->definer()->def().precision != PrecisionClass::preferLow)
      value = onlyFloat(*value->definer());
    if (value && value->definer()) choosing_.insert(value->definer());
  }
}

bool Lowering::isLowered(const Operation& operation) const {
  if (choosing_.contains(&operation)) return false;
  const OpDef& def = operation.def();
  bool inF32 = false;
  for (std::size_t i = 0; i < operation.operands().size(); ++i) inF32 |= isNarrowed(operation, i);
  return inF32 && ((def.precision == PrecisionClass::preferLow && def.facts.takesLow) ||
                   (def.precision == PrecisionClass::readLow && readsLow(operation)) || movesLow(operation));
}

/// Whether an operation that computes in f32 can round its result 0 itself, which nobody reads otherwise.
bool Lowering::givesLow(const Operation& operation) const {
  const Value* result = operation.results().empty() ? nullptr : operation.result(0);
  if (!operation.attributes.has("result") || !result || graph_.isOutput(result) || result->users().empty())
    return false;
  return std::all_of(result->users().begin(), result->users().end(), [&](const Operation* user) {
    return onlyConverts(*user) && user->result()->type().element == low_;
  });
}

Status Lowering::giveLow(Operation& operation) {
  builder_.setInsertionPoint(&operation);
  builder_.setLocation(operation.location);
  std::vector<bool> wanted;
  for (const Value* result : operation.results()) wanted.push_back(result != nullptr);
  Attributes attributes = operation.attributes;
  attributes.set("result", std::string(nameOf(low_)));
  Operation* made = builder_.create(operation.def().name, operation.operands(), attributes, wanted);
  if (!made) return failure;
  const std::vector<Operation*> conversions = operation.result(0)->users();
  for (const Operation* conversion : conversions) graph_.replaceAllUses(conversion->result(), made->result(0));
  for (std::size_t i = 0; i < operation.results().size(); ++i) {
    Value* result = operation.result(i);
    if (!result) continue;
    const std::string name = result->name();
    if (i > 0) graph_.replaceAllUses(result, made->result(i));
    graph_.rename(result, name + ".f32");
    graph_.rename(made->result(i), name);
  }
  return success;
}

Status Lowering::run() {
  findChoosing();
  std::vector<Operation*> operations; // lowering changes the list
  for (const auto& operation : graph_.operations()) operations.push_back(operation.get());
  for (Operation* operation : operations)
    if (isLowered(*operation) && !lower(*operation)) return failure;
  eraseDeadOperations(graph_);
  operations.clear();
  for (const auto& operation : graph_.operations())
    if (givesLow(*operation)) operations.push_back(operation.get());
  for (Operation* operation : operations)
    if (!giveLow(*operation)) return failure;
  eraseDeadOperations(graph_);
  return success;
}

Status pdc::lowerPrecision(PassContext& context, ElementType low) {
  Expected<Graph*> graph = mainGraph(context);
  if (!graph) return failure;
  for (const auto& operation : (*graph)->operations())
    if (!isForward(*operation))
      return context.diags.error(operation->location).help("run it before differentiate")
             << "graph '@" << (*graph)->name() << "' is differentiated already";
  return Lowering(context, **graph, low).run();
}
