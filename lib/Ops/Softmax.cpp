// Softmax and its logarithm over the last axis, and their gradients. Kernel: pdcrt::Softmax.
#include "Convert/Onnx.h"
#include "Kernels/KernelOptions.h"
#include "Raise/Match.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"
#include "pdc/IR/Elementwise.h"

#include <algorithm>
#include <cmath>

namespace pdc::ops::Softmax {

namespace {

std::int64_t classesOf(const Operation& op) {
  return operandType(op, 0).shape.back();
}
std::int64_t rowsOf(const Operation& op) {
  const Shape& shape = operandType(op, 0).shape;
  return product(shape, 0, shape.size() - 1);
}

KernelUse kernel(const Operation& op, const char* method, bool logarithm) {
  return kernelUse<pdcrt::Softmax>("Softmax", method,
                                   {.rows = rowsOf(op), .classes = classesOf(op), .logarithm = logarithm});
}

Types infer(const InferContext& c, const char* op) {
  if (!requireFloat(c, op, 0, 1)) return failure;
  if (has(c, 1) && !requireType(c, op, 1, c.operand(0), "operand 0")) return failure;
  return std::vector<Type>{c.operand(0)};
}

/// ONNX's axis becomes the last. Before opset 13 all axes from it on are one.
Value* convert(OnnxReader& n, const char* op) {
  Value* x = n.input(0);
  const Shape shape = x->type().shape;
  const std::optional<std::int64_t> stated = n.axis(n.integer("axis", n.version() < 13 ? 1 : -1), x->type().rank());
  if (!stated) return nullptr;
  const auto axis = static_cast<std::size_t>(*stated);
  if (axis + 1 == shape.size()) return n.value(op, {x});
  if (n.version() < 13) {
    x = n.reshape(x, {product(shape, 0, axis), product(shape, axis, shape.size())});
    return n.reshape(n.value(op, {x}), shape);
  }
  std::vector<std::int64_t> swap(shape.size());
  for (std::size_t i = 0; i < swap.size(); ++i) swap[i] = static_cast<std::int64_t>(i);
  std::swap(swap[axis], swap.back());
  Value* y = n.value(op, {n.transpose(x, swap)});
  return y ? n.transpose(y, swap) : nullptr;
}

/// 1 at the first maximum along ONNX's axis, 0 elsewhere. Before opset 13 all axes from it on are one.
Value* convertHardmax(OnnxReader& n) {
  const Shape shape = n.type(0).shape;
  const auto stated = n.axis(n.integer("axis", n.version() < 13 ? 1 : -1), n.type(0).rank());
  if (!stated) return nullptr;
  const auto axis = static_cast<std::size_t>(*stated);
  const bool flat = n.version() < 13;
  const std::int64_t size = flat ? product(shape, axis, shape.size()) : shape[axis];
  Value* x = flat ? n.reshape(n.input(0), {product(shape, 0, axis), size}) : n.input(0);
  const Attributes along{{"axes", std::vector<std::int64_t>{flat ? 1 : *stated}}, {"keep_dims", true}};
  Value* largest = x ? n.value("reduce_max", {x}, along) : nullptr;
  if (!largest) return nullptr;
  Shape broadcasts(flat ? 1 : shape.size() - axis, 1);
  broadcasts[0] = size;
  Tensor numbers(Type{x->type().element, broadcasts});
  for (std::int64_t i = 0; i < size; ++i) numbers.set(i, static_cast<double>(i));
  Value* positions = n.b.constant(numbers);
  const auto scalar = [&](std::vector<Value*> operands, const std::string& expression) {
    return n.value("elementwise", std::move(operands), {{"expressions", std::vector{expression}}});
  };
  Value* candidates = scalar({x, largest, positions}, "select(a0 == a1, a2, " + std::to_string(size) + ")");
  Value* first = candidates ? n.value("reduce_min", {candidates}, along) : nullptr;
  Value* y = first ? scalar({positions, first}, "select(a0 == a1, 1, 0)") : nullptr;
  return n.reshape(y, shape);
}

std::vector<std::string> examples(const std::string& op) {
  std::vector<std::string> texts;
  for (const char* type : {"f32[2, 5]", "f32[4]", "f32[1, 1]", "f32[2, 3, 4]", "f32[7, 2]"})
    texts.push_back(example("%x: " + std::string(type), "%y = " + op + " %x : " + type));
  return texts;
}

std::vector<std::string> gradientExamples(const std::string& op) {
  return {example("%dy: f32[2, 5], %y: f32[2, 5]", "%dx = " + op + " %dy, %y : f32[2, 5]"),
          example("%dy: f32[2, 3, 4], %y: f32[2, 3, 4]", "%dx = " + op + " %dy, %y : f32[2, 3, 4]")};
}

template <class T>
void forward(ReferenceContext& c, bool logarithm) {
  const std::int64_t rows = rowsOf(c.op), classes = classesOf(c.op);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto x = c.in<T>(0).subspan(row * classes, classes);
    const auto y = c.out<T>(0).subspan(row * classes, classes);
    const T largest = *std::max_element(x.begin(), x.end());
    T sum = 0;
    for (T value : x) sum += std::exp(value - largest);
    for (std::int64_t i = 0; i < classes; ++i)
      y[i] = logarithm ? x[i] - largest - std::log(sum) : std::exp(x[i] - largest) / sum;
  }
}

template <class T>
void gradient(ReferenceContext& c, bool logarithm) {
  const std::int64_t rows = rowsOf(c.op), classes = classesOf(c.op);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto dy = c.in<T>(0).subspan(row * classes, classes), y = c.in<T>(1).subspan(row * classes, classes);
    const auto dx = c.out<T>(0).subspan(row * classes, classes);
    T sum = 0;
    for (std::int64_t i = 0; i < classes; ++i) sum += logarithm ? dy[i] : dy[i] * y[i];
    for (std::int64_t i = 0; i < classes; ++i) dx[i] = logarithm ? dy[i] - std::exp(y[i]) * sum : y[i] * (dy[i] - sum);
  }
}

/// x of x - max(x), else `value` itself: a number that is taken off a whole row changes no softmax.
Value* withoutMaximum(Value* value) {
  const Operation* difference = definedBy(value, "sub");
  const Operation* largest = difference ? definedBy(difference->operand(1), "reduce_max") : nullptr;
  const bool ofRow = largest && largest->operand(0) == difference->operand(0) &&
                     largest->attributes.get<bool>("keep_dims") &&
                     largest->attributes.getInts("axes") == std::vector{std::int64_t{value->type().rank() - 1}};
  return ofRow ? difference->operand(0) : value;
}

/// where(isnan(y), 0, y), y a softmax: what exporters make of attention in which a query may see no key. Rows of -inf
/// are put aside before, so that neither they nor their gradients become NaN.
Value* raiseSafeSoftmax(const Operation& choice, Builder& b) {
  const Operation* isNaN = definedBy(choice.operand(0), "elementwise");
  const Operation* softmax = definedBy(choice.operand(2), "softmax");
  if (!isNaN || !softmax || isNaN->operands().size() != 1 || isNaN->operand(0) != softmax->result() ||
      !isNumber(choice.operand(1), 0) || toString(*expressionsOf(*isNaN).front()) != "a0 != a0")
    return nullptr;
  Value* x = softmax->operand(0);
  const std::vector<std::int64_t> last{x->type().rank() - 1};
  Value* largest = b.value("reduce_max", {x}, {{"axes", last}, {"keep_dims", true}});
  const auto seen = [&](Value* value) {
    return b.value("elementwise", {largest, value},
                   {{"expressions", std::vector<std::string>{"select(a0 == -inf, 0, a1)"}}});
  };
  return seen(b.value("softmax", {seen(x)}));
}

/// exp(x) / sum of it over the last axis, with or without the maximum taken off.
Value* raiseSoftmax(Operation& root, Builder& b) {
  if (root.def().name == "where") return raiseSafeSoftmax(root, b);
  if (root.def().name != "div") return nullptr;
  const Operation *power = definedBy(root.operand(0), "exp"), *sum = definedBy(root.operand(1), "reduce_sum");
  const bool normalised =
      power && sum && sum->operand(0) == power->result() && sum->attributes.get<bool>("keep_dims") &&
      sum->attributes.getInts("axes") == std::vector{std::int64_t{power->result()->type().rank() - 1}};
  return normalised ? b.value("softmax", {withoutMaximum(power->operand(0))}) : nullptr;
}

/// The logarithm of a softmax, which is exact also where the softmax is 0.
Value* raiseLogSoftmax(Operation& root, Builder& b) {
  const Operation* softmax = root.def().name == "log" ? definedBy(root.operand(0), "softmax") : nullptr;
  return softmax ? b.value("log_softmax", {softmax->operand(0)}) : nullptr;
}

OpDef forwardOp(const std::string& name, std::string summary, const char* opType, ReferenceFns reference,
                bool logarithm) {
  return {.name = name,
          .summary = std::move(summary),
          .onnx = {onnx(opType, 1, [name](OnnxReader& n) { return convert(n, name.c_str()); })},
          .operands = {{"X"}},
          .results = {{"Y"}},
          .infer = [name](const InferContext& c) { return infer(c, name.c_str()); },
          .precision = PrecisionClass::keepHigh,
          .cost = perElement(14),
          .gradient = [name](GradientContext& g) -> std::vector<Value*> {
            if (!g.resultGradient(0)) return {nullptr};
            return {g.value(0, name + "_gradient", {g.resultGradient(0), g.op().result(0)})};
          },
          .kernel = {.use = [logarithm](const Operation& op) { return kernel(op, "forward", logarithm); }},
          .rewrites = {.raise = logarithm ? raiseLogSoftmax : raiseSoftmax},
          .split = {.loops = alongAxes({.end = -1, .operands = {0}, .results = {0}})},
          .reference = std::move(reference),
          .examples = examples(name),
          .facts = {.ofLogits = logarithm ? OfLogits::logSoftmax : OfLogits::softmax}};
}

OpDef gradientOp(const std::string& name, std::string summary, ReferenceFns reference, bool logarithm) {
  return {.name = name,
          .summary = std::move(summary),
          .operands = {{"dY"}, {"Y"}},
          .results = {{"dX"}},
          .infer = [name](const InferContext& c) { return infer(c, name.c_str()); },
          .precision = PrecisionClass::keepHigh,
          .cost = perElement(4),
          .kernel = {.use = [logarithm](const Operation& op) { return kernel(op, "inputGradient", logarithm); }},
          .split = {.loops = alongAxes({.end = -1, .operands = {0, 1}, .results = {0}})},
          .reference = std::move(reference),
          .examples = gradientExamples(name)};
}

} // namespace

std::vector<OpDef> define() {
  return {
      forwardOp("softmax", "exp(X) divided by its sum over the last axis", "Softmax",
                reference([]<class T>(ReferenceContext& c) { forward<T>(c, false); }), false),
      gradientOp("softmax_gradient", "Gradient of softmax: Y · (dY - sum of dY · Y)",
                 reference([]<class T>(ReferenceContext& c) { gradient<T>(c, false); }), false),
      forwardOp("log_softmax", "X minus the logarithm of the sum of exp(X) over the last axis", "LogSoftmax",
                reference([]<class T>(ReferenceContext& c) { forward<T>(c, true); }), true),
      gradientOp("log_softmax_gradient", "Gradient of log_softmax: dY - exp(Y) · sum of dY",
                 reference([]<class T>(ReferenceContext& c) { gradient<T>(c, true); }), true),
      composed("hardmax", "1 at the first maximum along an axis, 0 elsewhere: reductions and comparisons",
               {onnx("Hardmax", 1, convertHardmax)}),
  };
}

} // namespace pdc::ops::Softmax
