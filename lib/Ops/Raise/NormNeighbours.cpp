// See NormNeighbours.h.
#include "Raise/NormNeighbours.h"

#include "Raise/MatchExpression.h"

#include "pdc/IR/Builder.h"

#include <algorithm>

using namespace pdc;
using namespace pdc::ops;

namespace {

bool isBeside(const Operation& other, const Operation& op) {
  return other.def().kind == OpKind::elementwise && other.group == op.group && other.phase == op.phase;
}

/// What gives result 0, of f32, in low precision and nothing else; null: nobody does.
Operation* conversionBehind(const Operation& op) {
  const std::vector<Operation*>& users = op.result()->users();
  const auto found = std::find_if(users.begin(), users.end(), [&](const Operation* user) {
    return isBeside(*user, op) && onlyConverts(*user) && isLowPrecision(user->result()->type().element);
  });
  return op.result()->type().element != ElementType::f32 || found == users.end() ? nullptr : *found;
}

/// What makes X from something in low precision and something of f32, by adding them; null: nothing does. `low` is
/// which operand of it the first one is.
Operation* sumBefore(const Operation& op, std::size_t& low) {
  Operation* const sum = op.operand(0)->definer();
  if (!sum || !isBeside(*sum, op) || sum->operands().size() != 2 || sum->results().size() != 1) return nullptr;
  low = isLowPrecision(sum->operand(0)->type().element) ? 0 : 1;
  Type expected = sum->result()->type();
  if (sum->operand(1 - low)->type() != expected || expected.element != ElementType::f32) return nullptr;
  expected.element = sum->operand(low)->type().element;
  if (!isLowPrecision(expected.element) || sum->operand(low)->type() != expected) return nullptr;
  const ExpressionPtr e = expressionsOf(*sum).front();
  const auto isTerm = [&](const Expression& term, std::size_t operand) {
    const Expression& plain = isCall(term, nameOf(ElementType::f32), 1) ? *term.arguments[0] : term;
    return isName(plain, operandNameInExpressions(sum->def(), operand));
  };
  const bool adds = isBinary(*e, "+") && ((isTerm(*e->arguments[0], 0) && isTerm(*e->arguments[1], 1)) ||
                                          (isTerm(*e->arguments[0], 1) && isTerm(*e->arguments[1], 0)));
  return adds ? sum : nullptr;
}

/// When somebody reads a rounded copy of dX: the gradient gives that, too.
Absorbed absorbConversion(Operation& op, Builder& b) {
  Operation* const conversion = conversionBehind(op);
  if (!conversion) return {};
  Attributes attributes = op.attributes;
  attributes.set("low", std::string(nameOf(conversion->result()->type().element)));
  b.setInsertionPoint(&op);
  Operation* const made = b.create(op.def().name, op.operands(), attributes, {true, true});
  if (!made) return {};
  return {.made = made,
          .gone = {&op, conversion},
          .replaced = {{op.result(), made->result()}, {conversion->result(), made->result(1)}}};
}

/// When the sum of dX with one other value, and that sum in low precision, is all that dX is for.
Absorbed absorbSum(Operation& op, Builder& b) {
  Operation* const sum = op.result()->users().front();
  if (sum->def().kind != OpKind::elementwise || sum->operands().size() != 2 || sum->results().size() > 2) return {};
  const std::vector<ExpressionPtr> expressions = expressionsOf(*sum);
  Value* const other = sum->operand(sum->operand(0) == op.result() ? 1 : 0);
  if (other->type() != op.result()->type() || sum->result()->type() != op.result()->type() ||
      !isSumOfOperands(*expressions[0], *sum))
    return {};
  Attributes attributes = op.attributes;
  const bool rounds = sum->results().size() == 2;
  if (rounds) {
    const ElementType low = sum->result(1)->type().element;
    if (!isLowPrecision(low) || !isCall(*expressions[1], nameOf(low), 1) ||
        !isSumOfOperands(*expressions[1]->arguments[0], *sum))
      return {};
    attributes.set("low", std::string(nameOf(low)));
  }
  std::vector<Value*> operands = op.operands();
  operands.resize(addedToNorm(op), nullptr);
  operands.push_back(other);
  b.setInsertionPoint(sum);
  Operation* const made = b.create(op.def().name, operands, attributes, {true, rounds});
  if (!made) return {};
  Absorbed absorbed{.made = made, .gone = {&op, sum}, .replaced = {{sum->result(), made->result()}}};
  if (rounds) absorbed.replaced.emplace_back(sum->result(1), made->result(1));
  return absorbed;
}

} // namespace

Absorbed ops::absorbAroundNorm(Operation& op, Builder& b) {
  const std::size_t addedAt = addedToNorm(op), sumAt = sumOfNorm(op), lowAt = sumAt + 1;
  if (op.operand(addedAt) || op.result(lowAt)) return {};
  std::size_t low = 0;
  Operation *const sum = sumBefore(op, low), *const conversion = conversionBehind(op);
  if (!sum && !conversion) return {};
  std::vector<Value*> operands = op.operands();
  operands.resize(addedAt + 1, nullptr);
  if (sum) operands[0] = sum->operand(low), operands[addedAt] = sum->operand(1 - low);
  Attributes attributes = op.attributes;
  if (conversion) attributes.set("low", std::string(nameOf(conversion->result()->type().element)));
  std::vector<bool> wanted;
  for (const Value* result : op.results()) wanted.push_back(result);
  wanted[sumAt] = sum;
  wanted[lowAt] = conversion;
  b.setInsertionPoint(sum ? sum : &op);
  Operation* const made = b.create(op.def().name, operands, attributes, wanted);
  if (!made) return {};
  Absorbed absorbed{.made = made, .gone = {&op}, .replaced = {}};
  for (std::size_t i = 0; i < sumAt; ++i)
    if (op.result(i)) absorbed.replaced.emplace_back(op.result(i), made->result(i));
  if (sum) {
    absorbed.gone.insert(absorbed.gone.begin(), sum);
    absorbed.replaced.emplace_back(sum->result(), made->result(sumAt));
  }
  if (conversion) {
    absorbed.gone.push_back(conversion);
    absorbed.replaced.emplace_back(conversion->result(), made->result(lowAt));
  }
  return absorbed;
}

Absorbed ops::absorbAroundNormGradient(Operation& op, Builder& b) {
  if (op.operand(addedToNorm(op)) || op.result(1)) return {};
  return op.result()->users().size() == 1 ? absorbSum(op, b) : absorbConversion(op, b);
}
