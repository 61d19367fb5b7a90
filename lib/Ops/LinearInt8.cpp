// Linear layers with frozen weights of 8 bits, and the gradient of their input. Kernel: pdcrt::LinearInt8.
#include "Kernels/KernelOptions.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"

#include <algorithm>
#include <cmath>

namespace pdc::ops::LinearInt8 {

namespace {

/// Where the weights are among the operands, after X or dY.
enum WeightOperand : std::size_t { integersAt = 1, scaleAt, keptAt, keptInputsAt, biasAt };

std::int64_t lastOf(const Type& type) {
  return type.shape.back();
}
std::int64_t rowsOf(const Type& type) {
  return product(type.shape, 0, type.shape.size() - 1);
}

pdcrt::LinearInt8::Options optionsOf(const Operation& op) {
  const Shape& w = operandType(op, integersAt).shape;
  return {.rows = rowsOf(operandType(op, 0)),
          .inputs = w[1],
          .outputs = w[0],
          .kept = op.operand(keptInputsAt) ? operandType(op, keptInputsAt).shape[0] : 0,
          .bias = op.operand(biasAt) != nullptr,
          .alpha = op.attributes.getOr("alpha", 6.0)};
}

Cost cost(const Operation& op) {
  const pdcrt::LinearInt8::Options o = optionsOf(op);
  return {.flops = 2.0 * static_cast<double>(o.rows) * static_cast<double>(o.inputs) * static_cast<double>(o.outputs),
          .bytes = bytesMoved(op)};
}

/// The axis of W along which it meets the last axis of operand 0, which is of f32, must agree with it. Returns the size
/// of the other one.
Expected<std::int64_t> otherSize(const InferContext& c, const char* op, std::size_t meeting) {
  if (!requireFloat(c, op, 0, 1)) return failure;
  const Type &x = c.operand(0), &w = c.operand(integersAt);
  if (isLowPrecision(x.element))
    return c.error() << "'" << op << "' op computes with f32, operand 0 is " << toString(x);
  if (w.element != ElementType::i8 || w.rank() != 2 || w.shape[0] < 1 || w.shape[1] < 1)
    return c.error() << "'" << op << "' op needs weights of type i8 with outputs and inputs, they are " << toString(w);
  if (w.shape[meeting] != lastOf(x))
    return c.error() << "'" << op << "' op has a last axis of " << lastOf(x) << " in " << toString(x) << " and of "
                     << w.shape[meeting] << " in the weight " << toString(w);
  const std::int64_t outputs = w.shape[0], inputs = w.shape[1];
  if (!requireType(c, op, scaleAt, {x.element, {outputs}}, "the weight")) return failure;
  if (has(c, keptAt) != has(c, keptInputsAt))
    return c.error() << "'" << op << "' op has only one of kept weights and the inputs that they belong to";
  if (has(c, keptAt)) {
    const Type& rows = c.operand(keptInputsAt);
    if (rows.element != ElementType::i32 || rows.rank() != 1 || rows.shape[0] < 1 || rows.shape[0] > inputs)
      return c.error() << "'" << op << "' op needs 1 to " << inputs << " kept inputs of type i32, they are "
                       << toString(rows);
    if (!requireType(c, op, keptAt, {x.element, {rows.shape[0], outputs}}, "the kept inputs")) return failure;
  }
  return w.shape[1 - meeting];
}

Types inferForward(const InferContext& c) {
  const Expected<std::int64_t> outputs = otherSize(c, "linear_int8", 1);
  if (!outputs) return failure;
  Type y = c.operand(0);
  y.shape.back() = *outputs;
  if (has(c, biasAt) && !requireType(c, "linear_int8", biasAt, {y.element, {*outputs}}, "the weight")) return failure;
  if (!(c.attributes.get<double>("alpha") >= 0))
    return c.error() << "'linear_int8' op has alpha " << c.attributes.get<double>("alpha")
                     << ", which must not be negative";
  return std::vector<Type>{y};
}

Types inferInputGradient(const InferContext& c) {
  const Expected<std::int64_t> inputs = otherSize(c, "linear_int8_input_gradient", 0);
  if (!inputs) return failure;
  Type dx = c.operand(0);
  dx.shape.back() = *inputs;
  return std::vector<Type>{dx};
}

/// As if X were not rounded. The weights are frozen.
std::vector<Value*> gradient(GradientContext& g) {
  const Operation& op = g.op();
  Value* dy = g.resultGradient(0);
  std::vector<Value*> gradients(biasAt + 1, nullptr);
  if (!dy) return gradients;
  if (g.wants(0)) {
    std::vector<Value*> operands = {dy, op.operand(integersAt), op.operand(scaleAt)};
    if (op.operand(keptAt)) operands.insert(operands.end(), {op.operand(keptAt), op.operand(keptInputsAt)});
    gradients[0] = g.value(0, "linear_int8_input_gradient", operands);
  }
  if (op.operand(biasAt) && g.wants(biasAt)) {
    std::vector<std::int64_t> axes;
    for (int axis = 0; axis + 1 < dy->type().rank(); ++axis) axes.push_back(axis);
    gradients[biasAt] = g.value(biasAt, "reduce_sum", {dy}, {{"axes", axes}, {"keep_dims", false}});
  }
  return gradients;
}

// --- references ---

/// For each input the row of the kept weights, or -1; false, with an error, where the kept inputs do not ascend.
bool findKept(ReferenceContext& c, std::int64_t inputs, std::vector<std::int64_t>& keptRow) {
  keptRow.assign(static_cast<std::size_t>(inputs), -1);
  if (c.operands.size() <= keptInputsAt || !c.operands[keptInputsAt]) return true;
  const auto list = c.in<std::int32_t>(keptInputsAt);
  for (std::size_t e = 0; e < list.size(); ++e) {
    if (list[e] < 0 || list[e] >= inputs || (e > 0 && list[e] <= list[e - 1])) {
      c.error = "kept input " + std::to_string(list[e]) + " at place " + std::to_string(e) +
                ": they must ascend from 0 to " + std::to_string(inputs - 1);
      return false;
    }
    keptRow[static_cast<std::size_t>(list[e])] = static_cast<std::int64_t>(e);
  }
  return true;
}

/// The weight of an input for an output.
template <class T>
T weightOf(const ReferenceContext& c, const pdcrt::LinearInt8::Options& o, std::int64_t keptRow, std::int64_t output,
           std::int64_t input) {
  if (keptRow >= 0) return c.in<T>(keptAt)[keptRow * o.outputs + output];
  return static_cast<T>(c.in<std::int8_t>(integersAt)[output * o.inputs + input]) * c.in<T>(scaleAt)[output];
}

/// The definition, operation by operation.
template <class T>
void multiply(ReferenceContext& c) {
  const pdcrt::LinearInt8::Options o = optionsOf(c.op);
  const auto x = c.in<T>(0), scale = c.in<T>(scaleAt);
  const auto w = c.in<std::int8_t>(integersAt);
  const auto y = c.out<T>(0);
  std::vector<std::int64_t> keptRow;
  if (!findKept(c, o.inputs, keptRow)) return;
  std::vector<bool> isOutlier;
  for (std::int64_t i = 0; i < o.inputs; ++i) {
    bool outlier = keptRow[static_cast<std::size_t>(i)] >= 0;
    for (std::int64_t row = 0; row < o.rows; ++row)
      outlier = outlier || !(std::abs(x[row * o.inputs + i]) < static_cast<T>(o.alpha));
    isOutlier.push_back(outlier);
  }
  std::vector<std::int64_t> integers(static_cast<std::size_t>(o.inputs));
  for (std::int64_t row = 0; row < o.rows; ++row) {
    const auto values = x.subspan(static_cast<std::size_t>(row * o.inputs), static_cast<std::size_t>(o.inputs));
    T most = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!isOutlier[i]) most = std::max(most, std::abs(values[i]));
    const T step = most / T(127);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T quotient = isOutlier[i] || step == 0 ? T(0) : std::nearbyint(values[i] / step);
      integers[i] = static_cast<std::int64_t>(std::clamp(quotient, T(-127), T(127)));
    }
    for (std::int64_t output = 0; output < o.outputs; ++output) {
      std::int64_t sum = 0;
      for (std::size_t i = 0; i < values.size(); ++i)
        sum += integers[i] * w[static_cast<std::size_t>(output * o.inputs) + i];
      T result = static_cast<T>(sum) * (step * scale[output]);
      for (std::size_t i = 0; i < values.size(); ++i)
        if (isOutlier[i])
          result = std::fma(values[i], weightOf<T>(c, o, keptRow[i], output, static_cast<std::int64_t>(i)), result);
      if (o.bias) result += c.in<T>(biasAt)[output];
      y[row * o.outputs + output] = result;
    }
  }
}

template <class T>
void multiplyByTransposed(ReferenceContext& c) {
  const pdcrt::LinearInt8::Options o = optionsOf(c.op);
  const auto dy = c.in<T>(0);
  const auto dx = c.out<T>(0);
  std::vector<std::int64_t> keptRow;
  if (!findKept(c, o.inputs, keptRow)) return;
  for (std::int64_t row = 0; row < o.rows; ++row)
    for (std::int64_t input = 0; input < o.inputs; ++input) {
      T sum = 0;
      for (std::int64_t output = 0; output < o.outputs; ++output)
        sum +=
            dy[row * o.outputs + output] * weightOf<T>(c, o, keptRow[static_cast<std::size_t>(input)], output, input);
      dx[row * o.inputs + input] = sum;
    }
}

// --- division ---

/// Outputs are free. Rows and inputs are not divided: which inputs are outliers, and the scale of a row, depend on all
/// of them.
Loops loopsOfForward(const Operation& op) {
  Loops loops(op);
  const std::int64_t outputs = operandType(op, integersAt).shape[0];
  addIndex(loops, op,
           {.size = outputs,
            .operands = {{integersAt, 0}, {scaleAt, 0}, {keptAt, 1}, {biasAt, 0}},
            .results = {{0, -1}},
            .mayPad = true});
  return loops;
}

/// Rows are free, and inputs where none is kept; outputs are summed.
Loops loopsOfInputGradient(const Operation& op) {
  Loops loops(op);
  const Shape& w = operandType(op, integersAt).shape;
  addAxes(loops, op, {.end = -1, .operands = {0}, .results = {0}});
  if (!op.operand(keptAt)) addIndex(loops, op, {.size = w[1], .operands = {{integersAt, 1}}, .results = {{0, -1}}});
  addIndex(loops, op,
           {.size = w[0],
            .operands = {{0, -1}, {integersAt, 0}, {scaleAt, 0}, {keptAt, 1}},
            .results = {},
            .reduced = {0},
            .mayPad = true});
  return loops;
}

// --- examples ---

/// Weights with a zero row and a zero column, and the largest integers.
std::string weights(const char* shape, const char* values) {
  return std::string("%w = constant {value = dense<i8") + shape + ", " + values + ">} : i8" + shape + "\n";
}

std::vector<std::string> examples() {
  // The gradient is that of exact inputs, so it is compared with differences where all inputs are outliers; where they
  // are rounded, their names tell the tests that they are not differentiated.
  const std::string three = weights("[3, 4]", "[127, -5, 0, 64, 0, 0, 0, 0, -127, 3, 0, 1]");
  const std::string two = weights("[2, 3]", "[-127, 127, 9, 50, -51, -127]");
  const std::string zeros =
      "%zeros = constant {value = dense<f32[2, 3], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]>} : f32[2, 3]\n";
  const std::string kept = "%kept_inputs = constant {value = dense<i32[2], [0, 3]>} : i32[2]\n";
  const std::string first = "%first = constant {value = dense<i32[1], [1]>} : i32[1]\n";
  return {
      example("%constant_x: f32[5, 4], %constant_scale_positive: f32[3], %b: f32[3]",
              three + "%y = linear_int8 %constant_x, %w, %constant_scale_positive, _, _, %b {alpha = 1.3} : f32[5, 3]"),
      example("%constant_x: f32[2, 2, 4], %constant_scale_positive: f32[3]",
              three + "%y = linear_int8 %constant_x, %w, %constant_scale_positive : f32[2, 2, 3]"),
      example("%constant_x: f32[3], %constant_scale_positive: f32[2]",
              two + "%y = linear_int8 %constant_x, %w, %constant_scale_positive {alpha = inf} : f32[2]"),
      example("%constant_scale_positive: f32[2]",
              two + zeros + "%y = linear_int8 %zeros, %w, %constant_scale_positive {alpha = inf} : f32[2, 2]"),
      example("%constant_x: f32[6, 4], %constant_scale_positive: f32[3], %constant_kept: f32[2, 3], %b: f32[3]",
              three + kept +
                  "%y = linear_int8 %constant_x, %w, %constant_scale_positive, %constant_kept, %kept_inputs, %b : "
                  "f32[6, 3]"),
      example("%x: f32[2, 3, 4], %constant_scale_positive: f32[3], %b: f32[3]",
              three + "%y = linear_int8 %x, %w, %constant_scale_positive, _, _, %b {alpha = 0.0} : f32[2, 3, 3]"),
      example("%x: f32[4, 4], %constant_scale_positive: f32[3]",
              three + "%y = linear_int8 %x, %w, %constant_scale_positive {alpha = 0.05} : f32[4, 3]"),
      example("%x: f32[3], %constant_scale_positive: f32[2], %b: f32[2]",
              two + "%y = linear_int8 %x, %w, %constant_scale_positive, _, _, %b {alpha = 0.0} : f32[2]"),
      example(
          "%x: f32[7, 3], %constant_scale_positive: f32[2], %constant_kept: f32[1, 2]",
          two + first +
              "%y = linear_int8 %x, %w, %constant_scale_positive, %constant_kept, %first {alpha = 0.0} : f32[7, 2]"),
      example("%x: f32[1, 4], %constant_scale_positive: f32[3], %constant_kept: f32[2, 3], %b: f32[3]",
              three + kept +
                  "%y = linear_int8 %x, %w, %constant_scale_positive, %constant_kept, %kept_inputs, %b {alpha = 0.1} : "
                  "f32[1, 3]")};
}

AttributeDef alpha() {
  return number("alpha", 6, "an input with a value that is not smaller is an outlier, and multiplied in f32");
}

OpDef linearInt8Def() {
  return {.name = "linear_int8",
          .summary =
              "Y = X · W + B over the last axis of X, with W = W8 · scale[outputs], or W_kept for some inputs, X "
              "rounded to 8 bits but for inputs with outliers, and sums of integers",
          .operands = {{"X"},
                       {"W8"},
                       {"scale"},
                       {.name = "W_kept", .optional = true},
                       {.name = "kept_inputs", .optional = true},
                       {.name = "B", .optional = true}},
          .results = {{"Y"}},
          .attributes = {alpha()},
          .infer = inferForward,
          .precision = PrecisionClass::keepHigh,
          .cost = cost,
          .gradient = gradient,
          .kernel = {.use =
                         [](const Operation& op) {
                           return kernelUse<pdcrt::LinearInt8>("LinearInt8", "forward", optionsOf(op));
                         }},
          .split = {.loops = loopsOfForward},
          .reference = reference([]<class T>(ReferenceContext& c) { multiply<T>(c); }),
          .examples = examples()};
}

OpDef linearInt8InputGradientDef() {
  return {.name = "linear_int8_input_gradient",
          .summary = "Gradient of linear_int8 for X, as if X were not rounded: dX = dY · transposed W",
          .operands = {{"dY"},
                       {"W8"},
                       {"scale"},
                       {.name = "W_kept", .optional = true},
                       {.name = "kept_inputs", .optional = true}},
          .results = {{"dX"}},
          .infer = inferInputGradient,
          .precision = PrecisionClass::keepHigh,
          .cost = cost,
          .kernel = {.use =
                         [](const Operation& op) {
                           return kernelUse<pdcrt::LinearInt8>("LinearInt8", "inputGradient", optionsOf(op));
                         }},
          .split = {.loops = loopsOfInputGradient},
          .reference = reference([]<class T>(ReferenceContext& c) { multiplyByTransposed<T>(c); }),
          .examples = {
              example("%dy: f32[2, 3, 2], %constant_scale_positive: f32[2]",
                      weights("[2, 4]", "[127, 0, -3, 5, -127, 0, 8, 100]") +
                          "%dx = linear_int8_input_gradient %dy, %w, %constant_scale_positive : f32[2, 3, 4]"),
              example("%dy: f32[4, 2], %scale_positive: f32[2], %kept: f32[1, 2]",
                      weights("[2, 3]", "[-127, 127, 9, 50, -51, -127]") +
                          "%kept_inputs = constant {value = dense<i32[1], [2]>} : i32[1]\n"
                          "%dx = linear_int8_input_gradient %dy, %w, %scale_positive, %kept, %kept_inputs : f32[4, 3]"),
              example("%dy: f32[2], %scale_positive: f32[2]",
                      weights("[2, 3]", "[0, 0, 0, 50, -51, -127]") +
                          "%dx = linear_int8_input_gradient %dy, %w, %scale_positive : f32[3]")}};
}

} // namespace

std::vector<OpDef> define() {
  return {linearInt8Def(), linearInt8InputGradientDef()};
}

} // namespace pdc::ops::LinearInt8
