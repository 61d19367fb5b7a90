// Sum, mean, maximum, minimum and product over axes, of floats and of integers. Kernel: pdcrt::Reduce. ONNX's other
// reductions are made of these.
#include "Convert/Indices.h"
#include "Convert/Onnx.h"
#include "Kernels/KernelOptions.h"
#include "Raise/RaiseLength.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace pdc::ops::Reduce {

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

Types infer(const InferContext& c, const char* op, Reduction kind) {
  const std::vector<std::int64_t>& axes = integersOf(c, "axes");
  const Type& x = c.operand(0);
  if (x.element == ElementType::boolean || (kind == Reduction::mean && !isFloat(x.element)))
    return c.error() << "'" << op << "' op needs " << (kind == Reduction::mean ? "floats" : "numbers")
                     << ", operand 0 is " << toString(x);
  if (kind == Reduction::mean && x.elements() == 0)
    return c.error() << "'" << op << "' op has an operand without elements, " << toString(x);
  if (!requireRank(c, op, 0) || !requireAxes(c, op, axes, x.rank())) return failure;
  return std::vector<Type>{
      {c.operand(0).element, reducedShape(c.operand(0).shape, axes, c.attributes.get<bool>("keep_dims"))}};
}

/// The reduced tensor `y` back in the shape of X. Maxima are shared out among equal elements; the derivative of a
/// product is the product of the others: the product over the element, or where the element is the only 0, the product
/// of what is not 0.
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
    if (kind == Reduction::product) return {ofProduct(withAxes(dy))};
    Value* best = withAxes(g.op().result(0));
    Value* isBest =
        isF32() ? scalar({x, best}, "select(a0 == a1, 1, 0)") : scalar({x, best, one()}, "select(a0 == a1, a2, 0)");
    return {scalar({withAxes(dy), isBest, along("reduce_sum", isBest)}, "select(a1 == 0, 0, a0 / a2)")};
  }

private:
  Value* ofProduct(Value* dy) {
    Value* isZero = isF32() ? scalar({x}, "select(a0 == 0, 1, 0)") : scalar({x, one()}, "select(a0 == 0, a1, 0)");
    Value* zeros = along("reduce_sum", isZero);
    Value* others = along("reduce_prod", scalar({x}, "select(a0 == 0, 1, a0)"));
    return scalar({dy, x, withAxes(g.op().result(0)), zeros, others},
                  "select(a1 == 0, select(a3 == 1, a0 * a4, 0), select(a3 == 0, a0 * a2 / a1, 0))");
  }
  Value* along(const char* op, Value* value) { return g.value(0, op, {value}, {{"axes", axes}, {"keep_dims", true}}); }
  Value* scalar(std::vector<Value*> operands, std::string expression) {
    return g.value(0, "elementwise", std::move(operands), {{"expressions", std::vector{std::move(expression)}}});
  }
  bool isF32() const { return x->type().element == ElementType::f32; }
  /// Numbers in an expression are f32, unless they meet another type.
  Value* one() { return g.value(0, "constant", {}, {{"value", Tensor::scalar(1, x->type().element)}}); }
  Value* withAxes(Value* y) {
    const Shape shape = reducedShape(x->type().shape, axes, true);
    return y->type().shape == shape ? y : g.value(0, "reshape", {y}, {{"shape", shape}});
  }

  GradientContext& g;
  Reduction kind;
  Value* x;
  std::vector<std::int64_t> axes;
};

/// The start of a fold over elements of type `element`: what changes nothing.
double neutralOf(Reduction kind, ElementType element) {
  if (kind == Reduction::sum || kind == Reduction::mean) return 0;
  if (kind == Reduction::product) return 1;
  const double largest = std::numeric_limits<double>::infinity(); // integers take the nearest that they have
  Tensor bound(Type{element, {}});
  bound.set(0, kind == Reduction::max ? -largest : largest);
  return bound.asDouble(0);
}

double combine(Reduction kind, double result, double value) {
  switch (kind) {
  case Reduction::sum:
  case Reduction::mean: return result + value;
  case Reduction::product: return result * value;
  case Reduction::max: return value != value || value > result ? value : result;
  case Reduction::min: return value != value || value < result ? value : result;
  }
  return result;
}

/// Floats are combined in f64, as by the kernel; integers in 64 bits, from which the low ones are kept.
Tensor reduced(const Tensor& x, const std::vector<std::int64_t>& axes, bool keepDims, Reduction kind) {
  Tensor y(Type{x.type().element, reducedShape(x.shape(), axes, keepDims)});
  const auto count = static_cast<std::size_t>(y.elements());
  if (isFloat(x.type().element)) {
    std::vector<double> results(count, neutralOf(kind, x.type().element));
    forEachReduced(x.shape(), axes, [&](std::int64_t from, std::int64_t to) {
      double& result = results[static_cast<std::size_t>(to)];
      result = combine(kind, result, x.asDouble(from));
    });
    const double divisor = kind == Reduction::mean ? static_cast<double>(reducedElements(x.shape(), axes)) : 1;
    for (std::size_t i = 0; i < count; ++i) y.set(static_cast<std::int64_t>(i), results[i] / divisor);
    return y;
  }
  const ElementType element = x.type().element;
  Tensor start(Type{element, {}});
  start.set(0, neutralOf(kind, element));
  std::vector<std::int64_t> results(count, start.asInt(0));
  forEachReduced(x.shape(), axes, [&](std::int64_t from, std::int64_t to) {
    std::int64_t& result = results[static_cast<std::size_t>(to)];
    const std::int64_t value = x.asInt(from);
    if (kind == Reduction::sum)
      result = static_cast<std::int64_t>(static_cast<std::uint64_t>(result) + static_cast<std::uint64_t>(value));
    else if (kind == Reduction::product)
      result = static_cast<std::int64_t>(static_cast<std::uint64_t>(result) * static_cast<std::uint64_t>(value));
    else if (kind == Reduction::max ? isLess(element, result, value) : isLess(element, value, result))
      result = value;
  });
  return Tensor::ofInts(y.shape(), results, element);
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

/// Constants without elements are reduced at once; the mean of nothing is not a number.
Value* reduce(OnnxReader& n, const std::string& op, Reduction kind, Value* x, const std::vector<std::int64_t>& axes,
              bool keepDims) {
  if (!x) return nullptr;
  const std::optional<Tensor> constant = Builder::constantValue(x);
  const bool booleans = x->type().element == ElementType::boolean;
  if (constant && constant->elements() == 0) {
    const Tensor y = reduced(booleans ? constant->convertedTo(ElementType::u8) : *constant, axes, keepDims, kind);
    if (!booleans) return n.b.constant(y);
    Tensor truth(Type{ElementType::boolean, y.shape()});
    for (std::int64_t i = 0; i < y.elements(); ++i) truth.set(i, y.asInt(i) != 0);
    return n.b.constant(truth);
  }
  if (!booleans) return n.value(op, {x}, {{"axes", axes}, {"keep_dims", keepDims}});
  // Whether all or any are true, since opset 20.
  Value* y = reduce(n, op, kind, n.value("cast", {x}, {{"to", std::string("u8")}}), axes, keepDims);
  return y ? n.value("not_equal", {y, n.b.constant(0, ElementType::u8)}) : nullptr;
}

/// `before` and `after` are elementwise ops around the reduction, "" for none; "square" is a product with itself,
/// "length" a square root whose gradient at 0 is 0, as that of PyTorch's norms.
OnnxMapping onnxReduce(const std::string& opType, const std::string& op, Reduction kind, const std::string& before = "",
                       const std::string& after = "") {
  return onnx(opType, 1, [=](OnnxReader& n) -> Value* {
    const auto axes = readAxes(n, opType == "ReduceSum" ? 13 : 18);
    const bool keepDims = n.integer("keepdims", 1) != 0;
    if (!axes) return nullptr;
    Value* x = n.input(0);
    if (before == "square")
      x = n.value("mul", {x, x});
    else if (!before.empty())
      x = n.value(before, {x});
    Value* y = reduce(n, op, kind, x, *axes, keepDims);
    if (!y || after.empty()) return y;
    return after == "length" ? compute(n, {y}, lengthOf("sqrt(a0)")) : n.value(after, {y});
  });
}

/// log(sum(exp(x))), with the maximum taken out so that nothing overflows; a large number, where it is infinite. It has
/// no gradient: what is taken out is added again.
Value* convertLogSumExp(OnnxReader& n) {
  const auto axes = readAxes(n, 18);
  const bool keepDims = n.integer("keepdims", 1) != 0;
  if (!axes) return nullptr;
  const auto chain = [&](const char* op, std::vector<Value*> operands) {
    return std::find(operands.begin(), operands.end(), nullptr) == operands.end() ? n.value(op, operands) : nullptr;
  };
  if (n.type(0).elements() == 0) { // log(0)
    Value* sum = reduce(n, "reduce_sum", Reduction::sum, n.input(0), *axes, keepDims);
    return chain("log", {sum});
  }
  Value* largest = n.value("reduce_max", {n.input(0)}, {{"axes", *axes}, {"keep_dims", true}});
  largest = largest ? compute(n, {largest}, "select(abs(a0) == inf, sign(a0) * 3e38, a0)") : nullptr;
  largest = chain("detach", {largest});
  Value* powers = chain("exp", {chain("sub", {n.input(0), largest})});
  Value* sum = powers ? n.value("reduce_sum", {powers}, {{"axes", *axes}, {"keep_dims", true}}) : nullptr;
  Value* y = chain("add", {chain("log", {sum}), largest});
  return n.reshape(y, reducedShape(n.type(0).shape, *axes, keepDims));
}

std::vector<std::string> examples(const std::string& op, Reduction kind) {
  constexpr const char* cases[][3] = {{"[2, 3]", "axes = [1]", "[2]"},
                                      {"[2, 3, 4]", "axes = [0, 2], keep_dims = true", "[1, 3, 1]"},
                                      {"[5]", "axes = [0]", "[]"},
                                      {"[2, 3, 2, 2]", "axes = [2, 3], keep_dims = true", "[2, 3, 1, 1]"},
                                      {"[3, 2]", "axes = [0], keep_dims = true", "[1, 2]"},
                                      {"[2, 2]", "axes = []", "[2, 2]"}};
  std::vector<std::string> texts;
  for (const auto& [x, options, y] : cases)
    texts.push_back(example("%x: f32" + std::string(x), "%y = " + op + " %x {" + std::string(options) + "} : f32" + y));
  if (kind != Reduction::mean)
    for (const std::string element : {"i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8"})
      texts.push_back(example("%x: " + element + "[2, 3]", "%y = " + op + " %x {axes = [1]} : " + element + "[2]"));
  return texts;
}

/// Over whole planes: what is left is in the order of the channels in either layout.
ChannelBlocks wholePlanes(const Operation& op) {
  const std::vector<std::int64_t>& axes = op.attributes.getInts("axes");
  const auto reduced = [&](std::int64_t axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
  if (operandType(op, 0).rank() != 4 || reduced(1) || !reduced(2) || !reduced(3)) return {};
  return {.values = {op.operand(0)}};
}

/// Axes that are left are free. Products of parts cannot be combined.
Loops reduceLoops(const Operation& op, Reduction kind) {
  Loops loops(op);
  const Shape& x = operandType(op, 0).shape;
  const std::vector<std::int64_t>& axes = op.attributes.getInts("axes");
  const bool keepDims = op.attributes.get<bool>("keep_dims");
  const Combine combine = kind == Reduction::mean  ? Combine::mean
                          : kind == Reduction::max ? Combine::max
                          : kind == Reduction::min ? Combine::min
                                                   : Combine::sum;
  for (int axis = 0, left = 0; axis < static_cast<int>(x.size()); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    if (!isReduced(axes, i))
      addIndex(loops, op, {.size = x[i], .operands = {{0, axis}}, .results = {{0, left}}});
    else if (kind != Reduction::product)
      addIndex(loops, op, {.size = x[i], .operands = {{0, axis}}, .results = {}, .reduced = {0}, .combine = combine});
    left += keepDims || !isReduced(axes, i);
  }
  return loops;
}

OpDef reduction(const std::string& name, std::string summary, Reduction kind, std::vector<OnnxMapping> onnx) {
  return {.name = name,
          .summary = std::move(summary),
          .onnx = std::move(onnx),
          .operands = {{"X"}},
          .results = {{"Y"}},
          .attributes = {integers("axes", std::nullopt, "what is reduced, ascending"),
                         boolean("keep_dims", false, "whether reduced axes stay, with size 1")},
          .infer = [name, kind](const InferContext& c) { return infer(c, name.c_str(), kind); },
          .precision = PrecisionClass::keepHigh,
          .cost = perElement(1),
          .gradient = [kind](GradientContext& g) { return Gradient(g, kind).run(); },
          .kernel = {.use =
                         [kind](const Operation& op) {
                           return kernelUse<pdcrt::Reduce>("Reduce", "forward",
                                                           {.input = toRuntime(memoryShape(operandType(op, 0))),
                                                            .axes = axesOf(op.attributes.getInts("axes")),
                                                            .kind = kind});
                         },
                     .channelBlocks = wholePlanes},
          .split = {.loops = [kind](const Operation& op) { return reduceLoops(op, kind); }},
          .reference = moving([kind](ReferenceContext& c) {
            const Attributes& a = c.op.attributes;
            *c.results[0] = reduced(*c.operands[0], a.getInts("axes"), a.get<bool>("keep_dims"), kind);
          }),
          .examples = examples(name, kind),
          .facts = {.takesDouble = true, .takesLow = true}};
}

OpDef withLengths(OpDef sum) {
  sum.rewrites.raise = raiseLength;
  return sum;
}

} // namespace

std::vector<OpDef> define() {
  return {
      withLengths(reduction("reduce_sum", "Sum over axes", Reduction::sum,
                            {onnxReduce("ReduceSum", "reduce_sum", Reduction::sum),
                             onnxReduce("ReduceL1", "reduce_sum", Reduction::sum, "abs"),
                             onnxReduce("ReduceL2", "reduce_sum", Reduction::sum, "square", "length"),
                             onnxReduce("ReduceSumSquare", "reduce_sum", Reduction::sum, "square"),
                             onnxReduce("ReduceLogSum", "reduce_sum", Reduction::sum, "", "log"),
                             onnx("ReduceLogSumExp", 1, convertLogSumExp)})),
      reduction("reduce_mean", "Mean over axes", Reduction::mean,
                {onnxReduce("ReduceMean", "reduce_mean", Reduction::mean)}),
      reduction("reduce_max", "Maximum over axes; its gradient is shared by equal elements", Reduction::max,
                {onnxReduce("ReduceMax", "reduce_max", Reduction::max)}),
      reduction("reduce_min", "Minimum over axes; its gradient is shared by equal elements", Reduction::min,
                {onnxReduce("ReduceMin", "reduce_min", Reduction::min)}),
      reduction("reduce_prod", "Product over axes", Reduction::product,
                {onnxReduce("ReduceProd", "reduce_prod", Reduction::product)}),
  };
}

} // namespace pdc::ops::Reduce
