// Products of matrices, batched, and ONNX Gemm. Kernel: pdcrt::MatMul. The gradients are products with other flags.
#include "Convert/Onnx.h"
#include "Kernels/KernelOptions.h"
#include "Raise/Match.h"
#include "Raise/SwapAxes.h"
#include "Shared/Define.h"
#include "Shared/InitialValues.h"
#include "Shared/LoopsOf.h"

#include <algorithm>

namespace pdc::ops::MatMul {

namespace {

/// Sizes of Y[batch, m, n] = op(A)[batch, m, k] · op(B)[batch, k, n], and which operands repeat over the batch.
pdcrt::MatMul::Options optionsOf(const Operation& op) {
  const Type &a = operandType(op, 0), &b = operandType(op, 1), &y = resultType(op);
  pdcrt::MatMul::Options o;
  o.transposeA = op.attributes.get<bool>("transpose_a");
  o.transposeB = op.attributes.get<bool>("transpose_b");
  const auto rank = y.shape.size();
  o.batch = product(y.shape, 0, rank - 2);
  o.m = y.shape[rank - 2];
  o.n = y.shape[rank - 1];
  o.k = a.shape[a.shape.size() - (o.transposeA ? 2 : 1)];
  o.broadcastA = a.rank() < y.rank();
  o.broadcastB = b.rank() < y.rank();
  o.element = y.element;
  // Rows of A of different batches that meet the same B are rows of one larger product.
  if (o.broadcastB && !o.transposeA) {
    o.m *= o.batch;
    o.batch = 1;
    o.broadcastB = false;
  }
  return o;
}

Types infer(const InferContext& c) {
  if (!requireFloat(c, "matmul", 0, 2) || !requireFloat(c, "matmul", 1, 2)) return failure;
  const Type &a = c.operand(0), &b = c.operand(1);
  const bool transposeA = c.attributes.get<bool>("transpose_a"), transposeB = c.attributes.get<bool>("transpose_b");
  const auto size = [](const Type& type, std::size_t fromEnd) { return type.shape[type.shape.size() - fromEnd]; };
  const std::int64_t inner = size(a, transposeA ? 2 : 1), innerB = size(b, transposeB ? 1 : 2);
  if (a.element != b.element || inner != innerB)
    return c.error() << "'matmul' op sums over " << inner << " elements of " << toString(a) << " and " << innerB
                     << " of " << toString(b);
  const Shape batchA(a.shape.begin(), a.shape.end() - 2), batchB(b.shape.begin(), b.shape.end() - 2);
  if (batchA != batchB && !batchA.empty() && !batchB.empty())
    return c.error().help("broadcast one of them before")
           << "'matmul' op has batches " << toString(batchA) << " and " << toString(batchB);
  Type y{a.element, batchA.empty() ? batchB : batchA};
  y.shape.push_back(size(a, transposeA ? 1 : 2));
  y.shape.push_back(size(b, transposeB ? 2 : 1));
  return std::vector<Type>{y};
}

Cost cost(const Operation& op) {
  const pdcrt::MatMul::Options o = optionsOf(op);
  return {.flops = 2.0 * static_cast<double>(o.batch) * static_cast<double>(o.m) * static_cast<double>(o.k) *
                   static_cast<double>(o.n),
          .bytes = bytesMoved(op)};
}

/// Gradients of products: with Y = A · B, dA = dY · Bᵀ and dB = Aᵀ · dY. A transposed operand wants the transposed of
/// that, which is again a product.
class Gradient {
public:
  explicit Gradient(GradientContext& context)
      : g(context), a(g.op().operand(0)), b(g.op().operand(1)), dy(g.resultGradient(0)),
        transposeA(g.op().attributes.get<bool>("transpose_a")), transposeB(g.op().attributes.get<bool>("transpose_b")) {
  }

  std::vector<Value*> run() {
    if (!dy) return {nullptr, nullptr};
    return {g.wants(0) ? gradientOfA() : nullptr, g.wants(1) ? gradientOfB() : nullptr};
  }

private:
  Value* gradientOfA() {
    Value* da = transposeA ? multiply(0, b, dy, transposeB, true) : multiply(0, dy, b, false, !transposeB);
    return sumOverBatch(0, da, a);
  }
  Value* gradientOfB() {
    // B repeats over the batch: its gradient sums over batch and rows alike, one product of two long matrices.
    if (b->type().rank() == 2 && a->type().rank() > 2 && !transposeA) {
      Value *rowsOfA = asMatrix(a), *rowsOfY = asMatrix(dy);
      return transposeB ? multiply(1, rowsOfY, rowsOfA, true, false) : multiply(1, rowsOfA, rowsOfY, true, false);
    }
    Value* db = transposeB ? multiply(1, dy, a, true, transposeA) : multiply(1, a, dy, !transposeA, false);
    return sumOverBatch(1, db, b);
  }

  Value* multiply(std::size_t forOperand, Value* left, Value* right, bool transposeLeft, bool transposeRight) {
    return g.value(forOperand, "matmul", {left, right},
                   {{"transpose_a", transposeLeft}, {"transpose_b", transposeRight}});
  }
  /// x[…, m, n] as [… · m, n].
  Value* asMatrix(Value* x) {
    const Shape& shape = x->type().shape;
    return g.value(1, "reshape", {x}, {{"shape", Shape{product(shape, 0, shape.size() - 1), shape.back()}}});
  }
  /// The gradient of an operand without batch is the sum over the batch.
  Value* sumOverBatch(std::size_t forOperand, Value* gradient, const Value* operand) {
    std::vector<std::int64_t> axes;
    for (int axis = operand->type().rank(); gradient && axis < gradient->type().rank(); ++axis)
      axes.push_back(axis - operand->type().rank());
    return axes.empty() ? gradient
                        : g.value(forOperand, "reduce_sum", {gradient}, {{"axes", axes}, {"keep_dims", false}});
  }

  GradientContext& g;
  Value *a, *b, *dy;
  bool transposeA, transposeB;
};

/// x broadcast to `batch` before its last two axes.
Value* withBatch(OnnxReader& n, Value* x, const Shape& batch) {
  Shape shape = batch;
  shape.insert(shape.end(), x->type().shape.end() - 2, x->type().shape.end());
  return x->type().shape == shape ? x : n.value("broadcast", {x}, {{"shape", shape}});
}

/// ONNX MatMul: vectors count as matrices with one row or column, batches broadcast.
Value* convertMatMul(OnnxReader& n) {
  Value *a = n.input(0), *b = n.input(1);
  const bool vectorA = a->type().rank() == 1, vectorB = b->type().rank() == 1;
  if (a->type().rank() == 0 || b->type().rank() == 0) {
    static_cast<void>(n.error() << "multiplies matrices, and one input is a scalar");
    return nullptr;
  }
  if (vectorA) a = n.reshape(a, {1, a->type().shape[0]});
  if (vectorB) b = n.reshape(b, {b->type().shape[0], 1});
  if (!a || !b) return nullptr;
  const Shape batchA(a->type().shape.begin(), a->type().shape.end() - 2);
  const Shape batchB(b->type().shape.begin(), b->type().shape.end() - 2);
  if (batchA != batchB && !batchA.empty() && !batchB.empty()) {
    const std::optional<Shape> batch = broadcast(batchA, batchB);
    if (!batch) {
      static_cast<void>(n.error() << "has batches " << toString(batchA) << " and " << toString(batchB)
                                  << ", which do not broadcast");
      return nullptr;
    }
    a = withBatch(n, a, *batch);
    b = withBatch(n, b, *batch);
  }
  Value* y = n.value("matmul", {a, b});
  if (!y || (!vectorA && !vectorB)) return y;
  Shape shape = y->type().shape;
  if (vectorA) shape.erase(shape.end() - 2);
  if (vectorB) shape.pop_back();
  return n.reshape(y, shape);
}

Value* scaled(OnnxReader& n, Value* x, double factor) {
  return factor == 1 || !x ? x : n.value("mul", {x, n.b.constant(factor, x->type().element)});
}

/// Y = alpha · op(A) · op(B) + beta · C: a linear layer where that is one, else its parts.
Value* convertGemm(OnnxReader& n) {
  Value *a = n.input(0), *b = n.input(1), *c = n.input(2);
  const double alpha = n.number("alpha", 1), beta = n.number("beta", 1);
  const bool transposeA = n.integer("transA", 0) != 0, transposeB = n.integer("transB", 0) != 0;
  if (a->type().rank() != 2 || b->type().rank() != 2) {
    static_cast<void>(n.error() << "needs matrices, its inputs are " << toString(a->type()) << " and "
                                << toString(b->type()));
    return nullptr;
  }
  const std::int64_t outputs = b->type().shape[transposeB ? 0 : 1];
  const bool rowBias = !c || c->type().shape == Shape{outputs} || c->type().shape == Shape{1, outputs};
  if (!transposeA && alpha == 1 && (!c || beta == 1) && rowBias) {
    if (c) c = n.reshape(c, {outputs});
    return n.value("linear", {a, b, c}, {{"transposed", transposeB}});
  }
  Value* y = scaled(n, n.value("matmul", {a, b}, {{"transpose_a", transposeA}, {"transpose_b", transposeB}}), alpha);
  if (!y || !c || beta == 0) return y;
  const Shape product = y->type().shape;
  Value* sum = n.value("add", {y, scaled(n, c, beta)});
  if (sum && sum->type().shape != product) {
    static_cast<void>(n.error() << "adds C of " << toString(c->type()) << " to a product of shape "
                                << toString(product));
    return nullptr;
  }
  return sum;
}

/// A product of transposed operands says so itself.
Value* raiseTransposes(Operation& root, Builder& b) {
  if (root.def().name != "matmul") return nullptr;
  Attributes attributes = root.attributes;
  std::vector<Value*> operands = root.operands();
  bool changed = false;
  for (const auto& [i, flag] : {std::pair(0, "transpose_a"), std::pair(1, "transpose_b")}) {
    Value* operand = operands[static_cast<std::size_t>(i)];
    Value* swapped = hasOneUse(b.graph(), operand) ? withLastAxesSwapped(operand, b) : nullptr;
    if (!swapped) continue;
    operands[static_cast<std::size_t>(i)] = swapped;
    attributes.set(flag, !attributes.get<bool>(flag));
    changed = true;
  }
  return changed ? b.value("matmul", operands, attributes) : nullptr;
}

/// Batch axes, which an operand without batch lacks, m and n are free, k is summed.
Loops matmulLoops(const Operation& op) {
  Loops loops(op);
  const Shape &a = operandType(op, 0).shape, &y = resultType(op).shape;
  const bool transposeA = op.attributes.get<bool>("transpose_a"), transposeB = op.attributes.get<bool>("transpose_b");
  const auto rank = static_cast<int>(y.size());
  for (int axis = -rank; axis < -2; ++axis)
    addIndex(
        loops, op,
        {.size = y[static_cast<std::size_t>(axis + rank)], .operands = {{0, axis}, {1, axis}}, .results = {{0, axis}}});
  const int axisM = transposeA ? -1 : -2, axisN = transposeB ? -2 : -1;
  addIndex(loops, op, {.size = y[y.size() - 2], .operands = {{0, axisM}}, .results = {{0, -2}}});
  addIndex(loops, op, {.size = y.back(), .operands = {{1, axisN}}, .results = {{0, -1}}});
  addIndex(loops, op,
           {.size = a[a.size() - (transposeA ? 2 : 1)],
            .operands = {{0, -3 - axisM}, {1, -3 - axisN}},
            .results = {},
            .reduced = {0}});
  return loops;
}

std::vector<std::string> examples() {
  const auto text = [](const char* a, const char* b, const char* options, const char* y) {
    return example("%a: f32" + std::string(a) + ", %b: f32" + b,
                   "%y = matmul %a, %b" + std::string(options) + " : f32" + y);
  };
  const char *left = " {transpose_a = true}", *right = " {transpose_b = true}",
             *both = " {transpose_a = true, transpose_b = true}";
  return {text("[2, 3]", "[3, 4]", "", "[2, 4]"),          text("[3, 2]", "[3, 4]", left, "[2, 4]"),
          text("[2, 3]", "[4, 3]", right, "[2, 4]"),       text("[3, 2]", "[4, 3]", both, "[2, 4]"),
          text("[2, 3, 4]", "[2, 4, 2]", "", "[2, 3, 2]"), text("[2, 2, 4, 3]", "[2, 2, 2, 4]", both, "[2, 2, 3, 2]"),
          text("[2, 3, 4]", "[4, 2]", "", "[2, 3, 2]"),    text("[2, 3, 4]", "[2, 4]", right, "[2, 3, 2]"),
          text("[2, 4, 3]", "[4, 2]", left, "[2, 3, 2]"),  text("[3, 4]", "[2, 4, 2]", "", "[2, 3, 2]"),
          text("[4, 3]", "[2, 2, 4]", both, "[2, 3, 2]")};
}

} // namespace

std::vector<OpDef> define() {
  return {
      {
          .name = "matmul",
          .summary = "Product of matrices, over equal batch dimensions or with one operand that has none",
          .onnx = {onnx("MatMul", 2, convertMatMul)},
          .operands = {{"A"}, {"B"}},
          .results = {{"Y"}},
          .attributes = {boolean("transpose_a", false, "whether the last two axes of A change places"),
                         boolean("transpose_b", false, "whether the last two axes of B change places")},
          .infer = infer,
          .precision = PrecisionClass::preferLow,
          .cost = cost,
          .gradient = [](GradientContext& g) { return Gradient(g).run(); },
          .kernel =
              {.use = [](const Operation& op) { return kernelUse<pdcrt::MatMul>("MatMul", "forward", optionsOf(op)); }},
          .rewrites = {.raise = raiseTransposes,
                       .adaptable = [](const Operation& op) -> std::optional<AdaptableMatrix> {
                         if (op.attributes.get<bool>("transpose_a") || operandType(op, 1).rank() != 2)
                           return std::nullopt;
                         return AdaptableMatrix{.outputsFirst = op.attributes.get<bool>("transpose_b")};
                       }},
          .split = {.loops = matmulLoops},
          .usage = {.initialValues = [](const Operation& op, std::size_t i) -> std::optional<InitialValues> {
            if (!isFromParameters(op.operand(i)) || isFromParameters(op.operand(1 - i))) return std::nullopt;
            return uniformFor(optionsOf(op).k); // as a linear layer
          }},
          .reference = reference([]<class T>(ReferenceContext& c) {
            const pdcrt::MatMul::Options o = optionsOf(c.op);
            const auto a = c.in<T>(0), b = c.in<T>(1);
            const auto y = c.out<T>(0);
            for (std::int64_t batch = 0; batch < o.batch; ++batch) {
              const std::int64_t beginA = o.broadcastA ? 0 : batch * o.m * o.k;
              const std::int64_t beginB = o.broadcastB ? 0 : batch * o.k * o.n;
              for (std::int64_t i = 0; i < o.m; ++i)
                for (std::int64_t j = 0; j < o.n; ++j) {
                  T sum = 0;
                  for (std::int64_t k = 0; k < o.k; ++k)
                    sum += a[beginA + (o.transposeA ? k * o.m + i : i * o.k + k)] *
                           b[beginB + (o.transposeB ? j * o.k + k : k * o.n + j)];
                  y[(batch * o.m + i) * o.n + j] = sum;
                }
            }
          }),
          .examples = examples(),
          .facts = {.takesLow = true},
      },
      composed("gemm", "alpha · op(A) · op(B) + beta · C: linear where that is one, else matmul, mul and add",
               {onnx("Gemm", 2, convertGemm)}),
  };
}

} // namespace pdc::ops::MatMul
