// Arithmetic of one or two operands, element by element, with NumPy's broadcasting.
#include "Convert/Indices.h"
#include "Raise/Match.h"
#include "Shared/Elementwise.h"
#include "Shared/InitialValues.h"

#include <algorithm>

namespace pdc::ops::Arithmetic {

/// Whether `value` is a constant with one element, which `number` then is.
static bool isScalarConstant(const Value* value, double& number) {
  const std::optional<Tensor> tensor = Builder::constantValue(value);
  if (!tensor || tensor->elements() != 1) return false;
  number = tensor->asDouble(0);
  return true;
}

/// ONNX Pow allows an exponent of another type. Small whole exponents become products, which are exact and fast.
static Value* convertPow(OnnxReader& n) {
  Value *base = n.input(0), *exponent = n.input(1);
  double number = 0;
  if (isScalarConstant(exponent, number) && exponent->type().rank() <= base->type().rank() &&
      (number == 1 || number == 2 || number == 3)) {
    Value* product = base;
    for (int i = 1; i < number && product; ++i) product = n.value("mul", {product, base});
    return product;
  }
  if (exponent->type().element != base->type().element)
    exponent = n.value("cast", {exponent}, {{"to", std::string(nameOf(base->type().element))}});
  return exponent ? n.value("pow", {base, exponent}) : nullptr;
}

/// Bounds are attributes before opset 11 and optional inputs since; each that is there is one op. What a constant bound
/// limits has no gradient there, as in PyTorch 2.15 (before, it had); a bound that is computed shares it with X.
static Value* convertClip(OnnxReader& n) {
  Value* x = n.input(0);
  const ElementType element = x->type().element;
  Value *least = n.input(1), *most = n.input(2);
  if (n.version() < 11) {
    least = n.has("min") ? n.b.constant(n.number("min", 0), element) : nullptr;
    most = n.has("max") ? n.b.constant(n.number("max", 0), element) : nullptr;
  }
  const auto limited = [&n](Value* value, Value* bound, const char* op, const char* expression) {
    const bool learns = isFloat(value->type().element);
    return learns && Builder::constantValue(bound) ? compute(n, {value, bound}, expression)
                                                   : n.value(op, {value, bound});
  };
  if (least) x = limited(x, least, "maximum", "max(a0, a1)");
  return most && x ? limited(x, most, "minimum", "min(a0, a1)") : x;
}

static Value* convertMean(OnnxReader& n) {
  Value* sum = foldInputs(n, "add");
  if (!sum || n.node.inputs.size() == 1) return sum;
  return n.value("div", {sum, n.b.constant(static_cast<double>(n.node.inputs.size()), sum->type().element)});
}

static OpDef power() {
  OpDef def =
      binary({.name = "pow",
              .summary = "A to the power B",
              .onnx = "",
              .expression = "pow(A, B)",
              .derivatives = {"select(B == 0, 0, B * pow(A, B - 1))", "select(A == 0 && B >= 0, 0, Y * log(A))"},
              .positive = true});
  def.onnx = {onnx("Pow", 2, convertPow)};
  return def;
}

/// max(log(x), number), as exporters write binary cross-entropy: as one function it has no gradient where x is 0, and
/// not 0 times the infinite one of the logarithm.
static Value* raiseLimitedLog(Operation& root, Builder& b) {
  if (root.def().name != "maximum") return nullptr;
  for (auto [logarithm, least] : bothOrders(root)) {
    const Operation* log = definedBy(logarithm, "log");
    const auto number = log ? numberOf(least) : std::nullopt;
    if (!number || root.result()->type() != logarithm->type()) continue;
    const std::string expression = "max(log(a0), " + toString(*numberExpression(*number)) + ")";
    return b.value("elementwise", {log->operand(0)}, {{"expressions", std::vector{expression}}});
  }
  return nullptr;
}

static OpDef logarithm() {
  OpDef def = unary(
      {.name = "log", .summary = "Natural logarithm of X", .onnx = "Log", .expression = "log(X)", .positive = true});
  def.rewrites.raise = raiseLimitedLog;
  return def;
}

/// For numbers that a definition adds and takes off again. (As "constant" tests do not differentiate it; X alone would
/// be a conversion.)
static OpDef detach() {
  OpDef def = unary(
      {.name = "detach", .summary = "X, without a gradient", .onnx = "", .expression = "1 * X", .derivatives = {"0"}});
  def.examples = unaryExamples(def.name, "", "constant");
  return def;
}

static OpDef withFold(OpDef def, const char* opType) {
  def.onnx.push_back(onnx(opType, 1, [name = def.name](OnnxReader& n) { return foldInputs(n, name); }));
  return def;
}

/// A parameter that is added to what is computed: the bias of a layer, a shift, or a table of positions.
static std::optional<InitialValues> initialTerm(const Operation& op, std::size_t i) {
  const Value *parameter = op.operand(i), *other = op.operand(1 - i);
  if (!isFromParameters(parameter) || isFromParameters(other)) return std::nullopt;
  if (const Operation* layer = other->definer(); layer && layer->def().usage.initialValues) {
    const auto ofWeights = layer->def().usage.initialValues(*layer, 1);
    if (ofWeights && ofWeights->kind == InitialValues::Kind::uniform) return ofWeights;
  }
  const Shape& shape = parameter->type().shape;
  const auto axes = std::count_if(shape.begin(), shape.end(), [](std::int64_t dim) { return dim > 1; });
  return axes > 1 ? normally(0.02) : constantly(0);
}

/// A parameter that what is computed is multiplied with: a scale.
static std::optional<InitialValues> initialFactor(const Operation& op, std::size_t i) {
  if (!isFromParameters(op.operand(i)) || isFromParameters(op.operand(1 - i))) return std::nullopt;
  return constantly(1);
}

static OpDef startingWith(InitialValuesFn initialValues, OpDef def) {
  def.usage.initialValues = std::move(initialValues);
  return def;
}

std::vector<OpDef> define() {
  return {
      startingWith(initialTerm,
                   withFold(binary({.name = "add", .summary = "A + B", .onnx = "Add", .expression = "A + B"}), "Sum")),
      binary({.name = "sub", .summary = "A - B", .onnx = "Sub", .expression = "A - B"}),
      startingWith(initialFactor, binary({.name = "mul", .summary = "A · B", .onnx = "Mul", .expression = "A * B"})),
      binary({.name = "div",
              .summary = "A / B; of integers, rounded towards zero",
              .onnx = "Div",
              .expression = "A / B",
              .derivatives = {"1 / B", "-Y / B"}}),
      power(),
      withFold(binary({.name = "maximum",
                       .summary = "The larger of A and B; NaN if either is; equal ones share the gradient",
                       .onnx = "",
                       .expression = "max(A, B)",
                       .derivatives = {"select(A > B, 1, select(A == B, 0.5, 0))",
                                       "select(B > A, 1, select(A == B, 0.5, 0))"}}),
               "Max"),
      withFold(binary({.name = "minimum",
                       .summary = "The smaller of A and B; NaN if either is; equal ones share the gradient",
                       .onnx = "",
                       .expression = "min(A, B)",
                       .derivatives = {"select(A < B, 1, select(A == B, 0.5, 0))",
                                       "select(B < A, 1, select(A == B, 0.5, 0))"}}),
               "Min"),
      detach(),
      unary({.name = "neg", .summary = "-X", .onnx = "Neg", .expression = "-X"}),
      unary({.name = "abs", .summary = "|X|", .onnx = "Abs", .expression = "abs(X)"}),
      unary({.name = "sign", .summary = "-1, 0 or 1", .onnx = "Sign", .expression = "sign(X)"}),
      unary({.name = "reciprocal",
             .summary = "1 / X",
             .onnx = "Reciprocal",
             .expression = "1 / X",
             .derivatives = {"-(Y * Y)"}}),
      unary({.name = "sqrt",
             .summary = "Square root of X",
             .onnx = "Sqrt",
             .expression = "sqrt(X)",
             .derivatives = {"0.5 / Y"},
             .positive = true}),
      unary(
          {.name = "exp", .summary = "e to the power X", .onnx = "Exp", .expression = "exp(X)", .derivatives = {"Y"}}),
      logarithm(),
      unary({.name = "erf", .summary = "Error function of X", .onnx = "Erf", .expression = "erf(X)"}),
      unary({.name = "sin", .summary = "Sine of X", .onnx = "Sin", .expression = "sin(X)"}),
      unary({.name = "cos", .summary = "Cosine of X", .onnx = "Cos", .expression = "cos(X)"}),
      // From |X|, so that nothing cancels; where X² might be infinite it is log(2 |X|).
      unary({.name = "asinh",
             .summary = "Inverse hyperbolic sine of X",
             .onnx = "Asinh",
             .expression = "sign(X) * select(abs(X) > 1e9, log(abs(X)) + 0.69314718055994531, "
                           "log1p(abs(X) + X * X / (1 + sqrt(X * X + 1))))",
             .derivatives = {"rsqrt(X * X + 1)"}}),
      unary({.name = "floor",
             .summary = "The largest whole number that is not above X",
             .onnx = "Floor",
             .expression = "floor(X)"}),
      unary({.name = "ceil",
             .summary = "The smallest whole number that is not below X",
             .onnx = "Ceil",
             .expression = "ceil(X)"}),
      unary({.name = "round",
             .summary = "The nearest whole number, of two the even one",
             .onnx = "Round",
             .expression = "round(X)"}),
      composed("clip", "X limited to [min, max]: maximum and minimum", {onnx("Clip", 1, convertClip)}),
      composed("mean", "Mean of the inputs: add and div", {onnx("Mean", 1, convertMean)}),
  };
}

} // namespace pdc::ops::Arithmetic
