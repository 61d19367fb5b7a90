// Rows put into a copy of a tensor by index, and ONNX's ways to say so. Kernel: pdcrt::Scatter.
#include "Convert/Indices.h"
#include "Kernels/KernelOptions.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"

namespace pdc::ops::Scatter {

namespace {

using pdcrt::Combination;

/// The attribute "kind" of scatter and scatter_reduce.
std::optional<Combination> combinationFrom(const std::string& name) {
  if (name == "replace") return Combination::replace;
  if (name == "add") return Combination::add;
  if (name == "multiply") return Combination::multiply;
  if (name == "max") return Combination::max;
  if (name == "min") return Combination::min;
  return std::nullopt;
}

Combination kindOf(const Operation& op) {
  return *combinationFrom(op.attributes.get<std::string>("kind"));
}

/// X is [size, inner], indices [count], updates [count, inner].
Types infer(const InferContext& c, const char* op, bool plain) {
  const Type &x = c.operand(0), &indices = c.operand(1);
  const std::string& kind = c.attributes.get<std::string>("kind");
  const std::optional<Combination> combination = combinationFrom(kind);
  if (!combination || (*combination <= Combination::add) != plain)
    return c.error() << "'" << op << "' op has kind '" << kind << "', it must be "
                     << (plain ? "replace or add" : "multiply, max or min");
  if (x.element == ElementType::boolean && *combination != Combination::replace)
    return c.error() << "'" << op << "' op combines numbers, X is " << toString(x);
  if (!requireRank(c, op, 0, 2, 2) || !requireRank(c, op, 1, 1, 1)) return failure;
  if (indices.element != ElementType::i64)
    return c.error() << "'" << op << "' op needs indices of i64, they are " << toString(indices);
  if (!requireType(c, op, 2, {x.element, {indices.shape[0], x.shape[1]}}, "X with these indices")) return failure;
  return std::vector<Type>{x};
}

pdcrt::Scatter::Options optionsOf(const Operation& op) {
  const Shape& x = operandType(op, 0).shape;
  return {.size = x[0], .inner = x[1], .count = operandType(op, 1).shape[0], .kind = kindOf(op)};
}

/// What stands at one place after `from` was put there; exact for integers.
void put(Combination kind, Tensor& y, std::int64_t at, const Tensor& updates, std::int64_t from) {
  if (isFloat(y.type().element)) {
    const double a = y.asDouble(at), b = updates.asDouble(from);
    y.set(at, kind == Combination::replace    ? b
              : kind == Combination::add      ? a + b
              : kind == Combination::multiply ? a * b
              : kind == Combination::max      ? (a != a || a > b ? a : b)
                                              : (a != a || a < b ? a : b));
    return;
  }
  const std::int64_t a = y.asInt(at), b = updates.asInt(from);
  const auto x = static_cast<std::uint64_t>(a), z = static_cast<std::uint64_t>(b);
  const std::int64_t result = kind == Combination::replace    ? b
                              : kind == Combination::add      ? static_cast<std::int64_t>(x + z)
                              : kind == Combination::multiply ? static_cast<std::int64_t>(x * z)
                              : isLess(y.type().element, a, b) == (kind == Combination::max) ? b
                                                                                             : a;
  y.setInt(at, result);
}

ReferenceFns scatterReference() {
  return moving([](ReferenceContext& c) {
    const pdcrt::Scatter::Options o = optionsOf(c.op);
    Tensor& y = *c.results[0];
    y = *c.operands[0];
    for (std::int64_t i = 0; i < o.count; ++i) {
      const std::int64_t stated = c.operands[1]->asInt(i), row = stated < 0 ? stated + o.size : stated;
      if (row < 0 || row >= o.size) {
        c.error = "index " + std::to_string(stated) + " is outside, the axis has " + std::to_string(o.size);
        return;
      }
      for (std::int64_t j = 0; j < o.inner; ++j) put(o.kind, y, row * o.inner + j, *c.operands[2], i * o.inner + j);
    }
  });
}

/// What is replaced has no influence any more; of several updates of one place, ONNX promises no order.
std::vector<Value*> gradient(GradientContext& g) {
  Value* dy = g.resultGradient(0);
  const Operation& op = g.op();
  std::vector<Value*> gradients(3, nullptr);
  if (!dy) return gradients;
  if (g.wants(0)) {
    gradients[0] = dy;
    if (kindOf(op) == Combination::replace) {
      const Type& updates = operandType(op, 2);
      Value* zero = g.value(0, "constant", {}, {{"value", Tensor::scalar(0, updates.element)}});
      Value* zeros = g.value(0, "broadcast", {zero}, {{"shape", updates.shape}});
      gradients[0] = g.value(0, "scatter", {dy, op.operand(1), zeros}, {{"kind", std::string("replace")}});
    }
  }
  if (g.wants(2)) gradients[2] = g.value(2, "gather", {dy, op.operand(1)});
  return gradients;
}

Value* elementwise(GradientContext& g, std::size_t operand, std::vector<Value*> operands, const char* expression) {
  return g.value(operand, "elementwise", std::move(operands), {{"expressions", std::vector<std::string>{expression}}});
}

/// Of max and min: all that are equal to the result share its gradient evenly, as in PyTorch's scatter_reduce.
std::vector<Value*> extremeGradient(GradientContext& g, Value* dy) {
  const Operation& op = g.op();
  Value *x = op.operand(0), *indices = op.operand(1), *updates = op.operand(2), *y = op.result();
  std::vector<Value*> gradients(3, nullptr);
  const std::size_t first = g.wants(0) ? 0 : 2;
  const char* const isResult = "select(a0 == a1, 1, 0)";
  Value* xWins = elementwise(g, first, {x, y}, isResult);
  Value* updateWins = elementwise(g, first, {updates, g.value(first, "gather", {y, indices})}, isResult);
  Value* winners = g.value(first, "scatter", {xWins, indices, updateWins}, {{"kind", std::string("add")}});
  // Where nothing is equal to the result, it is NaN.
  Value* share = elementwise(g, first, {dy, winners}, "a0 / max(a1, 1)");
  if (g.wants(0)) gradients[0] = g.value(0, "mul", {share, xWins});
  if (g.wants(2)) gradients[2] = g.value(2, "mul", {g.value(2, "gather", {share, indices}), updateWins});
  return gradients;
}

/// Of products: the product of the other factors, found by dividing. A factor of 0 is left out of the product instead,
/// in which another factor of 0 remains.
std::vector<Value*> productGradient(GradientContext& g, Value* dy) {
  const Operation& op = g.op();
  Value *x = op.operand(0), *indices = op.operand(1), *updates = op.operand(2), *y = op.result();
  std::vector<Value*> gradients(3, nullptr);
  if (g.wants(0)) {
    Value* factor = elementwise(g, 0, {x}, "select(a0 == 0, 1, a0)");
    Value* product = g.value(0, "scatter_reduce", {factor, indices, updates}, op.attributes);
    gradients[0] = elementwise(g, 0, {dy, product, factor}, "a0 * a1 / a2");
  }
  if (!g.wants(2)) return gradients;
  const Attributes adding{{"kind", std::string("add")}};
  Value* isZero = elementwise(g, 2, {updates}, "select(a0 == 0, 1, 0)");
  Value* none = g.value(2, "broadcast", {g.value(2, "constant", {}, {{"value", Tensor::scalar(0, x->type().element)}})},
                        {{"shape", x->type().shape}});
  Value* zeros = g.value(2, "scatter", {none, indices, isZero}, adding);
  Value* alone = elementwise(g, 2, {isZero, g.value(2, "gather", {zeros, indices})}, "select(a1 == 1, a0, 0)");
  Value* withoutZero = elementwise(g, 2, {updates, alone}, "select(a1 == 1, 1, a0)");
  Value* product = g.value(2, "scatter_reduce", {x, indices, withoutZero}, op.attributes);
  const auto gathered = [&](Value* factor) { return g.value(2, "gather", {g.value(2, "mul", {dy, factor}), indices}); };
  gradients[2] = elementwise(g, 2, {gathered(product), gathered(y), updates, alone},
                             "select(a3 == 1, a0, a1 / select(a2 == 0, 1, a2))");
  return gradients;
}

std::vector<Value*> reductionGradient(GradientContext& g) {
  Value* dy = g.resultGradient(0);
  if (!dy) return std::vector<Value*>(3, nullptr);
  return kindOf(g.op()) == Combination::multiply ? productGradient(g, dy) : extremeGradient(g, dy);
}

OpDef scatter(const char* name, bool plain) {
  OpDef def = {.name = name,
               .summary = plain ? "X with each update put at, or added to, the row that its index names"
                                : "X with the row that an index names combined with its update",
               .operands = {{"X"}, {"indices"}, {"updates"}},
               .results = {{"Y"}},
               .attributes = {{"kind", std::string(plain ? "replace" : "max"), std::nullopt,
                               plain ? "replace or add" : "multiply, max or min"}},
               .infer = [name, plain](const InferContext& c) { return infer(c, name, plain); },
               .cost = moveCost,
               .kernel = {.use =
                              [](const Operation& op) {
                                return kernelUse<pdcrt::Scatter>("Scatter", "forward", optionsOf(op));
                              }},
               .split = {.loops = alongAxes({.begin = 1, .operands = {0, 2}, .results = {0}})},
               .reference = scatterReference(),
               .facts = {.takesDouble = true}};
  def.gradient = plain ? gradient : reductionGradient;
  return def;
}

/// One text per kind; of distinct indices where replaced ones would have no defined gradient.
std::vector<std::string> examples(const std::string& op, const std::vector<std::string>& kinds) {
  std::vector<std::string> texts;
  for (const std::string& kind : kinds) {
    const std::string options = " {kind = \"" + kind + "\"} : ";
    texts.push_back(
        example("%x: f32[4, 3], %u: f32[1, 3], %i: i64[1]", "%y = " + op + " %x, %i, %u" + options + "f32[4, 3]"));
    texts.push_back(
        example("%x: i32[4, 1], %u: i32[1, 1], %i: i64[1]", "%y = " + op + " %x, %i, %u" + options + "i32[4, 1]"));
    const std::string fixed = "%i = constant {value = dense<i64[2], [2, -3]>} : i64[2]\n";
    for (const char* inner : {"1", "2", "5"}) {
      const std::string x = "f32[3, " + std::string(inner) + "]", u = "f32[2, " + std::string(inner) + "]";
      texts.push_back(example("%x: " + x + ", %u: " + u, fixed + "%y = " + op + " %x, %i, %u" + options + x));
    }
  }
  return texts;
}

// Conversions.

/// The name of ONNX's reduction as a kind; nothing, with an error reported, when it is none.
std::optional<std::string> kindFrom(OnnxReader& n) {
  const std::string reduction = n.text("reduction", "none");
  if (reduction == "none") return "replace";
  if (reduction == "mul") return "multiply";
  if (reduction == "add" || reduction == "max" || reduction == "min") return reduction;
  static_cast<void>(n.error() << "has reduction '" << reduction << "', it must be none, add, mul, max or min");
  return std::nullopt;
}

/// Puts `updates` into `x`, as [rows, rest], at `positions`.
Value* put(OnnxReader& n, Value* x, std::int64_t rows, Value* positions, Value* updates) {
  const std::optional<std::string> kind = kindFrom(n);
  if (!kind || !positions || rows == 0) return nullptr;
  const Type type = x->type();
  if (updates->type().element != type.element) {
    static_cast<void>(n.error() << "puts " << toString(updates->type()) << " into " << toString(type));
    return nullptr;
  }
  const std::int64_t count = positions->type().elements(), inner = type.elements() / rows;
  if (updates->type().elements() != count * inner) {
    static_cast<void>(n.error() << "has updates " << toString(updates->type()) << " for " << count << " times " << inner
                                << " elements");
    return nullptr;
  }
  const bool number = type.element != ElementType::boolean || *kind == "replace";
  if (!number) {
    static_cast<void>(n.unsupported() << "combines booleans");
    return nullptr;
  }
  Value* flat = n.reshape(x, {rows, inner});
  Value* flatPositions = n.reshape(positions, {count});
  Value* flatUpdates = n.reshape(updates, {count, inner});
  if (!flat || !flatPositions || !flatUpdates) return nullptr;
  const bool plain = *kind == "replace" || *kind == "add";
  Value* y = n.value(plain ? "scatter" : "scatter_reduce", {flat, flatPositions, flatUpdates}, {{"kind", *kind}});
  return n.reshape(y, type.shape);
}

Value* convertElements(OnnxReader& n) {
  const Shape &x = n.type(0).shape, &indices = n.type(1).shape;
  const auto axis = n.axis(n.integer("axis", 0), n.type(0).rank());
  if (!axis || !requireIndices(n, 1)) return nullptr;
  bool inside = x.size() == indices.size() && n.type(2).shape == indices;
  for (std::size_t i = 0; inside && i < x.size(); ++i)
    inside = static_cast<std::int64_t>(i) == *axis || indices[i] <= x[i];
  if (!inside) {
    static_cast<void>(n.error() << "has indices " << toString(n.type(1)) << " and updates " << toString(n.type(2))
                                << " for " << toString(n.type(0)));
    return nullptr;
  }
  return put(n, n.input(0), elementsOf(x), elementPositions(n, x, n.input(1), *axis), n.input(2));
}

Value* convertNd(OnnxReader& n) {
  const Shape &x = n.type(0).shape, &indices = n.type(1).shape;
  if (!requireIndices(n, 1)) return nullptr;
  const std::int64_t tuple = indices.empty() ? 0 : indices.back();
  if (tuple < 1 || tuple > n.type(0).rank()) {
    static_cast<void>(n.error() << "has indices " << toString(n.type(1)) << " for " << toString(n.type(0)));
    return nullptr;
  }
  return put(n, n.input(0), product(x, 0, static_cast<std::size_t>(tuple)), tuplePositions(n, x, n.input(1), 0),
             n.input(2));
}

} // namespace

std::vector<OpDef> define() {
  OpDef plain = scatter("scatter", true), reducing = scatter("scatter_reduce", false);
  plain.onnx = {onnx("ScatterElements", 3, convertElements, 11), onnx("Scatter", 3, convertElements, 1, 10),
                onnx("ScatterND", 3, convertNd, 11)};
  plain.examples = examples("scatter", {"replace", "add"});
  reducing.examples = examples("scatter_reduce", {"multiply", "max", "min"});
  return {plain, reducing};
}

} // namespace pdc::ops::Scatter
