// Two-dimensional convolution and its gradients. Kernel: pdcrt::Conv2d.
#include "Helpers/ConvertConv.h"
#include "Helpers/ConvolutionAlgorithms.h"
#include "Helpers/InitialValues.h"
#include "Helpers/KernelOptions.h"
#include "Helpers/MatchExpression.h"
#include "Helpers/Window.h"

using namespace pdc;
using namespace pdc::ops;

namespace {

/// All sizes of a convolution; x is [n, c, h, w], the filter [o, c / groups, kernel], y [n, o, p, q].
struct Convolution {
  Shape x, w, y;
  Window window;
  std::int64_t groups;
  std::int64_t inputLanes, outputLanes; ///< channels per position in memory, of x and y
  std::int64_t filterLanes;             ///< of inputs and of outputs in a block of w
  bool relu;
  ElementType element;
  pdcrt::Conv2d::Algorithms algorithms;

  Convolution(const Operation& op, const Type& xType, const Type& wType, const Type& yType)
      : x(xType.shape), w(wType.shape), y(yType.shape), window(windowOf(op.attributes)),
        groups(op.attributes.getInt("groups")), inputLanes(pdc::lanesOf(xType)), outputLanes(pdc::lanesOf(yType)),
        filterLanes(wType.layout == filterInBlocks ? channelBlock : 1), relu(op.attributes.getOr("relu", false)),
        element(yType.element), algorithms(*convolutionAlgorithmsOf(op.attributes)) {
    window.kernel[0] = w[2], window.kernel[1] = w[3];
  }

  double flops() const { return 2.0 * static_cast<double>(elementsOf(y)) * static_cast<double>(product(w, 1, 4)); }
  pdcrt::Conv2d::Options options(bool bias) const {
    return {.input = toRuntime(x),
            .filter = toRuntime(w),
            .strides = window.stridesDims(),
            .pads = window.padsDims(),
            .dilations = window.dilationsDims(),
            .groups = groups,
            .bias = bias,
            .relu = relu,
            .inputLanes = inputLanes,
            .outputLanes = outputLanes,
            .filterLanes = filterLanes,
            .element = element,
            .algorithms = algorithms};
  }
  KernelUse kernel(const char* method, bool bias) const {
    return kernelUse<pdcrt::Conv2d>("Conv2d", method, options(bias));
  }
  KernelAlternatives alternatives(const char* method, Target target) const {
    return convolutionAlternatives(options(false), method, target);
  }
  /// Calls visit(position in y, position in x, position in w) for every product of the convolution.
  template <class Visit>
  void forEachProduct(Visit visit) const {
    const std::int64_t outputsPerGroup = w[0] / groups;
    forEachIndex(y, [&, at = std::int64_t{0}](const std::vector<std::int64_t>& i) mutable {
      const std::int64_t firstChannel = i[1] / outputsPerGroup * w[1];
      for (std::int64_t c = 0; c < w[1]; ++c)
        for (std::int64_t r = 0; r < w[2]; ++r)
          for (std::int64_t s = 0; s < w[3]; ++s) {
            const std::int64_t row = i[2] * window.strides[0] - window.before[0] + r * window.dilations[0];
            const std::int64_t column = i[3] * window.strides[1] - window.before[1] + s * window.dilations[1];
            if (row >= 0 && row < x[2] && column >= 0 && column < x[3])
              visit(at, ((i[0] * x[1] + firstChannel + c) * x[2] + row) * x[3] + column,
                    ((i[1] * w[1] + c) * w[2] + r) * w[3] + s);
          }
      ++at;
    });
  }
};

Convolution forwardOf(const Operation& op) {
  return {op, operandType(op, 0), operandType(op, 1), resultType(op)};
}
Convolution inputGradientOf(const Operation& op) {
  return {op, resultType(op), operandType(op, 1), operandType(op, 0)};
}
Convolution weightGradientOf(const Operation& op) {
  return {op, operandType(op, 0), resultType(op), operandType(op, 1)};
}

/// As torch.nn.Conv2d counts it; and ConvTranspose2d, whose filter has its inputs first.
std::int64_t fanIn(const Operation& op) {
  return product(operandType(op, 1).shape, 1, 4);
}

std::vector<AttributeDef> attributes(std::vector<AttributeDef> more = {}) {
  std::vector<AttributeDef> defs = windowAttributes(/*kernel=*/false, /*dilations=*/true);
  defs.push_back(integer("groups", 1, "channels are convolved in as many separate groups"));
  defs.push_back(convolutionAlgorithms());
  defs.push_back(convolutionWorkspace());
  defs.insert(defs.end(), more.begin(), more.end());
  return defs;
}

bool asksForWinograd(const pdcrt::Conv2d::Algorithms& algorithms) {
  using Algorithm = pdcrt::Conv2d::Algorithm;
  const auto asks = [](Algorithm a) { return a == Algorithm::winograd || a == Algorithm::tiledWinograd; };
  return asks(algorithms.forward) || asks(algorithms.inputGradient) || asks(algorithms.weightGradient);
}

/// The shape of y for x and w, with all rules of a convolution checked.
Expected<Shape> outputShape(const InferContext& c, const char* op, const Shape& x, const Shape& w) {
  const std::int64_t groups = integerOf(c, "groups");
  if (groups < 1 || x[1] != w[1] * groups || w[0] % groups != 0)
    return c.error() << "'" << op << "' op has " << x[1] << " input channels and " << w[0] << " output channels in "
                     << groups << " groups, the filter " << toString(w) << " takes " << w[1] << " each";
  if (!checkWindowAttributes(c, op)) return failure;
  Window window = windowOf(c.attributes);
  window.kernel[0] = w[2], window.kernel[1] = w[3];
  if (!checkWindow(c, op, window, x[2], x[3])) return failure;
  const std::optional<pdcrt::Conv2d::Algorithms> algorithms = convolutionAlgorithmsOf(c.attributes);
  if (!algorithms)
    return c.error() << "'" << op << "' op needs three algorithms, each of them automatic or one of pdcrt::Conv2d's";
  if (asksForWinograd(*algorithms) && !pdcrt::Conv2d::takesWinograd({.filter = toRuntime(w),
                                                                     .strides = window.stridesDims(),
                                                                     .dilations = window.dilationsDims(),
                                                                     .groups = groups}))
    return c.error() << "'" << op << "' op asks for winograd with the filter " << toString(w)
                     << ", which is for filters of 3x3 with strides and dilations of 1, in one group";
  return Shape{x[0], w[0], window.count(0, x[2]), window.count(1, x[3])};
}

Types inferForward(const InferContext& c) {
  const char* op = "conv2d";
  if (!requireFloat(c, op, 0, 4, 4) || !requireFloat(c, op, 1, 4, 4)) return failure;
  const Type &x = c.operand(0), &w = c.operand(1);
  if (x.element != w.element) return c.error() << "'conv2d' op has " << toString(x) << " and a filter " << toString(w);
  if (has(c, 2) && !requireType(c, op, 2, {x.element, {w.shape[0]}}, "the filter")) return failure;
  const Expected<Shape> y = outputShape(c, op, x.shape, w.shape);
  if (!y) return failure;
  return std::vector<Type>{{x.element, *y}};
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
      ofInput ? outputShape(c, op, stated, second.shape) : outputShape(c, op, first.shape, stated);
  if (!y || !requireType(c, op, ofInput ? 0 : 1, {first.element, *y}, shapeName)) return failure;
  if (ofInput && has(c, 2) && !requireType(c, op, 2, {first.element, stated}, shapeName)) return failure;
  std::vector<Type> types{{first.element, stated}};
  if (!ofInput) types.push_back({first.element, {dy.shape[1]}});
  return types;
}

/// The filter, where it may lie in blocks. Blocks are of one group; with dilations the library has its GEMM only for
/// the gradients, which takes row-major filters.
std::vector<const Value*> filterOf(const Operation& op, const Value* filter) {
  if (op.attributes.getInt("groups") != 1 || !(windowOf(op.attributes).dilationsDims() == pdcrt::Dims2{1, 1}))
    return {};
  return {filter};
}

/// The library has few kernels for groups with channels last.
bool inOneGroup(const Operation& op) {
  return op.attributes.getInt("groups") == 1;
}

/// What lies beside the filter.
ChannelBlocks besideFilter(const Operation& op) {
  if (op.operand(0) == op.operand(1)) return {};
  return {.values = {op.operand(0), op.result()}, .apart = true, .last = inOneGroup(op)};
}

std::vector<Value*> gradient(GradientContext& g) {
  const Operation& op = g.op();
  Value* dy = g.resultGradient(0);
  std::vector<Value*> gradients(3, nullptr);
  if (!dy) return gradients;
  Attributes forward = op.attributes;
  forward.erase("relu");
  if (op.attributes.get<bool>("relu"))
    dy = g.value(0, "elementwise", {dy, op.result()},
                 {{"expressions", std::vector<std::string>{"a0 * select(a1 > 0, 1, 0)"}}});
  if (g.wants(0)) {
    Attributes attributes = forward;
    attributes.set("input_shape", operandType(op, 0).shape);
    gradients[0] = g.value(0, "conv2d_input_gradient", {dy, op.operand(1)}, attributes);
  }
  const bool wantsBias = op.operand(2) && g.wants(2);
  if (g.wants(1)) {
    Attributes attributes = forward;
    attributes.set("filter_shape", operandType(op, 1).shape);
    Operation* backward = g.create(1, "conv2d_weight_gradient", {op.operand(0), dy}, attributes, {true, wantsBias});
    if (backward) gradients[1] = backward->result(0), gradients[2] = backward->result(1);
  } else if (wantsBias) {
    gradients[2] = g.value(2, "reduce_sum", {dy}, {{"axes", std::vector<std::int64_t>{0, 2, 3}}, {"keep_dims", false}});
  }
  return gradients;
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

/// conv2d, when max(Y, 0) is all that Y is for.
Absorbed absorbRelu(Operation& op, Builder& b) {
  Operation* follower = onlyUser(op.result());
  if (!follower || op.attributes.get<bool>("relu") || follower->operands().size() != 1 ||
      follower->result()->type() != resultType(op))
    return {};
  const ExpressionPtr relu = expressionsOf(*follower).front();
  if (!isCall(*relu, "max", 2) || !isNumber(*relu->arguments[1], 0) ||
      !isName(*relu->arguments[0], operandNameInExpressions(follower->def(), 0)))
    return {};
  Attributes attributes = op.attributes;
  attributes.set("relu", true);
  b.setInsertionPoint(follower);
  Operation* made = b.create(op.def().name, op.operands(), attributes);
  if (!made) return {};
  return {.made = made, .gone = {&op, follower}, .replaced = {{follower->result(), made->result()}}};
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

std::vector<std::string> examples() {
  const auto text = [](const char* x, const char* w, const std::string& b, const char* options, const char* y) {
    return example("%x: f32" + std::string(x) + ", %w: f32" + w + (b.empty() ? "" : ", %b: f32" + b),
                   "%y = conv2d %x, %w" + std::string(b.empty() ? "" : ", %b") + options + " : f32" + y);
  };
  return {text("[2, 3, 5, 5]", "[4, 3, 3, 3]", "[4]", " {pads = [1, 1, 1, 1]}", "[2, 4, 5, 5]"),
          text("[1, 2, 6, 7]", "[3, 2, 3, 3]", "",
               " {algorithms = [\"winograd\", \"direct\", \"winograd\"], workspace = 64}", "[1, 3, 4, 5]"),
          text("[1, 2, 7, 6]", "[3, 2, 3, 2]", "", " {strides = [2, 1]}", "[1, 3, 3, 5]"),
          text("[2, 4, 4, 4]", "[6, 2, 1, 1]", "[6]", " {groups = 2}", "[2, 6, 4, 4]"),
          text("[2, 16, 3, 2]", "[32, 16, 2, 2]", "[32]", " {pads = [1, 0, 0, 1]}", "[2, 32, 3, 2]"),
          text("[1, 2, 8, 8]", "[2, 1, 3, 3]", "",
               " {dilations = [2, 2], groups = 2, pads = [2, 1, 0, 1], strides = [1, 2]}", "[1, 2, 6, 3]"),
          text("[2, 16, 3, 4]", "[16, 16, 3, 3]", "[16]", " {pads = [1, 1, 1, 1], relu = true}", "[2, 16, 3, 4]"),
          text("[1, 1, 1, 9]", "[2, 1, 1, 4]", "[2]", " {pads = [0, 2, 0, 1], strides = [1, 3]}", "[1, 2, 1, 3]")};
}

OpDef inputGradientDef() {
  return {
      .name = "conv2d_input_gradient",
      .summary = "Gradient of conv2d for X, which is the transposed convolution of dY",
      .onnx = {onnx("ConvTranspose", 2, convertConvTranspose)},
      .operands = {{"dY"}, {"W"}},
      .results = {{"dX"}},
      .attributes = attributes({integers("input_shape", std::nullopt, "the shape of X")}),
      .infer = [](const InferContext& c) { return inferGradient(c, "conv2d_input_gradient", "input_shape", true); },
      .precision = PrecisionClass::preferLow,
      .cost =
          [](const Operation& op) {
            return Cost{inputGradientOf(op).flops(), bytesMoved(op)};
          },
      .gradient = gradientOfInputGradient,
      .kernel = [](const Operation& op) { return inputGradientOf(op).kernel("inputGradient", false); },
      .alternatives = [](const Operation& op,
                         Target t) { return inputGradientOf(op).alternatives("inputGradient", t); },
      .channelBlocks = besideFilter,
      .filterBlocks = [](const Operation& op) { return filterOf(op, op.operand(1)); },
      .absorb = absorbSum,
      .initialValues = asLayer(fanIn), // as a transposed convolution
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
                           "[0, 1, 0, 0], strides = [1, 2]} : f32[1, 2, 1, 8]")},
      .takesLow = true,
  };
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
  def.kernel = [](const Operation& op) { return inputGradientOf(op).kernel("addedInputGradient", false); };
  // What it is added to lies as the sum does.
  def.channelBlocks = [](const Operation& op) {
    if (op.operand(0) == op.operand(1)) return ChannelBlocks{};
    return ChannelBlocks{.values = {op.operand(0), op.operand(2), op.result()},
                         .apart = true,
                         .last = inOneGroup(op),
                         .alike = {op.operand(2), op.result()}};
  };
  def.absorb = nullptr;
  def.replaceable = {{.operand = 2}};
  def.examples = {example("%dy: f32[2, 4, 2, 3], %w: f32[4, 3, 2, 1], %a: f32[2, 3, 5, 5]",
                          "%dx = conv2d_added_input_gradient %dy, %w, %a {input_shape = [2, 3, 5, 5], strides = [2, "
                          "2]} : f32[2, 3, 5, 5]"),
                  example("%dy: f32[2, 32, 6, 6], %w: f32[32, 16, 3, 3], %a: f32[2, 16, 6, 6]",
                          "%dx = conv2d_added_input_gradient %dy, %w, %a {input_shape = [2, 16, 6, 6], pads = [1, 1, "
                          "1, 1]} : f32[2, 16, 6, 6]")};
  return def;
}

} // namespace

PDC_OPS(Conv2d) {
  return {
      {
          .name = "conv2d",
          .summary = "Cross-correlation of X [N, C, H, W] with the filter W [O, C / groups, …], plus B per channel",
          .onnx = {onnx("Conv", 2, convertConv)},
          .operands = {{"X"}, {"W"}, {.name = "B", .optional = true}},
          .results = {{"Y"}},
          .attributes = attributes({boolean("relu", false, "whether Y is max(Y, 0)")}),
          .infer = inferForward,
          .precision = PrecisionClass::preferLow,
          .cost =
              [](const Operation& op) {
                return Cost{forwardOf(op).flops(), bytesMoved(op)};
              },
          .gradient = gradient,
          .kernel = [](const Operation& op) { return forwardOf(op).kernel("forward", op.operand(2)); },
          .alternatives = [](const Operation& op, Target t) { return forwardOf(op).alternatives("forward", t); },
          .channelBlocks = besideFilter,
          .filterBlocks = [](const Operation& op) { return filterOf(op, op.operand(1)); },
          .absorb = absorbRelu,
          .initialValues = asLayer(fanIn),
          .reference = reference([]<class T>(ReferenceContext& c) {
            const Convolution convolution = forwardOf(c.op);
            const auto x = c.in<T>(0), w = c.in<T>(1);
            const auto y = c.out<T>(0);
            const std::int64_t plane = product(convolution.y, 2, 4), channels = convolution.y[1];
            if (c.operands.size() > 2 && c.operands[2])
              for (std::int64_t i = 0; i < elementsOf(convolution.y); ++i) y[i] = c.in<T>(2)[i / plane % channels];
            convolution.forEachProduct(
                [&](std::int64_t atY, std::int64_t atX, std::int64_t atW) { y[atY] += x[atX] * w[atW]; });
            if (convolution.relu)
              for (T& value : y) value = std::max(value, T(0));
          }),
          .examples = examples(),
          .takesLow = true,
      },
      inputGradientDef(),
      addedInputGradientDef(),
      {
          .name = "conv2d_weight_gradient",
          .summary = "Gradients of conv2d for W and, if asked for, B",
          .operands = {{"X"}, {"dY"}},
          .results = {{"dW"}, {.name = "dB", .optional = true}},
          .attributes = attributes({integers("filter_shape", std::nullopt, "the shape of W")}),
          .infer =
              [](const InferContext& c) { return inferGradient(c, "conv2d_weight_gradient", "filter_shape", false); },
          .precision = PrecisionClass::preferLow,
          .cost =
              [](const Operation& op) {
                return Cost{weightGradientOf(op).flops(), bytesMoved(op)};
              },
          .kernel = [](const Operation& op) { return weightGradientOf(op).kernel("weightGradient", op.result(1)); },
          .alternatives = [](const Operation& op,
                             Target t) { return weightGradientOf(op).alternatives("weightGradient", t); },
          .channelBlocks =
              [](const Operation& op) {
                return ChannelBlocks{.values = {op.operand(0), op.operand(1)}, .apart = true, .last = inOneGroup(op)};
              },
          .filterBlocks = [](const Operation& op) { return filterOf(op, op.result(0)); },
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
                               "strides = [2, 2]} : f32[2, 1, 3, 3], _")},
          .takesLow = true,
      },
  };
}
