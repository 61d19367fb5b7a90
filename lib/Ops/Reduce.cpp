// Sum, mean, maximum and minimum over axes. Kernel: pdcrt::Reduce. ONNX's other reductions are made of these.
#include "Helpers/Define.h"
#include "Helpers/KernelOptions.h"
#include "Helpers/Onnx.h"

#include <algorithm>
#include <limits>
#include <numeric>

using namespace pdc;
using namespace pdc::ops;

namespace {

using pdcrt::Reduction;

bool isReduced(const std::vector<std::int64_t>& axes, std::size_t axis) {
  return std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(axis)) != axes.end();
}

/// `shape` with 1 for each of `axes`, or without them.
Shape reducedShape(const Shape& shape, const std::vector<std::int64_t>& axes, bool keepDims) {
  Shape result;
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    if (!isReduced(axes, axis))
      result.push_back(shape[axis]);
    else if (keepDims)
      result.push_back(1);
  return result;
}

/// Calls visit(position in x, position in the result) for all elements of x.
template <class Visit>
void forEachReduced(const Shape& x, const std::vector<std::int64_t>& axes, Visit visit) {
  const std::vector<std::int64_t> inside = stridesOf(reducedShape(x, axes, true));
  std::vector<std::int64_t> strides = inside;
  for (std::int64_t axis : axes) strides[static_cast<std::size_t>(axis)] = 0;
  forEachIndex(x, [&, at = std::int64_t{0}](const std::vector<std::int64_t>& index) mutable {
    visit(at++, dot(index, strides));
  });
}

std::int64_t reducedElements(const Shape& x, const std::vector<std::int64_t>& axes) {
  std::int64_t count = 1;
  for (std::int64_t axis : axes) count *= x[static_cast<std::size_t>(axis)];
  return count;
}

Types infer(const InferContext& c, const char* op) {
  const std::vector<std::int64_t>& axes = integersOf(c, "axes");
  if (!requireFloat(c, op, 0) || !requireAxes(c, op, axes, c.operand(0).rank())) return failure;
  return std::vector<Type>{
      {c.operand(0).element, reducedShape(c.operand(0).shape, axes, c.attributes.get<bool>("keep_dims"))}};
}

/// The reduced tensor `y` back in the shape of X. Maxima are shared out among equal elements.
class Gradient {
public:
  Gradient(GradientContext& context, Reduction reduction)
      : g(context), kind(reduction), x(g.op().operand(0)), axes(g.op().attributes.getInts("axes")) {}

  std::vector<Value*> run() {
    Value* dy = g.resultGradient(0);
    if (!dy) return {nullptr};
    const Shape& shape = x->type().shape;
    if (kind == Reduction::mean) dy = scalar({dy}, "a0 / " + std::to_string(reducedElements(shape, axes)));
    if (kind == Reduction::sum || kind == Reduction::mean)
      return {g.value(0, "broadcast", {withAxes(dy)}, {{"shape", shape}})};
    Value* isBest = scalar({x, withAxes(g.op().result(0))}, "select(a0 == a1, 1, 0)");
    Value* count = g.value(0, "reduce_sum", {isBest}, {{"axes", axes}, {"keep_dims", true}});
    return {scalar({withAxes(dy), isBest, count}, "a0 * a1 / a2")};
  }

private:
  Value* scalar(std::vector<Value*> operands, std::string expression) {
    return g.value(0, "elementwise", std::move(operands), {{"expressions", std::vector{std::move(expression)}}});
  }
  Value* withAxes(Value* y) {
    const Shape shape = reducedShape(x->type().shape, axes, true);
    return y->type().shape == shape ? y : g.value(0, "reshape", {y}, {{"shape", shape}});
  }

  GradientContext& g;
  Reduction kind;
  Value* x;
  std::vector<std::int64_t> axes;
};

template <class T>
void computeReduction(ReferenceContext& c, Reduction kind) {
  const Shape& shape = operandType(c.op, 0).shape;
  const std::vector<std::int64_t>& axes = c.op.attributes.getInts("axes");
  const auto x = c.in<T>(0);
  const auto y = c.out<T>(0);
  // Sums are in f64, as the kernel's.
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double start = kind == Reduction::max ? -infinity : kind == Reduction::min ? infinity : 0;
  std::vector<double> results(y.size(), start);
  forEachReduced(shape, axes, [&](std::int64_t from, std::int64_t to) {
    double& result = results[static_cast<std::size_t>(to)];
    const double value = x[static_cast<std::size_t>(from)];
    if (kind == Reduction::sum || kind == Reduction::mean)
      result += value;
    else if (value != value || (kind == Reduction::max ? value > result : value < result))
      result = value;
  });
  const double divisor = kind == Reduction::mean ? static_cast<double>(reducedElements(shape, axes)) : 1;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<T>(results[i] / divisor);
}

/// The axes that a node reduces over: an attribute before `moved`, an input since; none means all, or with
/// noop_with_empty_axes none.
std::optional<std::vector<std::int64_t>> readAxes(OnnxReader& n, std::int64_t moved) {
  const int rank = n.type(0).rank();
  const bool noop = n.version() >= moved && n.integer("noop_with_empty_axes", 0) != 0;
  const auto stated = n.movedIntegers("axes", moved, 1);
  if (!stated) return std::nullopt;
  if (!stated->empty() || noop) return n.axes(*stated, rank);
  std::vector<std::int64_t> all(static_cast<std::size_t>(rank));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// A reduction of constants, of any element type: shape arithmetic.
Value* foldConstant(OnnxReader& n, const Tensor& x, const std::vector<std::int64_t>& axes, bool keepDims,
                    const std::string& opType) {
  const Shape shape = reducedShape(x.shape(), axes, keepDims);
  std::vector<std::optional<double>> results(static_cast<std::size_t>(elementsOf(shape)));
  forEachReduced(x.shape(), axes, [&](std::int64_t from, std::int64_t to) {
    std::optional<double>& result = results[static_cast<std::size_t>(to)];
    const double value = x.asDouble(from);
    if (!result)
      result = value;
    else if (opType == "ReduceProd")
      *result *= value;
    else if (opType == "ReduceMax" || opType == "ReduceMin")
      *result = opType == "ReduceMax" ? std::max(*result, value) : std::min(*result, value);
    else
      *result += value;
  });
  Tensor y(Type{x.type().element, shape});
  const double divisor = opType == "ReduceMean" ? static_cast<double>(reducedElements(x.shape(), axes)) : 1;
  for (std::int64_t i = 0; i < y.elements(); ++i)
    y.set(i, results[static_cast<std::size_t>(i)].value_or(opType == "ReduceProd" ? 1 : 0) / divisor);
  return n.b.constant(y);
}

/// `before` and `after` are elementwise ops around the reduction, "" for none; "square" is a product with itself.
OnnxMapping onnxReduce(const char* opType, const char* op, const char* before = "", const char* after = "") {
  return onnx(opType, 1, [=](OnnxReader& n) -> Value* {
    const std::int64_t moved = std::string(opType) == "ReduceSum" ? 13 : 18;
    const auto axes = readAxes(n, moved);
    const bool keepDims = n.integer("keepdims", 1) != 0;
    if (!axes) return nullptr;
    Value* x = n.input(0);
    const bool direct = before == std::string() && after == std::string();
    const std::optional<Tensor> constant = Builder::constantValue(x);
    if (constant && direct) return foldConstant(n, *constant, *axes, keepDims, opType);
    if (op == std::string()) {
      static_cast<void>(n.unsupported() << "is supported for constants only");
      return nullptr;
    }
    if (before == std::string("square"))
      x = n.value("mul", {x, x});
    else if (before != std::string())
      x = n.value(before, {x});
    Value* y = x ? n.value(op, {x}, {{"axes", *axes}, {"keep_dims", keepDims}}) : nullptr;
    return y && after != std::string() ? n.value(after, {y}) : y;
  });
}

/// log(sum(exp(x))), with the maximum taken out so that nothing overflows.
Value* convertLogSumExp(OnnxReader& n) {
  const auto axes = readAxes(n, 18);
  const bool keepDims = n.integer("keepdims", 1) != 0;
  if (!axes) return nullptr;
  const auto chain = [&](const char* op, std::vector<Value*> operands) {
    return std::find(operands.begin(), operands.end(), nullptr) == operands.end() ? n.value(op, operands) : nullptr;
  };
  Value* largest = n.value("reduce_max", {n.input(0)}, {{"axes", *axes}, {"keep_dims", true}});
  Value* powers = chain("exp", {chain("sub", {n.input(0), largest})});
  Value* sum = powers ? n.value("reduce_sum", {powers}, {{"axes", *axes}, {"keep_dims", true}}) : nullptr;
  Value* y = chain("add", {chain("log", {sum}), largest});
  return n.reshape(y, reducedShape(n.type(0).shape, *axes, keepDims));
}

std::vector<std::string> examples(const std::string& op) {
  constexpr const char* cases[][3] = {{"[2, 3]", "axes = [1]", "[2]"},
                                      {"[2, 3, 4]", "axes = [0, 2], keep_dims = true", "[1, 3, 1]"},
                                      {"[5]", "axes = [0]", "[]"},
                                      {"[2, 3, 2, 2]", "axes = [2, 3], keep_dims = true", "[2, 3, 1, 1]"},
                                      {"[3, 2]", "axes = [0], keep_dims = true", "[1, 2]"},
                                      {"[2, 2]", "axes = []", "[2, 2]"}};
  std::vector<std::string> texts;
  for (const auto& [x, options, y] : cases)
    texts.push_back(example("%x: f32" + std::string(x), "%y = " + op + " %x {" + std::string(options) + "} : f32" + y));
  return texts;
}

OpDef reduction(std::string name, std::string summary, Reduction kind, std::vector<OnnxMapping> onnx) {
  return {.name = name,
          .summary = std::move(summary),
          .onnx = std::move(onnx),
          .operands = {{"X"}},
          .results = {{"Y"}},
          .attributes = {integers("axes", std::nullopt, "what is reduced, ascending"),
                         boolean("keep_dims", false, "whether reduced axes stay, with size 1")},
          .infer = [name](const InferContext& c) { return infer(c, name.c_str()); },
          .precision = PrecisionClass::keepHigh,
          .cost = perElement(1),
          .gradient = [kind](GradientContext& g) { return Gradient(g, kind).run(); },
          .kernel =
              [kind](const Operation& op) {
                return kernelUse<pdcrt::Reduce>("Reduce", "forward",
                                                {.input = toRuntime(operandType(op, 0).shape),
                                                 .axes = op.attributes.getInts("axes"),
                                                 .kind = kind});
              },
          .reference = reference([kind]<class T>(ReferenceContext& c) { computeReduction<T>(c, kind); }),
          .examples = examples(name)};
}

} // namespace

PDC_OPS(Reduce) {
  return {
      reduction("reduce_sum", "Sum over axes", Reduction::sum,
                {onnxReduce("ReduceSum", "reduce_sum"), onnxReduce("ReduceL1", "reduce_sum", "abs"),
                 onnxReduce("ReduceL2", "reduce_sum", "square", "sqrt"),
                 onnxReduce("ReduceSumSquare", "reduce_sum", "square"),
                 onnxReduce("ReduceLogSum", "reduce_sum", "", "log"), onnx("ReduceLogSumExp", 1, convertLogSumExp)}),
      reduction("reduce_mean", "Mean over axes", Reduction::mean, {onnxReduce("ReduceMean", "reduce_mean")}),
      reduction("reduce_max", "Maximum over axes; its gradient is shared by equal elements", Reduction::max,
                {onnxReduce("ReduceMax", "reduce_max")}),
      reduction("reduce_min", "Minimum over axes; its gradient is shared by equal elements", Reduction::min,
                {onnxReduce("ReduceMin", "reduce_min")}),
      composed("reduce_prod", "Product of constants over axes", {onnxReduce("ReduceProd", "")}),
  };
}
