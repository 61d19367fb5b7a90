#include "Shared/InitialValues.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pdc::ops {

namespace {

/// Ops between a parameter and the op that it is made for: a transposition, gates cut out and put together, …
constexpr int longestWay = 8;

bool isFromParameters(const Value* value, int way) {
  if (!value || value->parameter()) return value;
  const Operation* definer = value->definer();
  if (!definer) return false;
  if (definer->def().kind == OpKind::constant) return true;
  const auto& operands = definer->operands();
  return way > 0 && (definer->def().facts.moves || definer->def().kind == OpKind::elementwise) &&
         std::all_of(operands.begin(), operands.end(),
                     [&](const Value* operand) { return !operand || isFromParameters(operand, way - 1); });
}

/// What the ops that take `value`, moved or not, say of the parameters that compute it.
std::optional<InitialValues> wantedOf(const Value* value, int way) {
  for (const Operation* user : value->users()) {
    if (user->def().facts.moves && way > 0)
      if (const auto values = wantedOf(user->result(), way - 1)) return values;
    const auto& operands = user->operands();
    const auto i = std::find(operands.begin(), operands.end(), value) - operands.begin();
    if (user->def().usage.initialValues)
      if (const auto values = user->def().usage.initialValues(*user, static_cast<std::size_t>(i))) return values;
  }
  return std::nullopt;
}

} // namespace

InitialValues uniformFor(std::int64_t count) {
  return {InitialValues::Kind::uniform, 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(count, 1)))};
}

bool isFromParameters(const Value* value) {
  return isFromParameters(value, longestWay);
}

InitialValuesFn startsAt(std::size_t first, std::vector<double> numbers) {
  return [first, numbers = std::move(numbers)](const Operation&, std::size_t i) -> std::optional<InitialValues> {
    if (i < first || i - first >= numbers.size()) return std::nullopt;
    return constantly(numbers[i - first]);
  };
}

InitialValuesFn asLayer(std::function<std::int64_t(const Operation&)> fanIn) {
  return [fanIn = std::move(fanIn)](const Operation& op, std::size_t i) -> std::optional<InitialValues> {
    if ((i != 1 && i != 2) || !isFromParameters(op.operand(i))) return std::nullopt;
    const auto wanted = wantedOf(op.result(), 2);
    return wanted ? wanted : uniformFor(fanIn(op));
  };
}

InitialValuesFn asRecurrent(std::size_t firstState) {
  return [=](const Operation& op, std::size_t i) -> std::optional<InitialValues> {
    if (i >= firstState) return constantly(0);
    return uniformFor(op.operand(1)->type().shape.back());
  };
}

} // namespace pdc::ops
