// Questions that kernels ask about elementwise operations beside them (OpRewrites::absorb).
#pragma once

#include "pdc/IR/Elementwise.h"
#include "pdc/IR/Expression.h"
#include "pdc/IR/OpDef.h"

namespace pdc::ops {

inline bool isName(const Expression& e, const std::string& name) {
  return e.kind == Expression::Kind::name && e.symbol == name;
}
inline bool isNumber(const Expression& e, double number) {
  return e.kind == Expression::Kind::number && e.number == number;
}
inline bool isCall(const Expression& e, const char* function, std::size_t arguments) {
  return e.kind == Expression::Kind::call && e.symbol == function && e.arguments.size() == arguments;
}
inline bool isBinary(const Expression& e, const char* symbol) {
  return e.kind == Expression::Kind::binary && e.symbol == symbol;
}

/// Whether it is one operand of `operation` plus the other one, of two.
inline bool isSumOfOperands(const Expression& e, const Operation& operation) {
  const std::string names[] = {operandNameInExpressions(operation.def(), 0),
                               operandNameInExpressions(operation.def(), 1)};
  return operation.operands().size() == 2 && isBinary(e, "+") &&
         ((isName(*e.arguments[0], names[0]) && isName(*e.arguments[1], names[1])) ||
          (isName(*e.arguments[0], names[1]) && isName(*e.arguments[1], names[0])));
}

/// The elementwise operation with one result that is the only user of `value`; null if there is none where it counts.
inline Operation* onlyUser(const Value* value) {
  if (value->users().size() != 1) return nullptr;
  Operation* user = value->users().front();
  return user->def().kind == OpKind::elementwise && user->results().size() == 1 ? user : nullptr;
}

} // namespace pdc::ops
