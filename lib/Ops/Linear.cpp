// Linear layers: Y = X · W + B, over the last axis of X, and their gradients. Kernel: pdcrt::Linear.
#include "Convert/Onnx.h"
#include "Kernels/KernelOptions.h"
#include "Kernels/LinearAlgorithms.h"
#include "Raise/RaiseLinear.h"
#include "Shared/Define.h"
#include "Shared/InitialValues.h"
#include "Shared/LoopsOf.h"

namespace pdc::ops::Linear {

namespace {

const std::vector<AttributeDef> attributes = {
    boolean("transposed", false, "whether W is [outputs, inputs], as in PyTorch, and not [inputs, outputs]"),
    integer(partsAttribute, 1, "in how many parts, of equally many rows, Y and dX are made"), linearAlgorithms()};

/// Of the gradient of the weights.
std::vector<AttributeDef> gradientAttributes() {
  std::vector<AttributeDef> defs = attributes;
  defs.push_back(boolean("wide", false, "whether gradients are of f32 where X and dY have 16 bits"));
  return defs;
}

std::int64_t lastOf(const Type& type) {
  return type.shape.back();
}
std::int64_t rowsOf(const Type& type) {
  return product(type.shape, 0, type.shape.size() - 1);
}

/// Sizes of a linear layer.
struct Sizes {
  std::int64_t rows, inputs, outputs;
};

Cost cost(const Operation& op, Sizes sizes) {
  return {.flops = 2.0 * static_cast<double>(sizes.rows) * static_cast<double>(sizes.inputs) *
                   static_cast<double>(sizes.outputs),
          .bytes = bytesMoved(op)};
}

pdcrt::Linear::Options optionsOf(const Operation& op, Sizes sizes, bool bias) {
  return {.rows = sizes.rows,
          .inputs = sizes.inputs,
          .outputs = sizes.outputs,
          .transposed = op.attributes.get<bool>("transposed"),
          .bias = bias,
          .element = operandType(op, 0).element,
          .wideGradient = op.attributes.getOr("wide", false),
          .algorithms = *linearAlgorithmsOf(op.attributes)};
}

/// The kernel that makes Y or dX, whose parts a collective may send at once.
KernelUse kernelOfRows(const Operation& op, const char* method, pdcrt::Linear::Options options) {
  options.parts = static_cast<int>(partsOf(op));
  KernelUse use = kernelUse<pdcrt::Linear>("Linear", method, options);
  if (options.parts > 1) use.sender = startThatSends(*op.result(0));
  return use;
}

/// Where W[input, output] lies.
std::int64_t weightAt(const Operation& op, Sizes sizes, std::int64_t input, std::int64_t output) {
  return op.attributes.get<bool>("transposed") ? output * sizes.inputs + input : input * sizes.outputs + output;
}

Sizes sizesOfForward(const Operation& op) {
  return {rowsOf(operandType(op, 0)), lastOf(operandType(op, 0)), lastOf(resultType(op))};
}
Sizes sizesOfInputGradient(const Operation& op) {
  return {rowsOf(operandType(op, 0)), lastOf(resultType(op)), lastOf(operandType(op, 0))};
}
Sizes sizesOfWeightGradient(const Operation& op) {
  return {rowsOf(operandType(op, 0)), lastOf(operandType(op, 0)), lastOf(operandType(op, 1))};
}

pdcrt::Linear::Options forwardOptions(const Operation& op) {
  return optionsOf(op, sizesOfForward(op), op.operand(2));
}
pdcrt::Linear::Options inputGradientOptions(const Operation& op) {
  return optionsOf(op, sizesOfInputGradient(op), false);
}
pdcrt::Linear::Options weightGradientOptions(const Operation& op) {
  return optionsOf(op, sizesOfWeightGradient(op), op.result(1));
}

/// Of the gradient of the weights, or of both gradients.
KernelUse kernelInParts(const Operation& op, const char* method, const char* partsMethod) {
  const pdcrt::Linear::Options options = weightGradientOptions(op);
  KernelUse use = kernelUse<pdcrt::Linear>("Linear", method, options);
  use.partsMethod = partsMethod;
  use.partBytes = pdcrt::Linear::partSize(options) * static_cast<std::int64_t>(sizeof(float));
  return use;
}

/// Reports algorithms that are none, or that do not belong to their method.
Status requireAlgorithms(const InferContext& c, const char* op) {
  using pdcrt::Linear;
  const std::optional<Linear::Algorithms> algorithms = linearAlgorithmsOf(c.attributes);
  if (algorithms && !Linear::addsUp(algorithms->forward) && !Linear::addsUp(algorithms->inputGradient)) return success;
  return c.error() << "'" << op << "' op needs three algorithms, each of them automatic or one of pdcrt::Linear's, "
                   << "with sums only the last";
}

/// Reports a number of parts that does not divide the rows of operand 0.
Status requireParts(const InferContext& c, const char* op) {
  const std::int64_t parts = c.attributes.getInt(partsAttribute), rows = rowsOf(c.operand(0));
  if (parts >= 1 && rows % parts == 0) return success;
  return c.error() << "'" << op << "' op makes " << rows << " rows in " << parts << " parts";
}

/// The axis of W along which it meets the last axis of operand 0 must agree with it.
Expected<std::int64_t> otherSize(const InferContext& c, const char* op, bool meetsRows) {
  if (!requireFloat(c, op, 0, 1) || !requireFloat(c, op, 1, 2, 2) || !requireAlgorithms(c, op)) return failure;
  if (!requireParts(c, op)) return failure;
  const std::size_t meeting = meetsRows != c.attributes.get<bool>("transposed") ? 0 : 1;
  const Type &x = c.operand(0), &w = c.operand(1);
  if (w.element != x.element || w.shape[meeting] != lastOf(x))
    return c.error() << "'" << op << "' op has a last axis of " << lastOf(x) << " in " << toString(x) << " and of "
                     << w.shape[meeting] << " in the weight " << toString(w);
  return w.shape[1 - meeting];
}

Types inferForward(const InferContext& c) {
  const Expected<std::int64_t> outputs = otherSize(c, "linear", true);
  if (!outputs) return failure;
  Type y = c.operand(0);
  y.shape.back() = *outputs;
  if (has(c, 2) && !requireType(c, "linear", 2, {y.element, {*outputs}}, "the weight")) return failure;
  return std::vector<Type>{y};
}

Types inferInputGradient(const InferContext& c) {
  const Expected<std::int64_t> inputs = otherSize(c, "linear_input_gradient", false);
  if (!inputs) return failure;
  Type dx = c.operand(0);
  dx.shape.back() = *inputs;
  return std::vector<Type>{dx};
}

Types inferWeightGradient(const InferContext& c) {
  const char* op = "linear_weight_gradient";
  if (!requireFloat(c, op, 0, 1) || !requireFloat(c, op, 1, 1) || !requireAlgorithms(c, op)) return failure;
  const Type &x = c.operand(0), &dy = c.operand(1);
  if (x.element != dy.element || x.rank() != dy.rank() || rowsOf(x) != rowsOf(dy))
    return c.error() << "'" << op << "' op has " << toString(x) << " and " << toString(dy)
                     << ", which differ before the last axis";
  const bool widens = c.attributes.getOr("wide", false) && isLowPrecision(x.element);
  Type dw{widens ? ElementType::f32 : x.element, {lastOf(x), lastOf(dy)}};
  if (c.attributes.get<bool>("transposed")) std::swap(dw.shape[0], dw.shape[1]);
  return std::vector<Type>{dw, Type{dw.element, {lastOf(dy)}}};
}

std::vector<Value*> gradient(GradientContext& g) {
  const Operation& op = g.op();
  Value* dy = g.resultGradient(0);
  std::vector<Value*> gradients(3, nullptr);
  if (!dy) return gradients;
  if (g.wants(0)) gradients[0] = g.value(0, "linear_input_gradient", {dy, op.operand(1)}, op.attributes);
  const bool wantsBias = op.operand(2) && g.wants(2);
  if (g.wants(1)) {
    Operation* backward = g.create(1, "linear_weight_gradient", {op.operand(0), dy}, op.attributes, {true, wantsBias});
    if (backward) gradients[1] = backward->result(0), gradients[2] = backward->result(1);
  } else if (wantsBias) {
    std::vector<std::int64_t> axes;
    for (int axis = 0; axis + 1 < dy->type().rank(); ++axis) axes.push_back(axis);
    gradients[2] = g.value(2, "reduce_sum", {dy}, {{"axes", axes}, {"keep_dims", false}});
  }
  return gradients;
}

Types inferGradients(const InferContext& c) {
  if (!requireFloat(c, "linear_gradients", 2, 2, 2)) return failure;
  Types types = inferWeightGradient(c);
  if (!types || !requireType(c, "linear_gradients", 2, types->front(), "the gradient")) return failure;
  types->push_back(c.operand(0));
  return types;
}

/// Of a gradient of the weights with that of the input, where both are of one layer in f32.
Operation* together(const Operation& op, const Operation& reader, Builder& b) {
  if (reader.def().name != "linear_input_gradient" || reader.operand(0) != op.operand(1) ||
      reader.operand(1)->type() != op.result(0)->type() || reader.result(0)->type() != op.operand(0)->type())
    return nullptr;
  return b.create("linear_gradients", {op.operand(0), op.operand(1), reader.operand(1)},
                  {{"transposed", op.attributes.get<bool>("transposed")}}, {true, op.result(1) != nullptr, true});
}

/// dW and dB, by the definition.
template <class T>
void addWeightGradients(ReferenceContext& c) {
  const Sizes s = sizesOfWeightGradient(c.op);
  const auto x = c.in<T>(0), dy = c.in<T>(1);
  const auto dw = c.out<T>(0);
  for (std::int64_t row = 0; row < s.rows; ++row)
    for (std::int64_t output = 0; output < s.outputs; ++output) {
      const T gradient = dy[row * s.outputs + output];
      for (std::int64_t input = 0; input < s.inputs; ++input)
        dw[weightAt(c.op, s, input, output)] += x[row * s.inputs + input] * gradient;
      if (c.results[1]) c.out<T>(1)[output] += gradient;
    }
}
/// dX, which is result `result`, from operand `dy` and the next one, the weights.
template <class T>
void makeInputGradient(ReferenceContext& c, Sizes s, std::size_t dyAt, std::size_t result) {
  const auto dy = c.in<T>(dyAt), w = c.in<T>(dyAt + 1);
  const auto dx = c.out<T>(result);
  for (std::int64_t row = 0; row < s.rows; ++row)
    for (std::int64_t input = 0; input < s.inputs; ++input) {
      T sum = 0;
      for (std::int64_t output = 0; output < s.outputs; ++output)
        sum += dy[row * s.outputs + output] * w[weightAt(c.op, s, input, output)];
      dx[row * s.inputs + input] = sum;
    }
}

// --- division ---

/// The axis of W with the inputs; the other one has the outputs.
int inputAxis(const Operation& op) {
  return op.attributes.get<bool>("transposed") ? 1 : 0;
}

/// Rows and outputs are free, inputs are summed. Weights that are zeros make outputs that are, and gradients that are
/// make gradients of weights that are.
Loops loopsOfForward(const Operation& op) {
  Loops loops(op);
  const Sizes s = sizesOfForward(op);
  const int inputs = inputAxis(op);
  addAxes(loops, op, {.end = -1, .operands = {0}, .results = {0}});
  addIndex(loops, op, {.size = s.inputs, .operands = {{0, -1}, {1, inputs}}, .results = {}, .reduced = {0}});
  addIndex(loops, op, {.size = s.outputs, .operands = {{1, 1 - inputs}, {2, 0}}, .results = {{0, -1}}, .mayPad = true});
  if (op.operand(2)) loops.added = {.operand = 2, .axis = resultType(op).rank() - 1};
  return loops;
}

/// Rows and inputs are free, outputs are summed.
Loops loopsOfInputGradient(const Operation& op) {
  Loops loops(op);
  const Sizes s = sizesOfInputGradient(op);
  const int inputs = inputAxis(op);
  addAxes(loops, op, {.end = -1, .operands = {0}, .results = {0}});
  addIndex(loops, op, {.size = s.inputs, .operands = {{1, inputs}}, .results = {{0, -1}}});
  addIndex(loops, op,
           {.size = s.outputs, .operands = {{0, -1}, {1, 1 - inputs}}, .results = {}, .reduced = {0}, .mayPad = true});
  return loops;
}

/// Of the gradients of W and B, perhaps with W as operand 2 and dX as result 2. dW and dB are summed over rows, whose
/// axes may differ in X and dY; dX is summed over outputs.
Loops loopsOfWeightGradient(const Operation& op) {
  Loops loops(op);
  const Sizes s = sizesOfWeightGradient(op);
  const int inputs = inputAxis(op);
  const Shape &x = operandType(op, 0).shape, &dy = operandType(op, 1).shape;
  for (const CommonFactor& row : commonFactors({x.begin(), x.end() - 1}, {dy.begin(), dy.end() - 1}))
    addIndex(loops, op,
             {.size = row.size,
              .operands = {{0, row.fromAxis, row.fromBlocks}, {1, row.toAxis, row.toBlocks}},
              .results = {{2, row.fromAxis, row.fromBlocks}},
              .reduced = {0, 1}});
  addIndex(loops, op, {.size = s.inputs, .operands = {{0, -1}, {2, inputs}}, .results = {{0, inputs}, {2, -1}}});
  addIndex(loops, op,
           {.size = s.outputs,
            .operands = {{1, -1}, {2, 1 - inputs}},
            .results = {{0, 1 - inputs}, {1, 0}},
            .reduced = {2},
            .mayPad = true});
  return loops;
}

/// With outputs whose weights and biases are zeros.
Value* makeGap(const Operation& op, std::int64_t gap, Builder& b) {
  const auto longer = [&](Value* value, std::size_t axis) {
    std::vector<std::int64_t> before(value->type().shape.size(), 0), after = before;
    after[axis] = gap;
    return b.value("pad", {value}, {{"before", before}, {"after", after}});
  };
  std::vector<Value*> operands = op.operands();
  operands[1] = longer(operands[1], op.attributes.get<bool>("transposed") ? 0 : 1);
  if (operands.size() > 2 && operands[2]) operands[2] = longer(operands[2], 0);
  return b.value(op.def().name, operands, op.attributes);
}

std::vector<std::string> examples() {
  return {
      example("%x: f32[4, 3], %w: f32[3, 5], %b: f32[5]", "%y = linear %x, %w, %b : f32[4, 5]"),
      example("%x: f32[4, 3], %w: f32[5, 3], %b: f32[5]", "%y = linear %x, %w, %b {transposed = true} : f32[4, 5]"),
      example("%x: f32[1, 7], %w: f32[2, 7]", "%y = linear %x, %w {transposed = true} : f32[1, 2]"),
      example("%x: f32[2, 3, 4], %w: f32[4, 2], %b: f32[2]",
              "%y = linear %x, %w, %b {algorithms = [\"first\", \"first\", \"first\"]} : f32[2, 3, 2]"),
      example("%x: f32[5, 1], %w: f32[1, 1], %b: f32[1]", "%y = linear %x, %w, %b {transposed = true} : f32[5, 1]"),
      example("%x: f32[6], %w: f32[6, 2], %b: f32[2]", "%y = linear %x, %w, %b : f32[2]"),
      example("%x: f32[12, 2], %w: f32[2, 3], %b: f32[3]", "%y = linear %x, %w, %b {parts = 2} : f32[12, 3]"),
      example("%x: f32[2, 4], %w: f32[6, 4], %b: f32[6]", "%y = linear %x, %w, %b {transposed = true} : f32[2, 6]")};
}

OpDef linearDef() {
  return {
      .name = "linear",
      .summary = "Y = X · W + B over the last axis of X",
      .operands = {{"X"}, {"W"}, {.name = "B", .optional = true}},
      .results = {{"Y"}},
      .attributes = attributes,
      .infer = inferForward,
      .precision = PrecisionClass::preferLow,
      .cost = [](const Operation& op) { return cost(op, sizesOfForward(op)); },
      .gradient = gradient,
      .kernel = {
          .use = [](const Operation& op) { return kernelOfRows(op, "forward", forwardOptions(op)); },
          .alternatives = [](const Operation& op,
                             Target target) { return linearAlternatives(forwardOptions(op), "forward", target); }},
      .rewrites = {
          .raise = raiseLinear,
          .makeGap = makeGap,
          .adaptable = [](const Operation& op) -> std::optional<AdaptableMatrix> {
            return AdaptableMatrix{.outputsFirst = op.attributes.get<bool>("transposed")};
          },
          .ofRows = [](const Operation& op, Value* live, Builder& b) -> Value* {
            if (operandType(op, 0).element != ElementType::f32 || partsOf(op) > 1) return nullptr;
            std::vector<Value*> operands = {op.operand(0), op.operand(1), live};
            if (op.operand(2)) operands.push_back(op.operand(2));
            return b.value("linear_of_rows", operands, {{"transposed", op.attributes.get<bool>("transposed")}});
          },
          .int8Use = [](const Operation& op, std::size_t i) -> std::optional<Int8Use> {
            if (i != 1) return std::nullopt;
            return Int8Use{.axis = 1 - inputAxis(op), .rounded = 0};
          },
          .withInt8 =
              [](const Operation& op, const Int8Matrix& w, Builder& b) {
                std::vector<Value*> operands = {op.operand(0), w.integers,   w.scales,
                                                w.kept,        w.keptInputs, op.operand(2)};
                while (!operands.back()) operands.pop_back();
                return b.value("linear_int8", operands, {{"alpha", w.alpha}});
              }},
      .split = {.loops = loopsOfForward},
      .usage = {.initialValues = asLayer([](const Operation& op) { return lastOf(operandType(op, 0)); }),
                .staysFinite = [](const Operation&) { return true; }},
      .reference = reference([]<class T>(ReferenceContext& c) {
        const Sizes s = sizesOfForward(c.op);
        const auto x = c.in<T>(0), w = c.in<T>(1);
        const auto y = c.out<T>(0);
        for (std::int64_t row = 0; row < s.rows; ++row)
          for (std::int64_t output = 0; output < s.outputs; ++output) {
            T sum = c.operands.size() > 2 && c.operands[2] ? c.in<T>(2)[output] : T(0);
            for (std::int64_t input = 0; input < s.inputs; ++input)
              sum += x[row * s.inputs + input] * w[weightAt(c.op, s, input, output)];
            y[row * s.outputs + output] = sum;
          }
      }),
      .examples = examples(),
      .facts = {.takesLow = true},
  };
}

OpDef linearInputGradientDef() {
  return {
      .name = "linear_input_gradient",
      .summary = "Gradient of linear for X: dX = dY · transposed W",
      .operands = {{"dY"}, {"W"}},
      .results = {{"dX"}},
      .attributes = attributes,
      .infer = inferInputGradient,
      .precision = PrecisionClass::preferLow,
      .cost = [](const Operation& op) { return cost(op, sizesOfInputGradient(op)); },
      .kernel = {.use = [](const Operation& op) { return kernelOfRows(op, "inputGradient", inputGradientOptions(op)); },
                 .alternatives =
                     [](const Operation& op, Target target) {
                       return linearAlternatives(inputGradientOptions(op), "inputGradient", target);
                     }},
      .split = {.loops = loopsOfInputGradient},
      .reference =
          reference([]<class T>(ReferenceContext& c) { makeInputGradient<T>(c, sizesOfInputGradient(c.op), 0, 0); }),
      .examples = {example("%dy: f32[4, 5], %w: f32[3, 5]", "%dx = linear_input_gradient %dy, %w : f32[4, 3]"),
                   example("%dy: f32[2, 3, 5], %w: f32[5, 4]",
                           "%dx = linear_input_gradient %dy, %w {transposed = true} : f32[2, 3, 4]"),
                   example("%dy: f32[2, 4], %w: f32[2, 4]", "%dx = linear_input_gradient %dy, %w : f32[2, 2]"),
                   example("%dy: f32[2, 6], %w: f32[6, 3]",
                           "%dx = linear_input_gradient %dy, %w {transposed = true} : f32[2, 3]")},
      .facts = {.takesLow = true},
  };
}

OpDef linearWeightGradientDef() {
  return {
      .name = "linear_weight_gradient",
      .summary = "Gradients of linear for W and B: dW = transposed X · dY, dB the sum of dY over rows",
      .operands = {{"X"}, {"dY"}},
      .results = {{"dW"}, {.name = "dB", .optional = true}},
      .attributes = gradientAttributes(),
      .infer = inferWeightGradient,
      .precision = PrecisionClass::preferLow,
      .cost = [](const Operation& op) { return cost(op, sizesOfWeightGradient(op)); },
      .kernel = {
          .use = [](const Operation& op) { return kernelInParts(op, "weightGradient", "weightGradientInParts"); },
          .alternatives =
              [](const Operation& op, Target target) {
                return linearAlternatives(weightGradientOptions(op), "weightGradient", target);
              }},
      .rewrites = {.together = together},
      .split = {.loops = loopsOfWeightGradient},
      .reference = reference([]<class T>(ReferenceContext& c) { addWeightGradients<T>(c); }),
      .examples = {example("%x: f32[4, 3], %dy: f32[4, 5]",
                           "%dw, %db = linear_weight_gradient %x, %dy {transposed = true} : f32[5, 3], f32[5]"),
                   example("%x: f32[2, 2, 3], %dy: f32[2, 2, 4]",
                           "%dw, _ = linear_weight_gradient %x, %dy {wide = true} : f32[3, 4], _"),
                   example("%x: f32[4, 1, 2], %dy: f32[2, 2, 6]",
                           "%dw, %db = linear_weight_gradient %x, %dy {transposed = true} : f32[6, 2], f32[6]")},
      .facts = {.takesLow = true},
  };
}

OpDef linearGradientsDef() {
  return {
      .name = "linear_gradients",
      .summary = "linear_weight_gradient and linear_input_gradient at once, in one pass over W",
      .operands = {{"X"}, {"dY"}, {"W"}},
      .results = {{"dW"}, {.name = "dB", .optional = true}, {"dX"}},
      .attributes = attributes,
      .infer = inferGradients,
      .cost =
          [](const Operation& op) {
            const Cost one = cost(op, sizesOfWeightGradient(op));
            return Cost{.flops = 2 * one.flops, .bytes = one.bytes};
          },
      .kernel = {.use = [](const Operation& op) { return kernelInParts(op, "gradients", "gradientsInParts"); }},
      .split = {.loops = loopsOfWeightGradient},
      .reference = reference([]<class T>(ReferenceContext& c) {
        addWeightGradients<T>(c);
        makeInputGradient<T>(c, sizesOfWeightGradient(c.op), 1, 2);
      }),
      .examples = {example("%x: f32[4, 3], %dy: f32[4, 5], %w: f32[5, 3]",
                           "%dw, %db, %dx = linear_gradients %x, %dy, %w {transposed = true} : f32[5, 3], f32[5], "
                           "f32[4, 3]"),
                   example("%x: f32[2, 2, 3], %dy: f32[2, 2, 4], %w: f32[3, 4]",
                           "%dw, _, %dx = linear_gradients %x, %dy, %w : f32[3, 4], _, f32[2, 2, 3]"),
                   example("%x: f32[3, 2], %dy: f32[3, 4], %w: f32[4, 2]",
                           "%dw, %db, %dx = linear_gradients %x, %dy, %w {transposed = true} : f32[4, 2], f32[4], "
                           "f32[3, 2]")},
  };
}

} // namespace

std::vector<OpDef> define() {
  return {linearDef(), linearInputGradientDef(), linearWeightGradientDef(), linearGradientsDef()};
}

} // namespace pdc::ops::Linear
