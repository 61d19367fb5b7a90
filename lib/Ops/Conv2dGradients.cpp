// Gradients of two-dimensional convolution. Kernel: pdcrt::Conv2d.
#include "Convert/ConvertConv.h"
#include "Raise/MatchExpression.h"
#include "Shared/Convolution.h"
#include "Shared/InitialValues.h"

namespace pdc::ops::Conv2dGradients {

namespace {

Convolution inputGradientOf(const Operation& op) {
  return {op, resultType(op), operandType(op, 1), operandType(op, 0)};
}
Convolution weightGradientOf(const Operation& op) {
  return {op, operandType(op, 0), resultType(op), operandType(op, 1)};
}

/// A gradient's result, whose shape is the attribute `shapeName`; the operand for y must fit it.
Types inferGradient(const InferContext& c, const char* op, const char* shapeName, bool ofInput) {
  if (!requireFloat(c, op, 0, 4, 4) || !requireFloat(c, op, 1, 4, 4)) return failure;
  const Shape& stated = integersOf(c, shapeName);
  if (stated.size() != 4 || std::any_of(stated.begin(), stated.end(), [](std::int64_t dim) { return dim < 1; }))
    return c.error() << "'" << op << "' op has " << shapeName << " " << toString(stated)
                     << ", it needs four positive sizes";
  const Type &first = c.operand(0), &second = c.operand(1);
  const Type& dy = ofInput ? first : second;
  const Expected<Shape> y =
      ofInput ? convolutionShape(c, op, stated, second.shape) : convolutionShape(c, op, first.shape, stated);
  if (!y || !requireType(c, op, ofInput ? 0 : 1, {first.element, *y}, shapeName)) return failure;
  if (ofInput && has(c, 2) && !requireType(c, op, 2, {first.element, stated}, shapeName)) return failure;
  std::vector<Type> types{{first.element, stated}};
  if (!ofInput) types.push_back({first.element, {dy.shape[1]}});
  return types;
}

/// conv2d_input_gradient is linear in dY and W, as conv2d is: its gradients are the other two products of the three.
std::vector<Value*> gradientOfInputGradient(GradientContext& g) {
  const Operation& op = g.op();
  Value* dx = g.resultGradient(0);
  std::vector<Value*> gradients(2, nullptr);
  if (!dx) return gradients;
  Attributes attributes = op.attributes;
  attributes.erase("input_shape");
  if (g.wants(0)) gradients[0] = g.value(0, "conv2d", {dx, op.operand(1)}, attributes);
  if (g.wants(1)) {
    attributes.set("filter_shape", operandType(op, 1).shape);
    Operation* backward = g.create(1, "conv2d_weight_gradient", {dx, op.operand(0)}, attributes, {true, false});
    if (backward) gradients[1] = backward->result(0);
  }
  return gradients;
}

/// conv2d_input_gradient, when a sum with one other value is all that dX is for.
Absorbed absorbSum(Operation& op, Builder& b) {
  Operation* sum = onlyUser(op.result());
  if (!sum || sum->operands().size() != 2 || sum->result()->type() != resultType(op)) return {};
  const std::size_t other = sum->operand(0) == op.result() ? 1 : 0;
  Value* const added = sum->operand(other);
  if (added->type() != resultType(op) || !isSumOfOperands(*expressionsOf(*sum).front(), *sum)) return {};
  b.setInsertionPoint(sum);
  Operation* made = b.create("conv2d_added_input_gradient", {op.operand(0), op.operand(1), added}, op.attributes);
  if (!made) return {};
  return {.made = made, .gone = {&op, sum}, .replaced = {{sum->result(), made->result()}}};
}

OpDef inputGradientDef() {
  return {
      .name = "conv2d_input_gradient",
      .summary = "Gradient of conv2d for X, which is the transposed convolution of dY",
      .onnx = {onnx("ConvTranspose", 2, convertConvTranspose)},
      .operands = {{"dY"}, {"W"}},
      .results = {{"dX"}},
      .attributes = convolutionAttributes({shapeOf(0, integers("input_shape", std::nullopt, "the shape of X"))}),
      .infer = [](const InferContext& c) { return inferGradient(c, "conv2d_input_gradient", "input_shape", true); },
      .precision = PrecisionClass::preferLow,
      .cost =
          [](const Operation& op) {
            return Cost{inputGradientOf(op).flops(), bytesMoved(op)};
          },
      .gradient = gradientOfInputGradient,
      .kernel = {.use = [](const Operation& op) { return inputGradientOf(op).kernel("inputGradient", false); },
                 .alternatives = [](const Operation& op,
                                    Target t) { return inputGradientOf(op).alternatives("inputGradient", t); },
                 .channelBlocks = blocksBesideFilter,
                 .filterBlocks = [](const Operation& op) { return filterInBlocksOf(op, op.operand(1)); }},
      .rewrites = {.absorb = absorbSum},
      .split = {.loops = loopsOfInputGradient, .divide = divideConvolution},
      .usage = {.initialValues = asLayer(fanInOfConvolution)}, // as a transposed convolution
      .reference = reference([]<class T>(ReferenceContext& c) {
        const auto dy = c.in<T>(0), w = c.in<T>(1);
        const auto dx = c.out<T>(0);
        if (c.operands.size() > 2) std::copy(c.in<T>(2).begin(), c.in<T>(2).end(), dx.begin()); // what it is added to
        inputGradientOf(c.op).forEachProduct(
            [&](std::int64_t atY, std::int64_t atX, std::int64_t atW) { dx[atX] += dy[atY] * w[atW]; });
      }),
      .examples = {example("%dy: f32[2, 4, 5, 5], %w: f32[4, 3, 3, 3]",
                           "%dx = conv2d_input_gradient %dy, %w {input_shape = [2, 3, 5, 5], pads = [1, 1, 1, 1]} "
                           ": f32[2, 3, 5, 5]"),
                   example("%dy: f32[1, 3, 5, 6], %w: f32[3, 2, 3, 3]",
                           "%dx = conv2d_input_gradient %dy, %w {algorithms = [\"automatic\", \"winograd\", "
                           "\"direct\"], input_shape = [1, 2, 7, 8], workspace = 64} : f32[1, 2, 7, 8]"),
                   example("%dy: f32[1, 2, 3, 3], %w: f32[2, 1, 3, 3]",
                           "%dx = conv2d_input_gradient %dy, %w {groups = 2, input_shape = [1, 2, 8, 7], strides = "
                           "[2, 2]} : f32[1, 2, 8, 7]"),
                   example("%dy: f32[1, 3, 2, 3], %w: f32[3, 2, 2, 2]",
                           "%dx = conv2d_input_gradient %dy, %w {input_shape = [1, 2, 5, 6], strides = [3, 2]} "
                           ": f32[1, 2, 5, 6]"),
                   example("%dy: f32[2, 1, 3, 2], %w: f32[1, 2, 2, 3]",
                           "%dx = conv2d_input_gradient %dy, %w {dilations = [2, 1], input_shape = [2, 2, 4, 4], "
                           "pads = [1, 0, 0, 0]} : f32[2, 2, 4, 4]"),
                   example("%dy: f32[1, 4, 1, 4], %w: f32[4, 1, 1, 3]",
                           "%dx = conv2d_input_gradient %dy, %w {groups = 2, input_shape = [1, 2, 1, 8], pads = "
                           "[0, 1, 0, 0], strides = [1, 2]} : f32[1, 2, 1, 8]"),
                   example("%dy: f32[1, 8, 2, 1], %w: f32[8, 3, 2, 2]",
                           "%dx = conv2d_input_gradient %dy, %w {groups = 4, input_shape = [1, 12, 3, 2]} "
                           ": f32[1, 12, 3, 2]")},
      .facts = {.takesLow = true},
  };
}

/// Members but the first, which add nothing, compute conv2d_input_gradient.
std::vector<Value*> divideAdded(const Operation& op, const Loops& loops, const Division& division,
                                const std::vector<Value*>& operands, Builder& b) {
  if (operands[2]) return divideConvolution(op, loops, division, operands, b);
  // Outputs are divided, so that the attributes stay as they are.
  const Operation* made = b.create("conv2d_input_gradient", {operands[0], operands[1]}, op.attributes);
  return made ? made->results() : std::vector<Value*>();
}

/// What conv2d_input_gradient becomes with a sum behind it.
OpDef addedInputGradientDef() {
  OpDef def = inputGradientDef();
  def.name = "conv2d_added_input_gradient";
  def.summary = "Gradient of conv2d for X, added to something";
  def.onnx = {};
  def.operands.push_back({"added"});
  def.infer = [](const InferContext& c) {
    return inferGradient(c, "conv2d_added_input_gradient", "input_shape", true);
  };
  def.gradient = nullptr;
  def.kernel.use = [](const Operation& op) { return inputGradientOf(op).kernel("addedInputGradient", false); };
  // What it is added to lies as the sum does.
  def.kernel.channelBlocks = [](const Operation& op) {
    if (op.operand(0) == op.operand(1)) return ChannelBlocks{};
    return ChannelBlocks{.values = {op.operand(0), op.operand(2), op.result()},
                         .apart = true,
                         .last = isInOneGroup(op),
                         .alike = {op.operand(2), op.result()}};
  };
  def.rewrites.absorb = nullptr;
  def.split.divide = divideAdded;
  def.kernel.replaceable = {{.operand = 2}};
  def.examples = {example("%dy: f32[2, 4, 2, 3], %w: f32[4, 3, 2, 1], %a: f32[2, 3, 5, 5]",
                          "%dx = conv2d_added_input_gradient %dy, %w, %a {input_shape = [2, 3, 5, 5], strides = [2, "
                          "2]} : f32[2, 3, 5, 5]"),
                  example("%dy: f32[2, 32, 6, 6], %w: f32[32, 16, 3, 3], %a: f32[2, 16, 6, 6]",
                          "%dx = conv2d_added_input_gradient %dy, %w, %a {input_shape = [2, 16, 6, 6], pads = [1, 1, "
                          "1, 1]} : f32[2, 16, 6, 6]"),
                  example("%dy: f32[1, 8, 2, 1], %w: f32[8, 3, 2, 2], %a: f32[1, 12, 3, 2]",
                          "%dx = conv2d_added_input_gradient %dy, %w, %a {groups = 4, input_shape = [1, 12, 3, 2]} : "
                          "f32[1, 12, 3, 2]")};
  return def;
}

} // namespace

std::vector<OpDef> define() {
  return {
      inputGradientDef(),
      addedInputGradientDef(),
      {
          .name = "conv2d_weight_gradient",
          .summary = "Gradients of conv2d for W and, if asked for, B",
          .operands = {{"X"}, {"dY"}},
          .results = {{"dW"}, {.name = "dB", .optional = true}},
          .attributes = convolutionAttributes({shapeOf(0, integers("filter_shape", std::nullopt, "the shape of W"))}),
          .infer =
              [](const InferContext& c) { return inferGradient(c, "conv2d_weight_gradient", "filter_shape", false); },
          .precision = PrecisionClass::preferLow,
          .cost =
              [](const Operation& op) {
                return Cost{weightGradientOf(op).flops(), bytesMoved(op)};
              },
          .kernel =
              {.use = [](const Operation& op) { return weightGradientOf(op).kernel("weightGradient", op.result(1)); },
               .alternatives = [](const Operation& op,
                                  Target t) { return weightGradientOf(op).alternatives("weightGradient", t); },
               .channelBlocks =
                   [](const Operation& op) {
                     return ChannelBlocks{
                         .values = {op.operand(0), op.operand(1)}, .apart = true, .last = isInOneGroup(op)};
                   },
               .filterBlocks = [](const Operation& op) { return filterInBlocksOf(op, op.result(0)); }},
          .split = {.loops = loopsOfWeightGradient, .divide = divideConvolution},
          .reference = reference([]<class T>(ReferenceContext& c) {
            const Convolution convolution = weightGradientOf(c.op);
            const auto x = c.in<T>(0), dy = c.in<T>(1);
            const auto dw = c.out<T>(0);
            convolution.forEachProduct(
                [&](std::int64_t atY, std::int64_t atX, std::int64_t atW) { dw[atW] += x[atX] * dy[atY]; });
            if (!c.results[1]) return;
            const std::int64_t plane = product(convolution.y, 2, 4), channels = convolution.y[1];
            for (std::int64_t i = 0; i < elementsOf(convolution.y); ++i) c.out<T>(1)[i / plane % channels] += dy[i];
          }),
          .examples = {example("%x: f32[2, 3, 5, 5], %dy: f32[2, 4, 5, 5]",
                               "%dw, %db = conv2d_weight_gradient %x, %dy {filter_shape = [4, 3, 3, 3], pads = [1, 1, "
                               "1, 1]} : f32[4, 3, 3, 3], f32[4]"),
                       example("%x: f32[1, 2, 8, 7], %dy: f32[1, 2, 3, 3]",
                               "%dw, _ = conv2d_weight_gradient %x, %dy {filter_shape = [2, 1, 3, 3], groups = 2, "
                               "strides = [2, 2]} : f32[2, 1, 3, 3], _"),
                       example("%x: f32[1, 12, 3, 2], %dy: f32[1, 8, 2, 1]",
                               "%dw, %db = conv2d_weight_gradient %x, %dy {filter_shape = [8, 3, 2, 2], groups = 4} "
                               ": f32[8, 3, 2, 2], f32[8]")},
          .facts = {.takesLow = true},
      },
  };
}

} // namespace pdc::ops::Conv2dGradients
