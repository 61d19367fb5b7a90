// Activation functions. Derivatives speak of Y where that saves keeping X for the backward pass.
#include "Helpers/Elementwise.h"

using namespace pdc;
using namespace pdc::ops;

namespace {

/// A number that an activation is parameterised by: its name here and in ONNX, and ONNX's default.
struct Constant {
  const char* name;
  double standard;
};

/// An activation with attributes, which have the same names and defaults in ONNX.
OpDef parameterised(Scalar op, std::vector<Constant> constants) {
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

OpDef prelu() {
  OpDef def = binary({.name = "prelu",
                      .summary = "A where it is positive, B · A elsewhere",
                      .onnx = "PRelu",
                      .expression = "select(A > 0, A, B * A)"});
  return def;
}

} // namespace

PDC_OPS(Activations) {
  return {
      unary({.name = "relu",
             .summary = "max(X, 0)",
             .onnx = "Relu",
             .expression = "max(X, 0)",
             .derivatives = {"select(Y > 0, 1, 0)"}}),
      unary({.name = "sigmoid",
             .summary = "1 / (1 + exp(-X))",
             .onnx = "Sigmoid",
             .expression = "sigmoid(X)",
             .derivatives = {"Y * (1 - Y)"}}),
      unary({.name = "tanh",
             .summary = "Hyperbolic tangent of X",
             .onnx = "Tanh",
             .expression = "tanh(X)",
             .derivatives = {"1 - Y * Y"}}),
      unary({.name = "softplus",
             .summary = "log(1 + exp(X)), without overflow",
             .onnx = "Softplus",
             .expression = "softplus(X)"}),
      unary({.name = "softsign", .summary = "X / (1 + |X|)", .onnx = "Softsign", .expression = "X / (1 + abs(X))"}),
      unary({.name = "hard_swish",
             .summary = "X · max(0, min(1, X / 6 + 1 / 2))",
             .onnx = "HardSwish",
             .expression = "X * max(0, min(1, X / 6 + 0.5))"}),
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
                     .expression = "max(0, min(1, alpha * X + beta))"},
                    {{"alpha", 0.2f}, {"beta", 0.5}}),
      prelu(),
  };
}
