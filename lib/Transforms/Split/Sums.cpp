#include "Split/Sums.h"

#include "pdc/IR/Elementwise.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

using namespace pdc;

/// Takes the names of a sum's terms apart; false: it is more than a sum.
static bool collectTerms(const Expression& e, std::vector<std::string>& names) {
  if (e.kind == Expression::Kind::name) return names.push_back(e.symbol), true;
  return e.kind == Expression::Kind::binary && e.symbol == "+" && collectTerms(*e.arguments[0], names) &&
         collectTerms(*e.arguments[1], names);
}

bool pdc::addsOperands(const Operation& operation) {
  if (operation.def().kind != OpKind::elementwise || operation.results().size() != 1) return false;
  if (operation.operands().size() < 2) return false;
  const std::vector<ExpressionPtr> expressions = expressionsOf(operation);
  std::vector<std::string> names;
  if (expressions.size() != 1 || !collectTerms(*expressions[0], names)) return false;
  const std::set<std::string> distinct(names.begin(), names.end());
  if (names.size() != operation.operands().size() || distinct.size() != names.size()) return false;
  return std::all_of(operation.operands().begin(), operation.operands().end(),
                     [&](const Value* operand) { return operand && operand->type() == operation.result()->type(); });
}

bool pdc::addsToItsSum(const Operation& operation, const Loops& loops, const Division& division) {
  return loops.added && operation.operand(static_cast<std::size_t>(loops.added->operand)) &&
         formOfResult(loops, 0, division) == Form::partial(Combine::sum);
}
