#include "Shared/RecurrentOps.h"

namespace pdc::ops {

AttributeDef orderAttribute(const std::string& gates) {
  return {"order", gates, gates, "the order of the gates in X and R"};
}

AttributeDef reverseAttribute() {
  return boolean("reverse", false, "whether the last step comes first");
}

Expected<RecurrentTypes> recurrentTypes(const InferContext& c, const char* op, std::size_t states, std::size_t weights,
                                        std::int64_t gates, bool allGates) {
  if (!requireFloat(c, op, states, 3, 3) || !requireFloat(c, op, weights, 2, 2)) return failure;
  const ElementType element = c.operand(states).element;
  const std::int64_t steps = c.operand(states).shape[0], batch = c.operand(states).shape[1],
                     hidden = c.operand(weights).shape[1];
  std::int64_t all = 0;
  if (__builtin_mul_overflow(gates, hidden, &all))
    return c.error() << "'" << op << "' op has " << hidden << " hidden units, too many";
  const RecurrentTypes types{.gates = {element, {steps, batch, all}},
                             .states = {element, {steps, batch, hidden}},
                             .state = {element, {batch, hidden}},
                             .weights = {element, {all, hidden}},
                             .bias = {element, {all}},
                             .lengths = {ElementType::i32, {batch}}};
  if (!requireType(c, op, weights, types.weights, "the number of its columns") ||
      !requireType(c, op, states, allGates ? types.gates : types.states, "the weight"))
    return failure;
  return types;
}

Status requireOptional(const InferContext& c, const char* op, std::size_t i, const Type& type) {
  return has(c, i) ? requireType(c, op, i, type, "the layer") : Status(success);
}

Status requireOrder(const InferContext& c, const char* op, const std::string& gates) {
  const std::string& order = c.attributes.get<std::string>("order");
  if (order.size() == gates.size() && std::is_permutation(order.begin(), order.end(), gates.begin())) return success;
  return c.error() << "'" << op << "' op has order = '" << order << "', which is none of the gates '" << gates << "'";
}

std::function<Loops(const Operation&)> alongBatch(HaveBatch operands, HaveBatch results) {
  const auto placesOf = [](const HaveBatch& values) {
    std::vector<Place> places;
    for (std::size_t i : values.afterSteps) places.push_back({i, 1});
    for (std::size_t i : values.first) places.push_back({i, 0});
    return places;
  };
  return [sized = operands.afterSteps.front(), operands = placesOf(operands),
          results = placesOf(results)](const Operation& op) {
    Loops loops(op);
    addIndex(loops, op, {.size = operandType(op, sized).shape[1], .operands = operands, .results = results});
    return loops;
  };
}

} // namespace pdc::ops
