// Activation functions. Derivatives speak of Y where that saves keeping X for the backward pass.
#include "Raise/Match.h"
#include "Raise/RaiseFunction.h"
#include "Shared/Elementwise.h"
#include "Shared/InitialValues.h"

namespace pdc::ops::Activations {

namespace {

/// A number that an activation is parameterised by: its name here and in ONNX, and ONNX's default.
struct Constant {
  const char* name;
  double standard;
};

/// An activation with attributes, which have the same names and defaults in ONNX.
OpDef parameterised(Scalar op, const std::vector<Constant>& constants) {
  const std::string opType = op.onnx, name = op.name;
  op.onnx.clear();
  OpDef def = unary(std::move(op));
  std::string text;
  for (const Constant& constant : constants) {
    def.attributes.push_back(number(constant.name, std::nullopt, "as in the expression"));
    text += (text.empty() ? " {" : ", ") + std::string(constant.name) + " = 0.25";
  }
  def.onnx = {onnx(opType, 1, [=](OnnxReader& n) {
    Attributes attributes;
    for (const Constant& constant : constants)
      attributes.set(constant.name, n.number(constant.name, constant.standard));
    return n.value(name, {n.input(0)}, attributes);
  })};
  def.examples = unaryExamples(def.name, text + "}");
  return def;
}

OpDef sigmoid() {
  OpDef def = unary({.name = "sigmoid",
                     .summary = "1 / (1 + exp(-X))",
                     .onnx = "Sigmoid",
                     .expression = "sigmoid(X)",
                     .derivatives = {"Y * (1 - Y)"}});
  def.facts.ofLogits = OfLogits::sigmoid;
  return def;
}

/// The logarithm of sigmoid(x), or of 1 - sigmoid(x), as exporters write binary cross-entropy with logits: finite also
/// where the sigmoid is rounded to 0 or 1.
Value* raiseLogSigmoid(Operation& root, Builder& b) {
  if (root.def().name != "log") return nullptr;
  if (const Operation* sigmoid = definedBy(root.operand(0), "sigmoid"))
    return b.value("neg", {b.value("softplus", {b.value("neg", {sigmoid->operand(0)})})});
  const Operation* rest = definedBy(root.operand(0), "sub");
  const Operation* sigmoid = rest && isNumber(rest->operand(0), 1) ? definedBy(rest->operand(1), "sigmoid") : nullptr;
  return sigmoid && sigmoid->result()->type() == rest->result()->type()
             ? b.value("neg", {b.value("softplus", {sigmoid->operand(0)})})
             : nullptr;
}

OpDef softplus() {
  OpDef def = unary({.name = "softplus",
                     .summary = "log(1 + exp(X)), without overflow",
                     .onnx = "Softplus",
                     .expression = "softplus(X)"});
  def.rewrites.raise = raiseLogSigmoid;
  return def;
}

/// ONNX Gelu says with an attribute which of the two functions it means.
OpDef gelu() {
  OpDef def = unary({.name = "gelu",
                     .summary = "X times the normal distribution function of X: X / 2 · (1 + erf(X / sqrt(2)))",
                     .onnx = "",
                     .expression = "gelu(X)",
                     .derivatives = {"geluDerivative(X)"}});
  def.rewrites.raise = raiseFunction(def.name, "gelu(x)", "erf");
  def.onnx = {onnx(
      "Gelu", 1,
      [](OnnxReader& n) -> Value* {
        const std::string approximate = n.text("approximate", "none");
        if (approximate == "none" || approximate == "tanh")
          return n.value(approximate == "none" ? "gelu" : "gelu_tanh", {n.input(0)});
        static_cast<void>(n.error() << "has approximate = '" << approximate << "', it must be none or tanh");
        return nullptr;
      },
      20)};
  return def;
}

/// The approximation has a derivative of its own: it is not the derivative of gelu. It is computed with
/// 1 + tanh(a) = 2 · sigmoid(2 a), which does not cancel, and whose exponential is all that it takes.
OpDef geluTanh() {
  const char* function = "0.5 * X * (1 + tanh(0.7978845608028654 * (X + 0.044715 * X * X * X)))";
  OpDef def = unary({.name = "gelu_tanh",
                     .summary = "Approximation of gelu: X / 2 · (1 + tanh(sqrt(2 / pi) · (X + 0.044715 · X³)))",
                     .onnx = "",
                     .expression = "X * sigmoid(1.5957691216057308 * (X + 0.044715 * X * X * X))"});
  def.rewrites.raise = raiseFunction(def.name, function, "tanh");
  return def;
}

OpDef prelu() {
  OpDef def = binary({.name = "prelu",
                      .summary = "A where it is positive, B · A elsewhere",
                      .onnx = "PRelu",
                      .expression = "select(A > 0, A, B * A)"});
  def.usage.initialValues = startsAt(1, {0.25});
  return def;
}

} // namespace

std::vector<OpDef> define() {
  return {
      unary({.name = "relu",
             .summary = "max(X, 0)",
             .onnx = "Relu",
             .expression = "max(X, 0)",
             .derivatives = {"select(Y > 0, 1, 0)"}}),
      sigmoid(),
      unary({.name = "tanh",
             .summary = "Hyperbolic tangent of X",
             .onnx = "Tanh",
             .expression = "tanh(X)",
             .derivatives = {"1 - Y * Y"}}),
      softplus(),
      gelu(),
      geluTanh(),
      unary({.name = "softsign", .summary = "X / (1 + |X|)", .onnx = "Softsign", .expression = "X / (1 + abs(X))"}),
      unary({.name = "hard_swish",
             .summary = "X · max(0, min(1, X / 6 + 1 / 2))",
             .onnx = "HardSwish",
             .expression = "X * max(0, min(1, X / 6 + 0.5))",
             .derivatives = {"select(X <= -3, 0, select(X >= 3, 1, X / 3 + 0.5))"}}),
      unary({.name = "mish",
             .summary = "X · tanh(log(1 + exp(X)))",
             .onnx = "Mish",
             .expression = "X * tanh(softplus(X))"}),
      parameterised({.name = "thresholded_relu",
                     .summary = "X where it is above alpha, 0 elsewhere",
                     .onnx = "ThresholdedRelu",
                     .expression = "select(X <= alpha, 0, X)"},
                    {{"alpha", 1}}),
      parameterised({.name = "celu",
                     .summary = "X where it is positive, alpha · (exp(X / alpha) - 1) elsewhere",
                     .onnx = "Celu",
                     .expression = "select(X > 0, X, alpha * expm1(X / alpha))"},
                    {{"alpha", 1}}),
      parameterised({.name = "shrink",
                     .summary = "X + bias below -lambd, X - bias above lambd, 0 between",
                     .onnx = "Shrink",
                     .expression = "select(X < -lambd, X + bias, select(X <= lambd, 0, X - bias))"},
                    {{"bias", 0}, {"lambd", 0.5}}),
      parameterised({.name = "leaky_relu",
                     .summary = "X where it is positive, alpha · X elsewhere",
                     .onnx = "LeakyRelu",
                     .expression = "select(X > 0, X, alpha * X)"},
                    {{"alpha", 0.01f}}),
      parameterised({.name = "elu",
                     .summary = "X where it is positive, alpha · (exp(X) - 1) elsewhere",
                     .onnx = "Elu",
                     .expression = "select(X > 0, X, alpha * (exp(X) - 1))"},
                    {{"alpha", 1}}),
      parameterised({.name = "selu",
                     .summary = "gamma · X where it is positive, gamma · alpha · (exp(X) - 1) elsewhere",
                     .onnx = "Selu",
                     .expression = "gamma * select(X > 0, X, alpha * (exp(X) - 1))"},
                    {{"alpha", 1.67326319217681884765625}, {"gamma", 1.05070102214813232421875}}),
      parameterised({.name = "hard_sigmoid",
                     .summary = "max(0, min(1, alpha · X + beta))",
                     .onnx = "HardSigmoid",
                     .expression = "max(0, min(1, alpha * X + beta))",
                     .derivatives = {"select(Y > 0 && Y < 1, alpha, 0)"}},
                    {{"alpha", 0.2f}, {"beta", 0.5}}),
      prelu(),
  };
}

} // namespace pdc::ops::Activations
