// Two-dimensional convolution. Kernel: pdcrt::Conv2d.
#include "Convert/ConvertConv.h"
#include "Raise/MatchExpression.h"
#include "Shared/Convolution.h"
#include "Shared/InitialValues.h"

namespace pdc::ops::Conv2d {

namespace {

Types inferForward(const InferContext& c) {
  const Expected<Shape> y = convolutionShape(c, "conv2d");
  if (!y) return failure;
  return std::vector<Type>{{c.operand(0).element, *y}};
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
                 {{"expressions", std::vector<std::string>{"select(a1 > 0, a0, 0)"}}});
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

/// conv2d, when maxima of windows of 2x2 side by side are all that Y is for: where squares of Winograd's algorithm are
/// whole windows, Y need not be written. (conv2d_max_pool computes others, too, and gains nothing.)
Absorbed absorbPool(Operation& op, Builder& b) {
  const auto& users = op.result()->users();
  Operation* const pool = users.size() == 1 && users.front()->def().name == "max_pool" ? users.front() : nullptr;
  if (!pool || op.attributes.get<bool>("relu") || resultType(op).element != ElementType::f32) return {};
  const pdcrt::Conv2d::Options options = convolutionOf(op).options(false);
  if (!pdcrt::Conv2d::takesWinograd(options) || operandType(op, 1).shape[0] % channelBlock != 0 ||
      operandType(op, 1).shape[1] % channelBlock != 0)
    return {};
  const Window window = windowOf(pool->attributes);
  const Shape &y = resultType(op).shape, &pooled = resultType(*pool).shape;
  constexpr pdcrt::Dims2 two = {2, 2};
  if (!(window.kernelDims() == two && window.stridesDims() == two && window.padsDims() == pdcrt::Pads2{} &&
        window.dilationsDims() == pdcrt::Dims2{1, 1}) ||
      pooled[2] != y[2] / 2 || pooled[3] != y[3] / 2)
    return {};
  Attributes attributes = op.attributes;
  attributes.set("relu", pool->attributes.get<bool>("relu"));
  b.setInsertionPoint(pool);
  Operation* made = b.create("conv2d_max_pool", op.operands(), attributes, {true, pool->result(1) != nullptr});
  if (!made) return {};
  Absorbed absorbed = {.made = made, .gone = {&op, pool}, .replaced = {{pool->result(0), made->result(0)}}};
  if (pool->result(1)) absorbed.replaced.emplace_back(pool->result(1), made->result(1));
  return absorbed;
}

Absorbed absorb(Operation& op, Builder& b) {
  const Absorbed relu = absorbRelu(op, b);
  return relu.made ? relu : absorbPool(op, b);
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
          text("[1, 12, 3, 2]", "[8, 3, 2, 2]", "[8]", " {groups = 4}", "[1, 8, 2, 1]"),
          text("[1, 1, 1, 9]", "[2, 1, 1, 4]", "[2]", " {pads = [0, 2, 0, 1], strides = [1, 3]}", "[1, 2, 1, 3]")};
}

} // namespace

std::vector<OpDef> define() {
  return {
      {
          .name = "conv2d",
          .summary = "Cross-correlation of X [N, C, H, W] with the filter W [O, C / groups, …], plus B per channel",
          .onnx = {onnx("Conv", 2, convertConv)},
          .operands = {{"X"}, {"W"}, {.name = "B", .optional = true}},
          .results = {{"Y"}},
          .attributes = convolutionAttributes({boolean("relu", false, "whether Y is max(Y, 0)")}),
          .infer = inferForward,
          .precision = PrecisionClass::preferLow,
          .cost =
              [](const Operation& op) {
                return Cost{convolutionOf(op).flops(), bytesMoved(op)};
              },
          .gradient = gradient,
          .kernel = {.use = [](const Operation& op) { return convolutionOf(op).kernel("forward", op.operand(2)); },
                     .alternatives = [](const Operation& op,
                                        Target t) { return convolutionOf(op).alternatives("forward", t); },
                     .channelBlocks = blocksBesideFilter,
                     .filterBlocks = [](const Operation& op) { return filterInBlocksOf(op, op.operand(1)); }},
          .rewrites = {.absorb = absorb},
          .split = {.loops =
                        [](const Operation& op) {
                          return loopsOfConvolution(op, /*mayDivideInputs=*/!op.attributes.get<bool>("relu"));
                        },
                    .divide = divideConvolution},
          .usage = {.initialValues = asLayer(fanInOfConvolution)},
          .reference = reference([]<class T>(ReferenceContext& c) {
            const Convolution convolution = convolutionOf(c.op);
            const auto y = c.out<T>(0);
            convolution.compute<T>(c, y);
            if (convolution.relu)
              for (T& value : y) value = std::max(value, T(0));
          }),
          .examples = examples(),
          .facts = {.takesLow = true},
      },
  };
}

} // namespace pdc::ops::Conv2d
