// Maximum and average over windows of a plane, and their gradients. Kernels: pdcrt::MaxPool2d, pdcrt::AveragePool2d.
// Pooling over whole planes is a reduction.
#include "Convert/ConvertPool.h"
#include "Kernels/KernelOptions.h"
#include "Raise/Match.h"
#include "Shared/LoopsOf.h"
#include "Shared/Window.h"

#include <algorithm>
#include <limits>

namespace pdc::ops::Pooling {

namespace {

/// Sizes of a pooling; x is [n, c, h, w] and y [n, c, p, q].
struct Pooling {
  Shape x, y;
  Window window;

  Pooling(const Operation& op, Shape xShape, Shape yShape)
      : x(std::move(xShape)), y(std::move(yShape)), window(windowOf(op.attributes)) {}

  double taps() const {
    return static_cast<double>(elementsOf(y)) * static_cast<double>(window.kernel[0] * window.kernel[1]);
  }
  /// Calls visit(position in y, position of the plane in x, position in the plane, whether inside the plane, inside the
  /// padded plane) for every tap.
  template <class Visit>
  void forEachTap(Visit visit) const {
    forEachIndex(y, [&, at = std::int64_t{0}](const std::vector<std::int64_t>& i) mutable {
      const std::int64_t plane = (i[0] * x[1] + i[1]) * x[2] * x[3];
      for (std::int64_t r = 0; r < window.kernel[0]; ++r)
        for (std::int64_t s = 0; s < window.kernel[1]; ++s) {
          const std::int64_t row = i[2] * window.strides[0] - window.before[0] + r * window.dilations[0];
          const std::int64_t column = i[3] * window.strides[1] - window.before[1] + s * window.dilations[1];
          const bool inside = row >= 0 && row < x[2] && column >= 0 && column < x[3];
          const bool padded = row < x[2] + window.after[0] && column < x[3] + window.after[1];
          visit(at, plane, row * x[3] + column, inside, padded);
        }
      ++at;
    });
  }
};

Pooling forwardOf(const Operation& op) {
  return {op, operandType(op, 0).shape, resultType(op).shape};
}
Pooling backwardOf(const Operation& op) {
  return {op, resultType(op).shape, operandType(op, 0).shape};
}

/// Planes, of which each is pooled for itself.
OpSplit planesApart(std::vector<std::size_t> operands, std::vector<std::size_t> results) {
  return {.loops = alongAxes({.begin = 0, .end = 2, .operands = std::move(operands), .results = std::move(results)})};
}

std::vector<AttributeDef> attributes(bool dilations, std::vector<AttributeDef> more = {}) {
  std::vector<AttributeDef> defs = windowAttributes(/*kernel=*/true, dilations);
  defs.push_back(boolean("ceil_mode", false, "whether a rest at the end gets a window of its own"));
  defs.insert(defs.end(), more.begin(), more.end());
  return defs;
}

/// Of max_pool and its gradient.
std::vector<AttributeDef> maxAttributes(std::vector<AttributeDef> more = {}) {
  more.push_back(boolean("relu", false, "whether values below 0 count as 0, which is nowhere: the index is -1"));
  return attributes(/*dilations=*/true, std::move(more));
}

AttributeDef inputShape() {
  return shapeOf(0, integers("input_shape", std::nullopt, "the shape of X"));
}
AttributeDef countIncludePad() {
  return boolean("count_include_pad", false, "whether padding counts in the divisor of the mean");
}

/// The shape of y for x.
Expected<Shape> outputShape(const InferContext& c, const char* op, const Shape& x) {
  if (!checkWindowAttributes(c, op)) return failure;
  const Window window = windowOf(c.attributes);
  if (!checkWindow(c, op, window, x[2], x[3])) return failure;
  for (int axis = 0; axis < 2; ++axis)
    if (std::max(window.before[axis], window.after[axis]) >= window.extent(axis))
      return c.error() << "'" << op << "' op has " << std::max(window.before[axis], window.after[axis])
                       << " padding and windows of " << window.extent(axis) << ", which would lie in it";
  const bool roundUp = c.attributes.get<bool>("ceil_mode");
  return Shape{x[0], x[1], window.count(0, x[2], roundUp), window.count(1, x[3], roundUp)};
}

Types inferForward(const InferContext& c, const char* op, bool index) {
  if (!requireFloat(c, op, 0, 4, 4)) return failure;
  const Type& x = c.operand(0);
  const Expected<Shape> y = outputShape(c, op, x.shape);
  if (!y) return failure;
  std::vector<Type> types{{x.element, *y}};
  if (index) types.push_back({ElementType::i32, *y});
  return types;
}

Types inferGradient(const InferContext& c, const char* op, bool index) {
  if (!requireFloat(c, op, 0, 4, 4)) return failure;
  const Shape& x = integersOf(c, "input_shape");
  if (x.size() != 4 || std::any_of(x.begin(), x.end(), [](std::int64_t dim) { return dim < 1; }))
    return c.error() << "'" << op << "' op has input_shape " << toString(x) << ", it needs four positive sizes";
  const Expected<Shape> y = outputShape(c, op, x);
  if (!y || !requireType(c, op, 0, {c.operand(0).element, *y}, "input_shape") ||
      (index && !requireType(c, op, 1, {ElementType::i32, *y}, "input_shape")))
    return failure;
  return std::vector<Type>{{c.operand(0).element, x}};
}

Attributes withInputShape(const Operation& op) {
  Attributes attributes = op.attributes;
  attributes.set("input_shape", operandType(op, 0).shape);
  return attributes;
}

KernelUse maxKernel(const Operation& op, const Pooling& p, const char* method) {
  return kernelUse<pdcrt::MaxPool2d>("MaxPool2d", method,
                                     {.input = toRuntime(p.x),
                                      .output = toRuntime(p.y),
                                      .kernel = p.window.kernelDims(),
                                      .strides = p.window.stridesDims(),
                                      .pads = p.window.padsDims(),
                                      .dilations = p.window.dilationsDims(),
                                      .relu = op.attributes.get<bool>("relu"),
                                      .lanes = lanesOf(op)});
}

/// max_pool of a ReLU that nothing else reads: the index knows where a maximum is above 0, so that neither the ReLU nor
/// its gradient is a pass, and what is pooled waits for no gradient.
Value* withRelu(Operation& op, Builder& b) {
  const Operation* relu = definedBy(op.operand(0), "relu");
  if (!relu || op.operand(0)->users().size() != 1 || b.graph().isOutput(op.operand(0)) ||
      (op.result(1) && !op.result(1)->users().empty()))
    return nullptr;
  Attributes attributes = op.attributes;
  attributes.set("relu", true);
  return b.value(op.def().name, {relu->operand(0)}, std::move(attributes));
}

KernelUse averageKernel(const Operation& op, const Pooling& p, const char* method) {
  return kernelUse<pdcrt::AveragePool2d>("AveragePool2d", method,
                                         {.input = toRuntime(p.x),
                                          .output = toRuntime(p.y),
                                          .kernel = p.window.kernelDims(),
                                          .strides = p.window.stridesDims(),
                                          .pads = p.window.padsDims(),
                                          .countIncludePad = op.attributes.get<bool>("count_include_pad"),
                                          .lanes = lanesOf(op)});
}

/// How many taps of each window count in its mean.
std::vector<std::int64_t> divisors(const Pooling& p, bool countPadding) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(elementsOf(p.y)), 0);
  p.forEachTap([&](std::int64_t atY, std::int64_t, std::int64_t, bool inside, bool padded) {
    counts[static_cast<std::size_t>(atY)] += countPadding ? padded : inside;
  });
  return counts;
}

/// What the examples of both poolings have in common; attributes that are left out have their defaults.
struct Geometry {
  const char *ceilMode, *rest, *x, *y;
};
constexpr Geometry geometries[] = {
    {"", "kernel = [2, 2], strides = [2, 2]", "[2, 3, 4, 4]", "[2, 3, 2, 2]"},
    {"", "kernel = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]", "[1, 2, 5, 6]", "[1, 2, 3, 3]"},
    {"ceil_mode = true, ", "kernel = [3, 2], strides = [2, 2]", "[1, 1, 6, 5]", "[1, 1, 3, 3]"},
    {"", "kernel = [1, 3], pads = [0, 1, 0, 0]", "[2, 1, 1, 5]", "[2, 1, 1, 4]"},
    {"ceil_mode = true, ", "kernel = [2, 2], pads = [1, 0, 1, 1], strides = [3, 2]", "[1, 2, 4, 4]", "[1, 2, 2, 2]"}};

std::vector<std::string> maxExamples() {
  std::vector<std::string> texts;
  for (const auto& [ceilMode, rest, x, y] : geometries)
    texts.push_back(example("%x: f32" + std::string(x),
                            "%y, %index = max_pool %x {" + std::string(ceilMode) + rest + "} : f32" + y + ", i32" + y));
  texts.push_back(example("%x: f32[2, 3, 4, 4]",
                          "%y, %index = max_pool %x {kernel = [2, 2], relu = true, strides = [2, 2]} "
                          ": f32[2, 3, 2, 2], i32[2, 3, 2, 2]"));
  texts.push_back(
      example("%x: f32[1, 2, 6, 6]", "%y, _ = max_pool %x {dilations = [2, 3], kernel = [2, 2]} : f32[1, 2, 4, 3], _"));
  return texts;
}

std::vector<std::string> averageExamples() {
  std::vector<std::string> texts;
  for (const auto& [ceilMode, rest, x, y] : geometries)
    for (const char* count : {"", "count_include_pad = true, "})
      texts.push_back(example("%x: f32" + std::string(x),
                              "%y = average_pool %x {" + std::string(ceilMode) + count + rest + "} : f32" + y));
  return texts;
}

OpDef maxPoolDef() {
  return {
      .name = "max_pool",
      .summary = "Maximum of each window of X [N, C, H, W], and where in its plane it is",
      .onnx = {onnxMany("MaxPool", 1, convertMaxPool)},
      .operands = {{"X"}},
      .results = {{"Y"}, {.name = "index", .optional = true}},
      .attributes = maxAttributes(),
      .infer = [](const InferContext& c) { return inferForward(c, "max_pool", true); },
      .cost =
          [](const Operation& op) {
            return Cost{forwardOf(op).taps(), bytesMoved(op)};
          },
      .gradient = [](GradientContext& g) -> std::vector<Value*> {
        const Operation& op = g.op();
        if (!g.resultGradient(0)) return {nullptr};
        return {g.value(0, "max_pool_gradient", {g.resultGradient(0), op.result(1)}, withInputShape(op))};
      },
      .kernel = {.use = [](const Operation& op) { return maxKernel(op, forwardOf(op), "forward"); },
                 .channelBlocks = everyPlane},
      .rewrites = {.evaluation = [](const Operation& op, Builder& b) -> std::vector<Value*> {
                     // The index is for the gradient, unless the model asks for it.
                     const auto& users = op.result(1) ? op.result(1)->users() : std::vector<Operation*>{};
                     const bool read = std::any_of(users.begin(), users.end(),
                                                   [](const Operation* user) { return user->phase == Phase::forward; });
                     Operation* pool = b.create(op.def().name, op.operands(), op.attributes, {true, read});
                     return {pool ? pool->result(0) : nullptr, pool && read ? pool->result(1) : nullptr};
                   },
                   .canonicalize = withRelu},
      .split = planesApart({0}, {0, 1}),
      .reference = reference([]<class T>(ReferenceContext& c) {
        const auto x = c.in<T>(0);
        const auto y = c.out<T>(0);
        const bool relu = c.op.attributes.get<bool>("relu"); // where y is 0 already
        std::vector<bool> seen(y.size(), relu);
        if (relu && c.results[1]) std::ranges::fill(c.out<std::int32_t>(1), -1);
        forwardOf(c.op).forEachTap([&](std::int64_t atY, std::int64_t plane, std::int64_t atX, bool inside, bool) {
          const auto at = static_cast<std::size_t>(atY);
          const T value = inside ? x[plane + atX] : T(0);
          // NaN before everything; of equal values the first.
          const bool larger = !seen[at] || value > y[at] || (value != value && y[at] == y[at]);
          if (!inside || !larger) return;
          seen[at] = true;
          y[at] = value;
          if (c.results[1]) c.out<std::int32_t>(1)[at] = static_cast<std::int32_t>(atX);
        });
      }),
      .examples = maxExamples(),
  };
}

OpDef maxPoolGradientDef() {
  return {
      .name = "max_pool_gradient",
      .summary = "Gradient of max_pool: adds dY where the maxima were",
      .operands = {{"dY"}, {"index"}},
      .results = {{"dX"}},
      .attributes = maxAttributes({inputShape()}),
      .infer = [](const InferContext& c) { return inferGradient(c, "max_pool_gradient", true); },
      .cost = perElement(1),
      .kernel = {.use = [](const Operation& op) { return maxKernel(op, backwardOf(op), "inputGradient"); },
                 .channelBlocks = everyPlane},
      .split = planesApart({0, 1}, {0}),
      .reference = reference([]<class T>(ReferenceContext& c) {
        const Pooling p = backwardOf(c.op);
        const auto dy = c.in<T>(0);
        const auto index = c.in<std::int32_t>(1);
        const auto dx = c.out<T>(0);
        const std::int64_t from = product(p.y, 2, 4), to = product(p.x, 2, 4);
        for (std::int64_t i = 0; i < elementsOf(p.y); ++i)
          if (index[i] >= 0 && index[i] < to) dx[i / from * to + index[i]] += dy[i];
      }),
      .examples = {example("%dy: f32[1, 2, 2, 2], %index: i32[1, 2, 2, 2]",
                           "%dx = max_pool_gradient %dy, %index {input_shape = [1, 2, 4, 4], kernel = [2, 2], "
                           "strides = [2, 2]} : f32[1, 2, 4, 4]"),
                   example("%dy: f32[2, 3, 2, 1], %index: i32[2, 3, 2, 1]",
                           "%dx = max_pool_gradient %dy, %index {input_shape = [2, 3, 2, 2], kernel = [1, 2], relu = "
                           "true} : f32[2, 3, 2, 2]")},
  };
}

OpDef averagePoolDef() {
  return {
      .name = "average_pool",
      .summary = "Mean of each window of X [N, C, H, W]",
      .onnx = {onnx("AveragePool", 1, convertAveragePool)},
      .operands = {{"X"}},
      .results = {{"Y"}},
      .attributes = attributes(/*dilations=*/false, {countIncludePad()}),
      .infer = [](const InferContext& c) { return inferForward(c, "average_pool", false); },
      .cost =
          [](const Operation& op) {
            return Cost{forwardOf(op).taps(), bytesMoved(op)};
          },
      .gradient = [](GradientContext& g) -> std::vector<Value*> {
        if (!g.resultGradient(0)) return {nullptr};
        return {g.value(0, "average_pool_gradient", {g.resultGradient(0)}, withInputShape(g.op()))};
      },
      .kernel = {.use = [](const Operation& op) { return averageKernel(op, forwardOf(op), "forward"); },
                 .channelBlocks = everyPlane},
      .split = planesApart({0}, {0}),
      .reference = reference([]<class T>(ReferenceContext& c) {
        const Pooling p = forwardOf(c.op);
        const auto x = c.in<T>(0);
        const auto y = c.out<T>(0);
        p.forEachTap([&](std::int64_t atY, std::int64_t plane, std::int64_t atX, bool inside, bool) {
          y[atY] += inside ? x[plane + atX] : T(0);
        });
        const auto counts = divisors(p, c.op.attributes.get<bool>("count_include_pad"));
        for (std::size_t i = 0; i < y.size(); ++i) y[i] /= static_cast<T>(counts[i]);
      }),
      .examples = averageExamples(),
  };
}

OpDef averagePoolGradientDef() {
  return {
      .name = "average_pool_gradient",
      .summary = "Gradient of average_pool: spreads dY over its window",
      .operands = {{"dY"}},
      .results = {{"dX"}},
      .attributes = attributes(/*dilations=*/false, {countIncludePad(), inputShape()}),
      .infer = [](const InferContext& c) { return inferGradient(c, "average_pool_gradient", false); },
      .cost =
          [](const Operation& op) {
            return Cost{backwardOf(op).taps(), bytesMoved(op)};
          },
      .kernel = {.use = [](const Operation& op) { return averageKernel(op, backwardOf(op), "inputGradient"); },
                 .channelBlocks = everyPlane},
      .split = planesApart({0}, {0}),
      .reference = reference([]<class T>(ReferenceContext& c) {
        const Pooling p = backwardOf(c.op);
        const auto dy = c.in<T>(0);
        const auto dx = c.out<T>(0);
        const auto counts = divisors(p, c.op.attributes.get<bool>("count_include_pad"));
        p.forEachTap([&](std::int64_t atY, std::int64_t plane, std::int64_t atX, bool inside, bool) {
          if (inside) dx[plane + atX] += dy[atY] / static_cast<T>(counts[static_cast<std::size_t>(atY)]);
        });
      }),
      .examples = {example("%dy: f32[1, 2, 3, 3]",
                           "%dx = average_pool_gradient %dy {input_shape = [1, 2, 5, 6], kernel = [3, 3], pads = "
                           "[1, 1, 1, 1], strides = [2, 2]} : f32[1, 2, 5, 6]"),
                   example("%dy: f32[2, 3, 1, 2]",
                           "%dx = average_pool_gradient %dy {input_shape = [2, 3, 2, 3], kernel = [2, 2]} : f32[2, 3, "
                           "2, 3]")},
  };
}

} // namespace

std::vector<OpDef> define() {
  return {maxPoolDef(),
          maxPoolGradientDef(),
          averagePoolDef(),
          averagePoolGradientDef(),
          composed("global_average_pool", "Mean over all spatial axes: reduce_mean",
                   {onnx("GlobalAveragePool", 1, convertGlobalAveragePool)}),
          composed("lp_pool", "Norm of each window, of order p: powers, a convolution with ones, and a root",
                   {onnx("LpPool", 1, convertLpPool, 2)}),
          composed("global_lp_pool", "Norm over all spatial axes, of order p: powers, reduce_sum and a root",
                   {onnx("GlobalLpPool", 1, convertGlobalLpPool, 2)}),
          composed("global_max_pool", "Maximum over all spatial axes: max_pool with one window",
                   {onnx("GlobalMaxPool", 1, convertGlobalMaxPool)})};
}

} // namespace pdc::ops::Pooling
