#include "Experts/SlotFormulas.h"

#include "pdc/IR/Builder.h"
#include "pdc/IR/Elementwise.h"
#include "pdc/IR/OpDef.h"
#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

using namespace pdc;

namespace {

/// The number that all elements of a constant are.
std::optional<double> numberOf(const Value* value) {
  const std::optional<Tensor> constant = Builder::constantValue(value);
  if (!constant || constant->elements() == 0) return std::nullopt;
  for (std::int64_t i = 1; i < constant->elements(); ++i)
    if (constant->asDouble(i) != constant->asDouble(0)) return std::nullopt;
  return constant->asDouble(0);
}

bool isElementwise(const Operation& operation) {
  return operation.def().kind == OpKind::elementwise && operation.results().size() == 1;
}
bool movesOneTensor(const Operation& operation) {
  return movesElements(operation) && operation.results().size() == 1;
}

/// What a formula makes of places; of all that a token can have, in ascending order.
enum class Meaning {
  none,
  place,   ///< the place itself
  last,    ///< the place, or the last slot
  orMark,  ///< the place, or a number that is no slot
  isBelow, ///< whether there is a slot at the place
  isNotBelow
};
using Table = std::vector<double>;

/// `first` is what the first place is called: 0, or 1 where tokens are counted.
Meaning meaningOf(const Table& table, std::int64_t capacity, std::int64_t first) {
  const auto all = [&](const std::function<double(std::int64_t)>& expected) {
    for (std::size_t i = static_cast<std::size_t>(first); i < table.size(); ++i)
      if (table[i] != expected(static_cast<std::int64_t>(i) - first)) return false;
    return true;
  };
  if (all([](std::int64_t p) { return static_cast<double>(p); })) return Meaning::place;
  if (all([&](std::int64_t p) { return static_cast<double>(std::min(p, capacity - 1)); })) return Meaning::last;
  if (all([&](std::int64_t p) { return p < capacity ? 1.0 : 0.0; })) return Meaning::isBelow;
  if (all([&](std::int64_t p) { return p < capacity ? 0.0 : 1.0; })) return Meaning::isNotBelow;
  const double mark = table.back();
  const bool isSlot = mark >= 0 && mark < static_cast<double>(capacity);
  if (!isSlot && all([&](std::int64_t p) { return p < capacity ? static_cast<double>(p) : mark; }))
    return Meaning::orMark;
  return Meaning::none;
}

bool isCondition(Meaning meaning) {
  return meaning == Meaning::isBelow || meaning == Meaning::isNotBelow;
}

/// What is computed of one kind of place, with the capacity of the file and with the other one.
struct SlotFormula {
  const Value* place = nullptr; ///< null: of several, all alike
  SlotCount slots;
  Table now, then;
};

class SlotRewriter {
public:
  SlotRewriter(PassContext& context, Graph& graph, const std::unordered_map<const Value*, SlotCount>& places,
               std::int64_t first)
      : context_(context), graph_(graph), first_(first) {
    for (const auto& [place, slots] : places) {
      Table table(static_cast<std::size_t>(std::max({slots.queue, slots.now, slots.then}) + 2 + first));
      for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<double>(i);
      formulas_.emplace(place, SlotFormula{place, slots, table, table});
    }
  }

  /// The first operation that computes something else; null: none does, and replacements can be made.
  const Operation* find() {
    for (const auto& operation : graph_.operations()) {
      if (operation->phase == Phase::forward && !follow(*operation)) return operation.get();
    }
    return nullptr;
  }
  Status replace();

private:
  struct Replacement {
    Operation* operation;
    ExpressionPtr expression;
    std::vector<std::optional<double>> constants; ///< by operand
  };

  bool follow(Operation& operation);
  bool followMove(const Operation& operation);
  bool compute(Operation& operation, const SlotFormula& of);
  static double otherNumber(double number, const SlotCount& slots) {
    if (number == static_cast<double>(slots.now)) return static_cast<double>(slots.then);
    return number == static_cast<double>(slots.now - 1) ? static_cast<double>(slots.then - 1) : number;
  }
  static ExpressionPtr withOtherNumbers(const ExpressionPtr& e, const SlotCount& slots);
  Table tableOf(const Expression& e, const Operation& operation, Table SlotFormula::*table, std::size_t size,
                const std::vector<std::optional<double>>& constants) const;
  bool holdsOnlyConditions(const Operation& operation) const;
  const SlotFormula* formulaOf(const Value* value) const {
    const auto found = formulas_.find(value);
    return found == formulas_.end() ? nullptr : &found->second;
  }
  Meaning meaning(const SlotFormula& formula) const { return meaningOf(formula.now, formula.slots.now, first_); }

  PassContext& context_;
  Graph& graph_;
  const std::int64_t first_;
  std::unordered_map<const Value*, SlotFormula> formulas_;
  std::vector<Replacement> replacements_;
};

ExpressionPtr SlotRewriter::withOtherNumbers(const ExpressionPtr& e, const SlotCount& slots) {
  if (e->kind == Expression::Kind::number) return numberExpression(otherNumber(e->number, slots));
  if (e->arguments.empty()) return e;
  auto copy = std::make_shared<Expression>(*e);
  for (ExpressionPtr& argument : copy->arguments) argument = withOtherNumbers(argument, slots);
  return copy;
}

/// The values of an expression at all places.
Table SlotRewriter::tableOf(const Expression& e, const Operation& operation, Table SlotFormula::*table,
                            std::size_t size, const std::vector<std::optional<double>>& constants) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < operation.operands().size(); ++i)
    names.push_back(operandNameInExpressions(operation.def(), i));
  const ExpressionProgram<double> program(e, names);
  std::vector<double> values(names.size());
  Table results(size);
  for (std::size_t p = 0; p < size; ++p) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = constants[i] ? *constants[i] : (formulas_.at(operation.operand(i)).*table)[p];
    results[p] = program(values.data());
  }
  return results;
}

/// Whether an operation knows nothing of places but whether they are slots, which it may do with as it likes.
bool SlotRewriter::holdsOnlyConditions(const Operation& operation) const {
  return std::all_of(operation.operands().begin(), operation.operands().end(), [&](const Value* operand) {
    const SlotFormula* formula = operand ? formulaOf(operand) : nullptr;
    return !formula || isCondition(meaning(*formula));
  });
}

/// Elements that are only moved are what they were; next to each other, if all are made by the same formula.
bool SlotRewriter::followMove(const Operation& operation) {
  const SlotFormula* formula = nullptr;
  for (const Value* operand : operation.operands()) {
    const SlotFormula* other = operand ? formulaOf(operand) : nullptr;
    if (!other && operand && operation.def().facts.picks && operand != operation.operand(0)) continue;
    if (!other || (formula && (formula->now != other->now || formula->slots != other->slots)))
      return holdsOnlyConditions(operation);
    formula = other;
  }
  if (!formula) return true;
  SlotFormula moved = *formula;
  for (const Value* operand : operation.operands())
    if (const SlotFormula* other = formulaOf(operand); other && other->place != moved.place) moved.place = nullptr;
  formulas_.emplace(operation.result(), std::move(moved));
  return true;
}

/// The formula of a result, and how it becomes that of the other capacity.
bool SlotRewriter::compute(Operation& operation, const SlotFormula& of) {
  std::vector<std::optional<double>> constants, others;
  for (const Value* operand : operation.operands()) {
    constants.push_back(formulaOf(operand) ? std::nullopt : numberOf(operand));
    others.push_back(constants.back() ? std::optional(otherNumber(*constants.back(), of.slots)) : std::nullopt);
  }
  const ExpressionPtr e = expressionsOf(operation).front(), other = withOtherNumbers(e, of.slots);
  SlotFormula made{of.place, of.slots, tableOf(*e, operation, &SlotFormula::now, of.now.size(), constants), {}};
  const Meaning before = meaningOf(made.now, of.slots.now, first_);
  if (before == Meaning::none) return holdsOnlyConditions(operation);
  made.then = tableOf(*other, operation, &SlotFormula::then, of.then.size(), others);
  if (meaningOf(made.then, of.slots.then, first_) == before) {
    if (constants != others || toString(*other) != toString(*e)) replacements_.push_back({&operation, other, others});
  } else { // numbers that are the capacity's by chance
    made.then = tableOf(*e, operation, &SlotFormula::then, of.then.size(), constants);
    if (meaningOf(made.then, of.slots.then, first_) != before) return false;
  }
  formulas_.emplace(operation.result(), std::move(made));
  return true;
}

bool SlotRewriter::follow(Operation& operation) {
  const auto& operands = operation.operands();
  const SlotFormula* of = nullptr;
  bool isOfOne = true; // place, and else of numbers
  for (const Value* operand : operands) {
    const SlotFormula* formula = operand ? formulaOf(operand) : nullptr;
    if (!formula) {
      isOfOne = isOfOne && operand && numberOf(operand);
      continue;
    }
    isOfOne = isOfOne && (!of || (of->place == formula->place && of->slots == formula->slots));
    of = formula;
  }
  if (!of || formulas_.contains(operation.result(0))) return true;
  if (movesOneTensor(operation)) return followMove(operation);
  if (isElementwise(operation) && isOfOne) return compute(operation, *of);
  if (holdsOnlyConditions(operation)) return true;
  // What fills or fetches slots reads them behind the experts that are chosen, and gates of whether they are slots.
  const std::optional<std::size_t>& experts = operation.def().split.places;
  if (!experts) return false;
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (const SlotFormula* formula = operands[i] ? formulaOf(operands[i]) : nullptr;
        formula && i != *experts + 1 && !isCondition(meaning(*formula)))
      return false;
  return true;
}

Status SlotRewriter::replace() {
  for (const auto& [operation, expression, constants] : replacements_) {
    Builder builder(context_.module, graph_, context_.registry, context_.diags);
    builder.setInsertionPoint(operation);
    builder.setLocation(operation->location);
    std::vector<Value*> operands;
    std::unordered_map<std::string, ExpressionPtr> names;
    for (std::size_t i = 0; i < operation->operands().size(); ++i) {
      Value* operand = operation->operand(i);
      if (constants[i] && *constants[i] != numberOf(operand)) {
        Tensor changed(operand->type());
        for (std::int64_t k = 0; k < changed.elements(); ++k) {
          if (isFloat(changed.type().element))
            changed.set(k, *constants[i]);
          else
            changed.setInt(k, static_cast<std::int64_t>(*constants[i]));
        }
        operand = builder.constant(changed);
      }
      names[operandNameInExpressions(operation->def(), i)] = nameExpression("a" + std::to_string(i));
      operands.push_back(operand);
    }
    const ExpressionPtr renamed = substitute(
        expression, [&](const std::string& name) { return names.contains(name) ? names.at(name) : nullptr; });
    Value* made = builder.value("elementwise", operands, {{"expressions", std::vector{toString(*renamed)}}});
    if (!made) return failure;
    const std::string name = operation->result()->name();
    graph_.replaceAllUses(operation->result(), made);
    graph_.erase(operation);
    graph_.rename(made, name);
  }
  return success;
}

} // namespace

std::vector<const Value*> pdc::placesBehind(const Value* slots) {
  const Operation* made = slots->definer();
  std::vector<const Value*> places;
  if (made && (isElementwise(*made) || movesOneTensor(*made)))
    for (std::size_t i = 0; i < made->operands().size(); ++i) {
      const Value* operand = made->operand(i);
      if (!operand || numberOf(operand) || (made->def().facts.picks && i > 0)) continue;
      for (const Value* place : placesBehind(operand))
        if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
    }
  // Only values next to each other have several.
  const bool isOfSeveral = places.size() > 1 && !(made && movesOneTensor(*made));
  return places.empty() || isOfSeveral ? std::vector<const Value*>{slots} : places;
}

Status pdc::takeOtherCapacity(PassContext& context, Graph& graph,
                              const std::unordered_map<const Value*, SlotCount>& places) {
  const Operation* problem = nullptr;
  for (std::int64_t first : {0, 1}) {
    SlotRewriter rewriter(context, graph, places, first);
    const Operation* found = rewriter.find();
    if (!found) return rewriter.replace();
    if (!problem) problem = found;
  }
  return context.diags.error(problem->location)
             .exit(ExitCode::unsupported)
             .help("export the model with the capacity that it shall have")
         << "operation '" << problem->def().name << "' computes something of the places of tokens in the slots of "
         << "experts that has no meaning with another capacity";
}
