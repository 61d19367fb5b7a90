#include "Raise/RaiseNorm.h"

#include "Raise/Match.h"

using namespace pdc;
using namespace pdc::ops;

namespace {

/// A mean over the axes from `axis` to the last, which stay with size 1.
struct Mean {
  Value* of = nullptr;
  std::int64_t axis = 0;
};

std::optional<Mean> meanOverLastAxes(const Value* value) {
  const Operation* mean = definedBy(value, "reduce_mean");
  if (!mean || !mean->attributes.get<bool>("keep_dims")) return std::nullopt;
  const std::vector<std::int64_t>& axes = mean->attributes.getInts("axes");
  const std::int64_t rank = mean->operand(0)->type().rank();
  if (axes.empty() || axes.back() != rank - 1 ||
      axes.back() - axes.front() + 1 != static_cast<std::int64_t>(axes.size()))
    return std::nullopt;
  return Mean{mean->operand(0), axes.front()};
}

/// x of x - mean(x), and the axis from which on the mean is taken.
std::optional<Mean> centred(const Value* value) {
  const Operation* difference = definedBy(value, "sub");
  const std::optional<Mean> mean = difference ? meanOverLastAxes(difference->operand(1)) : std::nullopt;
  return mean && mean->of == difference->operand(0) ? mean : std::nullopt;
}

/// r of sqrt(r); of r to the power 0.5.
Value* underRoot(const Value* value) {
  if (const Operation* root = definedBy(value, "sqrt")) return root->operand(0);
  const Operation* power = definedBy(value, "pow");
  return power && isNumber(power->operand(1), 0.5) ? power->operand(0) : nullptr;
}

/// r of 1 / sqrt(r), however it is written.
Value* underInverseRoot(const Value* value) {
  if (const Operation* inverse = definedBy(value, "reciprocal")) return underRoot(inverse->operand(0));
  if (const Operation* quotient = definedBy(value, "div"); quotient && isNumber(quotient->operand(0), 1))
    return underRoot(quotient->operand(1));
  const Operation* power = definedBy(value, "pow");
  return power && isNumber(power->operand(1), -0.5) ? power->operand(0) : nullptr;
}

/// numerator / sqrt(mean of deviation² + epsilon), with the mean from `axis` on.
struct Normalised {
  Value* numerator = nullptr;
  Value* deviation = nullptr;
  std::int64_t axis = 0;
  double epsilon = 0;
};

/// `variance` plus a small number, and what is deviating.
std::optional<Normalised> withEpsilon(const Value* sum, Value* numerator) {
  const Operation* addition = definedBy(sum, "add");
  if (!addition) return std::nullopt;
  for (auto [variance, epsilon] : bothOrders(*addition)) {
    const std::optional<double> number = numberOf(epsilon);
    const std::optional<Mean> mean = meanOverLastAxes(variance);
    Value* deviation = mean ? squareRootOf(mean->of) : nullptr;
    if (number && *number >= 0 && deviation) return Normalised{numerator, deviation, mean->axis, *number};
  }
  return std::nullopt;
}

std::optional<Normalised> normalised(const Operation& root) {
  const std::string& op = root.def().name;
  if (op == "div") return withEpsilon(underRoot(root.operand(1)), root.operand(0));
  if (op != "mul") return std::nullopt;
  for (auto [numerator, inverse] : bothOrders(root))
    if (auto found = withEpsilon(underInverseRoot(inverse), numerator)) return found;
  return std::nullopt;
}

/// x where x - mean(x) is both what is divided and what the variance is taken of, be it one value or computed twice.
Value* centredInput(const Normalised& n) {
  const std::optional<Mean> above = centred(n.numerator), below = centred(n.deviation);
  return above && below && above->of == below->of && above->axis == n.axis && below->axis == n.axis ? above->of
                                                                                                    : nullptr;
}

/// A normalisation `op` that only this operation uses, and whose operand `missing` is absent, as are those behind it.
const Operation* lacking(const Value* value, const char* op, std::size_t missing, const Graph& graph) {
  const Operation* norm = definedBy(value, op);
  return norm && !norm->operand(missing) && !norm->operand(2) && hasOneUse(graph, value) ? norm : nullptr;
}

/// Makes `other` operand `position` of the normalisation `op` that `root` applies it to: 1 the scale, 2 the bias.
Value* raiseWeight(const Operation& root, const char* op, std::size_t position, Builder& b) {
  for (auto [value, weight] : bothOrders(root)) {
    const Operation* norm = lacking(value, op, position, b.graph());
    if (!norm) continue;
    const Shape& shape = value->type().shape;
    const Shape last(shape.begin() + norm->attributes.getInt("axis"), shape.end());
    if (weight->type() != Type{value->type().element, last}) continue;
    std::vector<Value*> operands = norm->operands();
    operands.resize(std::max(operands.size(), position + 1), nullptr);
    operands[position] = weight;
    return b.value(op, std::move(operands), norm->attributes);
  }
  return nullptr;
}

/// What one factor of each element is: 1 / sqrt(variance of x + epsilon), times a scale where there is one.
struct Factor {
  Normalised variance;
  Value* scale = nullptr;
};

std::optional<Factor> factorOf(const Value* value) {
  if (const auto n = withEpsilon(underInverseRoot(value), nullptr)) return Factor{*n, nullptr};
  const Operation* product = definedBy(value, "mul");
  for (auto [inverse, scale] : product ? bothOrders(*product) : std::vector<std::pair<Value*, Value*>>{})
    if (const auto n = withEpsilon(underInverseRoot(inverse), nullptr)) return Factor{*n, scale};
  return std::nullopt;
}

/// TensorFlow's spelling: x · factor + (bias - mean of x · factor).
Value* raiseFolded(const Operation& root, Value* product, Value* rest, Builder& b) {
  const Operation *scaled = definedBy(product, "mul"), *difference = definedBy(rest, "sub");
  const Operation* shift = difference ? definedBy(difference->operand(1), "mul") : nullptr;
  if (!scaled || !shift) return nullptr;
  for (auto [x, a] : bothOrders(*scaled))
    for (auto [average, again] : bothOrders(*shift)) {
      const std::optional<Mean> mean = meanOverLastAxes(average);
      const std::optional<Factor> factor = again == a && mean && mean->of == x ? factorOf(a) : std::nullopt;
      const std::optional<Mean> below = factor ? centred(factor->variance.deviation) : std::nullopt;
      const bool same = below && below->of == x && below->axis == mean->axis && factor->variance.axis == mean->axis;
      if (!same || x->type() != root.result()->type()) continue;
      const Type weight{x->type().element, {x->type().shape.begin() + mean->axis, x->type().shape.end()}};
      Value *scale = factor->scale, *bias = difference->operand(0);
      if ((scale && scale->type() != weight) || bias->type() != weight) continue;
      return b.value("layer_norm", {x, scale, bias}, {{"axis", mean->axis}, {"epsilon", factor->variance.epsilon}});
    }
  return nullptr;
}

} // namespace

Value* pdc::ops::raiseLayerNorm(Operation& root, Builder& b) {
  const std::optional<Normalised> n = normalised(root);
  if (Value* x = n ? centredInput(*n) : nullptr; x && x->type() == root.result()->type())
    return b.value("layer_norm", {x}, {{"axis", n->axis}, {"epsilon", n->epsilon}});
  if (root.def().name == "mul") return raiseWeight(root, "layer_norm", 1, b);
  if (root.def().name != "add") return nullptr;
  for (auto [product, rest] : bothOrders(root))
    if (Value* folded = raiseFolded(root, product, rest, b)) return folded;
  return raiseWeight(root, "layer_norm", 2, b);
}

Value* pdc::ops::raiseRmsNorm(Operation& root, Builder& b) {
  const std::optional<Normalised> n = normalised(root);
  if (n && n->numerator == n->deviation && n->numerator->type() == root.result()->type())
    return b.value("rms_norm", {n->numerator}, {{"axis", n->axis}, {"epsilon", n->epsilon}});
  return root.def().name == "mul" ? raiseWeight(root, "rms_norm", 1, b) : nullptr;
}
