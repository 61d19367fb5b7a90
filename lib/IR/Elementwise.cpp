// Elementwise ops: types, evaluation, cost and gradients, all derived from the expressions.
#include "pdc/IR/Elementwise.h"

#include "ScalarFunctions.h"

#include <algorithm>
#include <cassert>
#include <map>

using namespace pdc;

std::string pdc::operandNameInExpressions(const OpDef& op, std::size_t i) {
  const std::size_t last = op.operands.size() - 1;
  if (i < last || !op.operands.back().variadic) return op.operands[i].name;
  return op.operands.back().name + std::to_string(i - last);
}

/// The number that an attribute stands for in an expression; null when it is no number.
static ExpressionPtr literalOf(const Attribute* attribute) {
  if (!attribute) return nullptr;
  if (const auto* integer = std::get_if<std::int64_t>(attribute))
    return numberExpression(static_cast<double>(*integer));
  if (const auto* number = std::get_if<double>(attribute)) return numberExpression(*number);
  if (const auto* boolean = std::get_if<bool>(attribute)) return numberExpression(*boolean ? 1 : 0);
  return nullptr;
}

static ExpressionPtr withAttributes(const ExpressionPtr& e, const Attributes& attributes) {
  return substitute(e, [&](const std::string& name) { return literalOf(attributes.find(name)); });
}

static const std::vector<std::string>& textsOf(const OpDef& def, const Attributes& attributes) {
  return def.expressions.empty() ? attributes.get<std::vector<std::string>>("expressions") : def.expressions;
}

std::vector<ExpressionPtr> pdc::expressionsOf(const Operation& op) {
  std::vector<ExpressionPtr> list;
  for (const std::string& text : textsOf(op.def(), op.attributes))
    list.push_back(withAttributes(expression(text), op.attributes));
  return list;
}

bool pdc::onlyConverts(const Operation& operation) {
  return operation.def().kind == OpKind::elementwise && operation.operands().size() == 1 &&
         operation.def().expressions == std::vector<std::string>{operation.def().operands[0].name};
}

std::optional<Shape> pdc::broadcastShapes(const std::vector<Shape>& shapes) {
  std::size_t rank = 0;
  for (const Shape& shape : shapes) rank = std::max(rank, shape.size());
  Shape result(rank, 1);
  for (const Shape& shape : shapes)
    for (std::size_t i = 0; i < shape.size(); ++i) {
      std::int64_t& dim = result[rank - shape.size() + i];
      if (shape[i] == 1 || shape[i] == dim) continue;
      if (dim != 1) return std::nullopt;
      dim = shape[i];
    }
  return result;
}

// --- types ---

static bool isOfBits(const Expression& e) {
  return e.kind == Expression::Kind::call && findScalarFunction(e.symbol)->ofBits;
}

std::optional<ElementType> pdc::conversionOf(const Expression& e) {
  ElementType element = ElementType::f32;
  if (e.kind != Expression::Kind::call || !elementTypeFromName(e.symbol, element)) return std::nullopt;
  return element;
}

namespace {
/// The element type of an expression: none for numbers, which adapt; an error when operands disagree.
struct ElementInference {
  std::map<std::string, ElementType> operands;
  std::string error;

  std::optional<ElementType> operator()(const Expression& e) {
    if (e.kind == Expression::Kind::name) {
      auto it = operands.find(e.symbol);
      if (it != operands.end()) return it->second;
      if (error.empty()) error = "speaks of '" + e.symbol + "', which is not an operand";
      return std::nullopt;
    }
    std::optional<ElementType> merged;
    for (std::size_t i = 0; i < e.arguments.size(); ++i) {
      const std::optional<ElementType> argument = (*this)(*e.arguments[i]);
      const bool condition = e.kind == Expression::Kind::call && e.symbol == "select" && i == 0;
      if (!condition) merge(merged, argument);
    }
    if (const std::optional<ElementType> converted = conversionOf(e)) return converted;
    if (isOfBits(e) && (!merged || isFloat(*merged) || *merged == ElementType::boolean) && error.empty())
      error = "needs integers for '" + e.symbol + "'" + (merged ? std::string(", these are ") + nameOf(*merged) : "");
    if (isBoolean(e)) return ElementType::boolean;
    return merged;
  }

private:
  void merge(std::optional<ElementType>& a, const std::optional<ElementType>& b) {
    if (!b || a == b) return;
    if (!a || *a == ElementType::boolean)
      a = b;
    else if (*b != ElementType::boolean && error.empty())
      error = std::string("mixes ") + nameOf(*a) + " and " + nameOf(*b);
  }
};
} // namespace

Expected<std::vector<Type>> pdc::inferElementwise(const OpDef& def, const InferContext& context) {
  std::vector<Shape> shapes;
  ElementInference elementOf;
  std::string listed;
  for (std::size_t i = 0; i < context.operands.size(); ++i) {
    if (!context.operands[i]) continue;
    shapes.push_back(context.operand(i).shape);
    listed += (listed.empty() ? "" : " and ") + toString(context.operand(i).shape);
    elementOf.operands[operandNameInExpressions(def, i)] = context.operand(i).element;
  }
  const std::optional<Shape> shape = broadcastShapes(shapes);
  if (!shape) return context.error() << "'" << def.name << "' op cannot broadcast shapes " << listed << " together";

  std::vector<Type> types;
  for (const std::string& text : textsOf(def, context.attributes)) {
    std::string error;
    const ExpressionPtr parsed = parseExpression(text, error);
    if (!parsed) return context.error() << "'" << text << "' is not an expression: " << error;
    const std::optional<ElementType> element = elementOf(*withAttributes(parsed, context.attributes));
    if (!elementOf.error.empty())
      return context.error() << "'" << def.name << "' op: expression '" << text << "' " << elementOf.error;
    types.push_back({.element = element.value_or(ElementType::f32), .shape = *shape});
  }
  return types;
}

// --- evaluation ---

namespace {
/// An operand as values of T, with the step of each of the result's dimensions (0 where it is broadcast).
template <class T>
struct OperandValues {
  std::vector<T> values;
  std::vector<std::int64_t> steps;
};

template <class T>
OperandValues<T> valuesOf(const Tensor& tensor, const Shape& shape) {
  OperandValues<T> operand;
  operand.values.resize(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t i = 0; i < operand.values.size(); ++i) {
    const auto position = static_cast<std::int64_t>(i);
    if constexpr (std::is_integral_v<T>) // not by way of double, which has 53 bits
      operand.values[i] = static_cast<T>(tensor.asInt(position));
    else
      operand.values[i] = static_cast<T>(tensor.asDouble(position));
  }
  operand.steps.assign(shape.size(), 0);
  std::int64_t step = 1;
  for (std::size_t back = 1; back <= tensor.shape().size(); ++back) {
    const std::int64_t dim = tensor.shape()[tensor.shape().size() - back];
    if (dim != 1) operand.steps[shape.size() - back] = step;
    step *= dim;
  }
  return operand;
}

/// Moves `index` to the next position in row-major order and `offsets` with it.
template <class T>
void advance(std::vector<std::int64_t>& index, const Shape& shape, const std::vector<OperandValues<T>>& operands,
             std::vector<std::int64_t>& offsets) {
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    for (std::size_t i = 0; i < operands.size(); ++i) offsets[i] += operands[i].steps[dim];
    if (++index[dim] < shape[dim]) return;
    for (std::size_t i = 0; i < operands.size(); ++i) offsets[i] -= operands[i].steps[dim] * shape[dim];
    index[dim] = 0;
  }
}

template <class T>
void evaluateAs(const Operation& op, const std::vector<const Tensor*>& operands, const std::vector<Tensor*>& results) {
  std::vector<Shape> shapes;
  for (const Tensor* operand : operands)
    if (operand) shapes.push_back(operand->shape());
  const Shape shape = *broadcastShapes(shapes);

  std::vector<OperandValues<T>> values;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (operands[i]) {
      values.push_back(valuesOf<T>(*operands[i], shape));
      names.push_back(operandNameInExpressions(op.def(), i));
    }
  std::vector<ExpressionProgram<T>> programs;
  for (const ExpressionPtr& e : expressionsOf(op)) programs.emplace_back(*e, names);

  std::vector<std::int64_t> index(shape.size()), offsets(values.size());
  std::vector<T> arguments(values.size());
  const std::int64_t count = elementsOf(shape);
  for (std::int64_t position = 0; position < count; ++position) {
    for (std::size_t i = 0; i < values.size(); ++i)
      arguments[i] = values[i].values[static_cast<std::size_t>(offsets[i])];
    for (std::size_t i = 0; i < programs.size(); ++i) {
      if (!results[i]) continue;
      const T value = programs[i](arguments.data());
      if constexpr (std::is_integral_v<T>)
        results[i]->setInt(position, static_cast<std::int64_t>(value));
      else
        results[i]->set(position, static_cast<double>(value));
    }
    advance(index, shape, values, offsets);
  }
}
} // namespace

void pdc::evaluateElementwise(const Operation& op, const std::vector<const Tensor*>& operands,
                              const std::vector<Tensor*>& results, bool inDouble) {
  auto hasFloat = [](const Tensor* tensor) { return tensor && isFloat(tensor->type().element); };
  const bool anyFloat =
      std::any_of(operands.begin(), operands.end(), hasFloat) || std::any_of(results.begin(), results.end(), hasFloat);
  const auto is = [](ElementType element) {
    return [element](const Tensor* tensor) { return tensor && tensor->type().element == element; };
  };
  const bool anyLarge = std::any_of(operands.begin(), operands.end(), is(ElementType::u64));
  if (!anyFloat && anyLarge)
    evaluateAs<std::uint64_t>(op, operands, results);
  else if (!anyFloat)
    evaluateAs<std::int64_t>(op, operands, results);
  else if (inDouble)
    evaluateAs<double>(op, operands, results);
  else
    evaluateAs<float>(op, operands, results);
}

Cost pdc::costOfElementwise(const Operation& op) {
  Cost cost;
  double elements = 0;
  for (const Value* operand : op.operands())
    if (operand) cost.bytes += static_cast<double>(operand->type().bytes());
  for (const Value* result : op.results())
    if (result) {
      cost.bytes += static_cast<double>(result->type().bytes());
      elements = static_cast<double>(result->type().elements());
    }
  for (const ExpressionPtr& e : expressionsOf(op)) cost.flops += elements * flopsOf(*e);
  return cost;
}

// --- gradients ---

namespace {
/// The operands of a gradient's `elementwise` operation, each once, under the names a0, a1, ….
class Arguments {
public:
  ExpressionPtr use(Value* value) {
    auto it = std::find(values_.begin(), values_.end(), value);
    const auto position = it - values_.begin();
    if (it == values_.end()) values_.push_back(value);
    return nameExpression("a" + std::to_string(position));
  }
  const std::vector<Value*>& values() const { return values_; }

private:
  std::vector<Value*> values_;
};
} // namespace

/// ∂result r / ∂operand i in terms of the OpDef's names of operands and results.
static ExpressionPtr derivativeOf(const Operation& op, std::size_t r, std::size_t i) {
  const OpDef& def = op.def();
  if (i < def.derivatives.size() && !def.derivatives[i].empty())
    return withAttributes(expression(def.derivatives[i]), op.attributes);
  return derivative(expressionsOf(op)[r], operandNameInExpressions(def, i));
}

/// What `name` stands for in an expression about `op`: one of its operands or results.
static Value* valueNamed(const Operation& op, const std::string& name) {
  for (std::size_t i = 0; i < op.operands().size(); ++i)
    if (operandNameInExpressions(op.def(), i) == name) return op.operand(i);
  for (std::size_t i = 0; i < op.def().results.size(); ++i)
    if (op.def().results[i].name == name) return op.result(i);
  return nullptr;
}

/// Sums `gradient` over the dimensions along which operand `i` was broadcast.
static Value* reducedTo(GradientContext& context, std::size_t i, Value* gradient) {
  const Shape &from = gradient->type().shape, &to = context.op().operand(i)->type().shape;
  if (from == to) return gradient;
  std::vector<std::int64_t> axes;
  const std::size_t added = from.size() - to.size();
  for (std::size_t dim = 0; dim < from.size(); ++dim)
    if (dim < added || to[dim - added] != from[dim]) axes.push_back(static_cast<std::int64_t>(dim));
  Value* sum = context.value(i, "reduce_sum", {gradient}, {{"axes", axes}, {"keep_dims", true}});
  if (!sum || added == 0) return sum;
  return context.value(i, "reshape", {sum}, {{"shape", to}});
}

std::vector<Value*> pdc::elementwiseGradient(GradientContext& context) {
  const Operation& op = context.op();
  std::vector<Value*> gradients(op.operands().size());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!op.operand(i) || !context.wants(i)) continue;
    Arguments arguments;
    ExpressionPtr sum = numberExpression(0);
    for (std::size_t r = 0; r < op.results().size(); ++r) {
      Value* resultGradient = context.resultGradient(r);
      if (!resultGradient) continue;
      const ExpressionPtr partial = derivativeOf(op, r, i);
      if (partial->kind == Expression::Kind::number && partial->number == 0) continue;
      const ExpressionPtr gradient = arguments.use(resultGradient); // the first operand
      const ExpressionPtr product = chained(
          gradient, substitute(partial, [&](const std::string& name) { return arguments.use(valueNamed(op, name)); }));
      sum = std::make_shared<const Expression>(
          Expression{.kind = Expression::Kind::binary, .symbol = "+", .arguments = {sum, product}});
    }
    sum = simplify(sum);
    if (arguments.values().empty()) continue; // the result does not depend on this operand
    const bool isGradientItself = sum->kind == Expression::Kind::name;
    Value* full = isGradientItself ? arguments.values()[0]
                                   : context.value(i, "elementwise", arguments.values(),
                                                   {{"expressions", std::vector<std::string>{toString(*sum)}}});
    gradients[i] = full ? reducedTo(context, i, full) : nullptr;
  }
  return gradients;
}
