#include "Raise/NormStatistics.h"

#include "Shared/Define.h"

#include <algorithm>

using namespace pdc;
using namespace pdc::ops;

Value* ops::gradientThroughStatistics(GradientContext& g, std::size_t operand, Value* x, bool centred) {
  const Operation& op = g.op();
  const std::size_t inverseAt = centred ? 2 : 1;
  Value *dmean = centred ? g.resultGradient(1) : nullptr, *dinverse = g.resultGradient(inverseAt);
  if (!dmean && !dinverse) return nullptr;
  const ElementType element = (dmean ? dmean : dinverse)->type().element;
  const Shape shape = x->type().shape;
  const auto axis = static_cast<std::size_t>(op.attributes.getInt("axis"));
  const std::string count = std::to_string(product(shape, axis, shape.size()));
  Shape column = shape;
  std::fill(column.begin() + op.attributes.getInt("axis"), column.end(), 1);
  std::vector<Value*> operands;
  const auto use = [&](Value* value) {
    if (value->type().element != element)
      value = g.value(operand, "cast", {value}, {{"to", std::string(nameOf(element))}});
    if (value->type().shape != shape) value = g.value(operand, "reshape", {value}, {{"shape", column}});
    operands.push_back(value);
    return "a" + std::to_string(operands.size() - 1);
  };
  const auto elementwise = [&](const std::string& expression) {
    return g.value(operand, "elementwise", operands, {{"expressions", std::vector<std::string>{expression}}});
  };
  const std::string ofMean = dmean ? use(dmean) + " / " + count : "";
  if (!dinverse) return g.value(operand, "broadcast", {elementwise(ofMean)}, {{"shape", shape}});
  const std::string gradient = use(dinverse), inverse = use(op.result(inverseAt));
  std::string distance = use(x);
  if (centred) distance = "(" + distance + " - " + use(op.result(1)) + ")";
  return elementwise((dmean ? ofMean : "0") + " - " + gradient + " * " + distance + " * " + inverse + " * " + inverse +
                     " * " + inverse + " / " + count);
}
