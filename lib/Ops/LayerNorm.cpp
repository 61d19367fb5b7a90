// Layer normalisation (Ba, Kiros and Hinton 2016) and root mean square normalisation (Zhang and Sennrich 2019) over the
// last axes, and their gradients: of X in phase I, of scale and bias in phase W. Kernel: pdcrt::LayerNorm.
#include "Convert/Onnx.h"
#include "Kernels/KernelOptions.h"
#include "Raise/NormNeighbours.h"
#include "Raise/NormStatistics.h"
#include "Raise/RaiseNorm.h"
#include "Shared/Define.h"
#include "Shared/InitialValues.h"
#include "Shared/LayerNormReference.h"
#include "Shared/LoopsOf.h"

#include <cmath>

namespace pdc::ops::LayerNorm {

namespace {

/// Of the forward, or of a gradient. `rounded`: a result that is another one in low precision.
std::vector<AttributeDef> attributes(bool forward, const std::string& rounded = {}) {
  std::vector<AttributeDef> defs = {integer("axis", std::nullopt, "the first axis that is normalised over")};
  if (forward) {
    defs.push_back(number("epsilon", 1e-5, "is added to the variance, or to the mean square"));
    defs.push_back(lowResult());
  }
  if (!rounded.empty())
    defs.push_back({"low", std::string("bf16"), std::string(), "bf16 or f16, where there is " + rounded});
  return defs;
}

/// An operand that is of f32, also where Y or dY is in low precision.
OperandDef high(const char* name, bool optional = false) {
  return {.name = name, .optional = optional, .keepsHigh = true};
}

/// The shape of X cut at the axis: what statistics and what scale and bias have. Operand `x` is X, those in
/// `statistics` and `weights` have their types. With X behind it, operand 0 is dY, which may be in low precision.
struct Operands {
  std::size_t x;
  std::vector<std::size_t> statistics, weights;
  std::optional<std::size_t> added = {}; ///< of a forward: what may be added to X
};
struct Split {
  Type normalised, statistics, weights;
};
Expected<Split> split(const InferContext& c, const char* op, const Operands& operands) {
  const std::int64_t axis = integerOf(c, "axis");
  if (!requireFloat(c, op, operands.x, 1) || !requireAxis(c, op, axis, c.operand(operands.x).rank())) return failure;
  Type x = c.operand(operands.x);
  // Of X in low precision and what is added to it, the sum is normalised.
  if (operands.added && has(c, *operands.added)) {
    if (isLowPrecision(x.element)) x.element = ElementType::f32;
    if (!requireType(c, op, *operands.added, x, "X")) return failure;
  }
  const auto middle = x.shape.begin() + axis;
  const ElementType high = isLowPrecision(x.element) ? ElementType::f32 : x.element;
  const Split result{x, {high, {x.shape.begin(), middle}}, {x.element, {middle, x.shape.end()}}};
  const auto have = [&](const std::vector<std::size_t>& list, const Type& type) {
    return std::all_of(list.begin(), list.end(),
                       [&](std::size_t i) { return !has(c, i) || requireType(c, op, i, type, "what is normalised"); });
  };
  const bool lowGradient = operands.x > 0 && isLowPrecision(c.operand(0).element);
  if ((operands.x > 0 && !requireType(c, op, 0, {lowGradient ? c.operand(0).element : x.element, x.shape}, "X")) ||
      !have(operands.statistics, result.statistics) || !have(operands.weights, result.weights))
    return failure;
  return result;
}

/// `type`, in the precision that the attribute `low` names, where it names one.
Expected<Type> lowType(const InferContext& c, Type type) {
  const auto& low = c.attributes.get<std::string>("low");
  if (!low.empty() && (!elementTypeFromName(low, type.element) || !isLowPrecision(type.element)))
    return c.error() << "low = '" << low << "' is no low precision, which are bf16 and f16";
  return type;
}

/// Y, so many statistics, what is normalised, and Y rounded.
Types forwardTypes(const InferContext& c, const char* op, const Operands& operands, std::size_t statistics) {
  const auto parts = split(c, op, operands);
  if (!parts) return failure;
  const Expected<Type> low = lowType(c, parts->normalised);
  if (!low) return failure;
  std::vector<Type> types = {parts->normalised};
  types.resize(1 + statistics, parts->statistics);
  types.insert(types.end(), {parts->normalised, *low});
  return withLowResult(c, std::move(types));
}

/// dX, which something may be added to, and dX rounded; X is operand 1.
Types inputGradientTypes(const InferContext& c, const char* op, const Operands& operands, std::size_t added) {
  if (!split(c, op, operands) || (has(c, added) && !requireType(c, op, added, c.operand(1), "X"))) return failure;
  const Expected<Type> low = lowType(c, c.operand(1));
  if (!low) return failure;
  return std::vector<Type>{c.operand(1), *low};
}

/// What the gradients read is there: where something is added to X, the sum.
Status verifyForward(const Operation& op, Diagnostics& diags) {
  if (!op.operand(addedToNorm(op)) || op.result(sumOfNorm(op))) return success;
  return diags.error(op.location) << "'" << op.def().name << "' op normalises a sum, which must be a result too";
}

KernelUse kernel(const Operation& op, const char* method, std::size_t x) {
  const NormRows size(op, x);
  return kernelUse<pdcrt::LayerNorm>(
      "LayerNorm", method, {.rows = size.rows, .size = size.size, .epsilon = op.attributes.getOr("epsilon", 1e-5)});
}

Attributes onlyAxis(const Operation& op) {
  return {{"axis", op.attributes.getInt("axis")}};
}

/// The sum of dY over all rows: the gradient of a bias whose scale needs none.
Value* sumOverRows(GradientContext& g, std::size_t operand, Value* dy) {
  const ElementType wanted = operandType(g.op(), operand).element;
  if (dy->type().element != wanted) dy = g.value(operand, "cast", {dy}, {{"to", std::string(nameOf(wanted))}});
  std::vector<std::int64_t> axes;
  for (std::int64_t axis = 0; axis < g.op().attributes.getInt("axis"); ++axis) axes.push_back(axis);
  return g.value(operand, "reduce_sum", {dy}, {{"axes", axes}, {"keep_dims", false}});
}

/// The gradient of Y: of its rounded copy, too.
Value* gradientOfY(GradientContext& g) {
  Value *dy = g.resultGradient(0), *low = g.resultGradient(sumOfNorm(g.op()) + 1);
  if (low) low = g.value(0, "cast", {low}, {{"to", std::string(nameOf(resultType(g.op()).element))}});
  return dy && low ? g.value(0, "add", {dy, low}) : dy ? dy : low;
}

/// What is normalised.
Value* normalised(const Operation& op) {
  return op.operand(addedToNorm(op)) ? op.result(sumOfNorm(op)) : op.operand(0);
}

/// The gradients for X and for what is added to it. `backward`: operands of the gradient for X but the last, what is
/// added to it, the gradient of the sum.
void gradientsOfSum(GradientContext& g, const char* name, bool centred, std::vector<Value*> backward,
                    std::vector<Value*>& gradients) {
  const Operation& op = g.op();
  const std::size_t added = addedToNorm(op);
  const bool wantsAdded = op.operand(added) && g.wants(added);
  if (!g.wants(0) && !wantsAdded) return;
  const std::size_t wanted = g.wants(0) ? 0 : added;
  Value* dx = g.resultGradient(sumOfNorm(op));
  if (Value* statistics = gradientThroughStatistics(g, wanted, normalised(op), centred))
    dx = dx ? g.value(wanted, "add", {dx, statistics}) : statistics;
  if (backward[0]) {
    if (dx) backward.push_back(dx);
    Operation* const made = g.create(wanted, name, backward, onlyAxis(op));
    if (!made) return;
    dx = made->result();
  }
  if (wantsAdded) gradients[added] = dx;
  if (!g.wants(0)) return;
  const ElementType x = operandType(op, 0).element;
  gradients[0] = dx && x != dx->type().element ? g.value(0, "cast", {dx}, {{"to", std::string(nameOf(x))}}) : dx;
}

std::vector<Value*> layerNormGradient(GradientContext& g) {
  const Operation& op = g.op();
  Value *dy = gradientOfY(g), *x = normalised(op), *mean = op.result(1), *inverse = op.result(2);
  std::vector<Value*> gradients(4, nullptr);
  gradientsOfSum(g, "layer_norm_input_gradient", true, {dy, x, op.operand(1), mean, inverse}, gradients);
  if (!dy) return gradients;
  const bool wantsScale = op.operand(1) && g.wants(1), wantsBias = op.operand(2) && g.wants(2);
  if (wantsScale) {
    Operation* backward =
        g.create(1, "layer_norm_weight_gradient", {dy, x, mean, inverse}, onlyAxis(op), {true, wantsBias});
    if (backward) gradients[1] = backward->result(0), gradients[2] = backward->result(1);
  } else if (wantsBias) {
    gradients[2] = sumOverRows(g, 2, dy);
  }
  return gradients;
}

std::vector<Value*> rmsNormGradient(GradientContext& g) {
  const Operation& op = g.op();
  Value *dy = gradientOfY(g), *x = normalised(op), *inverse = op.result(1);
  std::vector<Value*> gradients(3, nullptr);
  gradientsOfSum(g, "rms_norm_input_gradient", false, {dy, x, op.operand(1), inverse}, gradients);
  if (dy && op.operand(1) && g.wants(1))
    gradients[1] = g.value(1, "rms_norm_weight_gradient", {dy, x, inverse}, onlyAxis(op));
  return gradients;
}

/// Statistics serve the gradient, unless the model reads them.
std::vector<Value*> evaluation(const Operation& op, Builder& b) {
  std::vector<bool> wanted(op.results().size(), false);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Value* result = op.result(i);
    const bool isStatistic = i > 0 && i < sumOfNorm(op);
    wanted[i] = result && (!isStatistic || !result->users().empty() || b.graph().isOutput(result));
  }
  Operation* without = b.create(op.def().name, op.operands(), op.attributes, wanted);
  std::vector<Value*> values(op.results().size(), nullptr);
  for (std::size_t i = 0; without && i < wanted.size(); ++i)
    if (wanted[i]) values[i] = without->result(i);
  return values;
}

/// ONNX's two operators. Scale and bias that are not simply the normalised part of X in shape are applied apart.
Expected<std::vector<Value*>> convert(OnnxReader& n, bool centred) {
  Value* x = n.input(0);
  const Type type = x->type();
  const std::optional<std::int64_t> axis = n.axis(n.integer("axis", -1), type.rank());
  const Attributes attributes{{"axis", axis.value_or(0)}, {"epsilon", n.number("epsilon", 1e-5f)}};
  n.ignore("stash_type"); // statistics are exact
  if (!axis) return failure;
  const Shape normalised(type.shape.begin() + *axis, type.shape.end());
  const auto fits = [&](Value* value) { return !value || value->type().shape == normalised; };
  Value *scale = n.input(1), *bias = centred ? n.input(2) : nullptr;
  for (Value* weight : {scale, bias})
    if (weight && broadcast(type.shape, weight->type().shape) != type.shape)
      return n.error() << "scales " << toString(type) << " by " << toString(weight->type())
                       << ", which does not broadcast to it";
  const bool together = fits(scale) && fits(bias);
  std::vector<Value*> operands = {x, together ? scale : nullptr};
  if (centred) operands.push_back(together ? bias : nullptr);
  Operation* op = n.b.create(centred ? "layer_norm" : "rms_norm", operands, attributes);
  if (!op) return failure;
  Value* y = op->result(0);
  if (!together && scale) y = n.value("mul", {y, scale});
  if (!together && bias && y) y = n.value("add", {y, bias});
  std::vector<Value*> results = {y};
  Shape shape = type.shape;
  std::fill(shape.begin() + *axis, shape.end(), 1);
  for (std::size_t i = 1; i < sumOfNorm(*op); ++i)
    results.push_back(n.used(i) ? n.reshape(op->result(i), shape) : nullptr);
  return results;
}

/// The rows are the axes before `axis`. The named operands and results have them; `summed` are results that are summed
/// over them.
OpSplit alongRows(std::vector<std::size_t> operands, std::vector<std::size_t> results,
                  std::vector<std::size_t> summed = {}) {
  return {.loops = [=](const Operation& op) {
    Loops loops(op);
    const auto axis = static_cast<int>(op.attributes.getInt("axis"));
    addAxes(loops, op, {.end = axis, .operands = operands, .results = results, .reduced = summed});
    return loops;
  }};
}

/// What a row is divided by is not 0.
bool dividesByMore(const Operation& op) {
  return op.attributes.get<double>("epsilon") > 0;
}

std::vector<std::string> examples(bool centred) {
  struct Case {
    const char *x, *axis, *weights, *statistics;
    bool scale, bias;
  };
  constexpr Case cases[] = {
      {"[4, 6]", "1", "[6]", "[4]", true, true},       {"[2, 3, 5]", "2", "[5]", "[2, 3]", true, false},
      {"[2, 3, 4]", "1", "[3, 4]", "[2]", true, true}, {"[5]", "0", "[5]", "[]", true, true},
      {"[3, 17]", "1", "[17]", "[3]", false, false},   {"[2, 1, 33]", "2", "[33]", "[2, 1]", false, true},
      {"[3, 1]", "1", "[1]", "[3]", true, true}};
  std::vector<std::string> texts;
  for (const Case& each : cases) {
    const std::string x = std::string("f32") + each.x, w = std::string("f32") + each.weights;
    const bool bias = centred && each.bias;
    const std::string statistics = std::string(", f32") + each.statistics;
    texts.push_back(example("%x: " + x + (each.scale ? ", %scale: " + w : "") + (bias ? ", %bias: " + w : ""),
                            std::string(centred ? "%y, %mean, %inverse, %sum, %low = layer_norm %x"
                                                : "%y, %inverse, %sum, %low = rms_norm %x") +
                                (each.scale ? ", %scale"
                                 : bias     ? ", _"
                                            : "") +
                                (bias ? ", %bias" : "") + " {axis = " + each.axis + ", epsilon = 0.001} : " + x +
                                statistics + (centred ? statistics : "") + ", " + x + ", " + x));
  }
  texts.push_back(example("%x: f32[4, 6], %scale: f32[6], %added: f32[4, 6]",
                          centred ? "%y, %mean, %inverse, %sum, _ = layer_norm %x, %scale, _, %added {axis = 1} : "
                                    "f32[4, 6], f32[4], f32[4], f32[4, 6], _"
                                  : "%y, %inverse, %sum, _ = rms_norm %x, %scale, %added {axis = 1} : "
                                    "f32[4, 6], f32[4], f32[4, 6], _"));
  return texts;
}

OpDef layerNormDef() {
  return {
      .name = "layer_norm",
      .summary = "X, or its sum with another, normalised to mean 0 and variance 1 over the axes from `axis` on, times "
                 "scale, plus bias; and the same rounded",
      .onnx = {onnxMany(
          "LayerNormalization", 2, [](OnnxReader& n) { return convert(n, true); }, 17)},
      .operands = {{"X"}, high("scale", true), high("bias", true), high("added", true)},
      .results = {{"Y"},
                  {.name = "mean", .optional = true},
                  {.name = "inverse_std", .optional = true},
                  {.name = "sum", .optional = true, .asked = true},
                  {.name = "Y_low", .optional = true, .asked = true}},
      .attributes = attributes(/*forward=*/true, "Y_low"),
      .infer =
          [](const InferContext& c) {
            const Operands operands{.x = 0, .statistics = {}, .weights = {1, 2}, .added = 3};
            return forwardTypes(c, "layer_norm", operands, 2);
          },
      .verify = verifyForward,
      .precision = PrecisionClass::keepHigh,
      .cost = perElement(8),
      .gradient = layerNormGradient,
      .kernel = {.use = [](const Operation& op) { return kernel(op, "forward", 0); }},
      .rewrites = {.evaluation = evaluation, .raise = raiseLayerNorm, .absorb = absorbAroundNorm},
      .split = alongRows({0, 3}, {0, 1, 2, 3, 4}),
      .usage = {.initialValues = startsAt(1, {1, 0}), .staysFinite = dividesByMore},
      .reference = reference([]<class T>(ReferenceContext& c) { layerNormReference<T>(c, true); }),
      .examples = examples(true),
      .facts = {.takesLow = true},
  };
}

OpDef layerNormInputGradientDef() {
  return {
      .name = "layer_norm_input_gradient",
      .summary = "Gradient of layer_norm for X, to which something may be added; and the same rounded",
      .operands = {{"dY"}, high("X"), high("scale", true), high("mean"), high("inverse_std"), high("added", true)},
      .results = {{"dX"}, {.name = "dX_low", .optional = true, .asked = true}},
      .attributes = attributes(/*forward=*/false, "dX_low"),
      .infer =
          [](const InferContext& c) {
            const Operands operands{.x = 1, .statistics = {3, 4}, .weights = {2}};
            return inputGradientTypes(c, "layer_norm_input_gradient", operands, 5);
          },
      .precision = PrecisionClass::keepHigh,
      .cost = perElement(12),
      .kernel = {.use = [](const Operation& op) { return kernel(op, "inputGradient", 1); },
                 .replaceable = {{.operand = 0}, {.operand = 5}}},
      .rewrites = {.absorb = absorbAroundNormGradient},
      .split = alongRows({0, 1, 3, 4, 5}, {0, 1}),
      .reference = reference([]<class T>(ReferenceContext& c) { layerNormInputGradientReference<T>(c, true); }),
      .examples = {example("%dy: f32[4, 6], %x: f32[4, 6], %scale: f32[6], %mean: f32[4], %i: f32[4]",
                           "%dx, _ = layer_norm_input_gradient %dy, %x, %scale, %mean, %i {axis = 1} : f32[4, 6], _"),
                   example("%dy: f32[2, 3, 17], %x: f32[2, 3, 17], %mean: f32[2, 3], %i: f32[2, 3], "
                           "%added: f32[2, 3, 17]",
                           "%dx, _ = layer_norm_input_gradient %dy, %x, _, %mean, %i, %added {axis = 2} : "
                           "f32[2, 3, 17], _"),
                   example("%dy: f32[2, 2, 3], %x: f32[2, 2, 3], %mean: f32[2, 2], %i: f32[2, 2]",
                           "%dx, %low = layer_norm_input_gradient %dy, %x, _, %mean, %i {axis = 2} : f32[2, 2, 3], "
                           "f32[2, 2, 3]")},
      .facts = {.takesLow = true},
  };
}

OpDef layerNormWeightGradientDef() {
  return {
      .name = "layer_norm_weight_gradient",
      .summary = "Gradients of layer_norm for scale and, if asked for, bias",
      .operands = {{"dY"}, high("X"), high("mean"), high("inverse_std")},
      .results = {{"dscale"}, {.name = "dbias", .optional = true}},
      .attributes = attributes(/*forward=*/false),
      .infer = [](const InferContext& c) -> Types {
        const auto parts = split(c, "layer_norm_weight_gradient", {.x = 1, .statistics = {2, 3}, .weights = {}});
        if (!parts) return failure;
        return std::vector<Type>{parts->weights, parts->weights};
      },
      .precision = PrecisionClass::keepHigh,
      .cost = perElement(5),
      .kernel = {.use = [](const Operation& op) { return kernel(op, "weightGradient", 1); }},
      .split = alongRows({0, 1, 2, 3}, {}, {0, 1}),
      .reference = reference([]<class T>(ReferenceContext& c) { layerNormWeightGradientReference<T>(c, true); }),
      .examples = {example("%dy: f32[4, 6], %x: f32[4, 6], %mean: f32[4], %i: f32[4]",
                           "%ds, %db = layer_norm_weight_gradient %dy, %x, %mean, %i {axis = 1} : f32[6], f32[6]"),
                   example("%dy: f32[5, 2, 3], %x: f32[5, 2, 3], %mean: f32[5], %i: f32[5]",
                           "%ds, _ = layer_norm_weight_gradient %dy, %x, %mean, %i {axis = 1} : f32[2, 3], _"),
                   example("%dy: f32[2, 3, 4], %x: f32[2, 3, 4], %mean: f32[2, 3], %i: f32[2, 3]",
                           "%ds, %db = layer_norm_weight_gradient %dy, %x, %mean, %i {axis = 2} : f32[4], f32[4]")},
      .facts = {.takesLow = true},
  };
}

OpDef rmsNormDef() {
  return {
      .name = "rms_norm",
      .summary = "X, or its sum with another, divided by its root mean square over the axes from `axis` on, times "
                 "scale; and the same rounded",
      .onnx = {onnxMany(
          "RMSNormalization", 2, [](OnnxReader& n) { return convert(n, false); }, 23)},
      .operands = {{"X"}, high("scale", true), high("added", true)},
      .results = {{"Y"},
                  {.name = "inverse_rms", .optional = true},
                  {.name = "sum", .optional = true, .asked = true},
                  {.name = "Y_low", .optional = true, .asked = true}},
      .attributes = attributes(/*forward=*/true, "Y_low"),
      .infer =
          [](const InferContext& c) {
            const Operands operands{.x = 0, .statistics = {}, .weights = {1}, .added = 2};
            return forwardTypes(c, "rms_norm", operands, 1);
          },
      .verify = verifyForward,
      .precision = PrecisionClass::keepHigh,
      .cost = perElement(5),
      .gradient = rmsNormGradient,
      .kernel = {.use = [](const Operation& op) { return kernel(op, "rmsForward", 0); }},
      .rewrites = {.evaluation = evaluation, .raise = raiseRmsNorm, .absorb = absorbAroundNorm},
      .split = alongRows({0, 2}, {0, 1, 2, 3}),
      .usage = {.initialValues = startsAt(1, {1}), .staysFinite = dividesByMore},
      .reference = reference([]<class T>(ReferenceContext& c) { layerNormReference<T>(c, false); }),
      .examples = examples(false),
      .facts = {.takesLow = true},
  };
}

OpDef rmsNormInputGradientDef() {
  return {
      .name = "rms_norm_input_gradient",
      .summary = "Gradient of rms_norm for X, to which something may be added; and the same rounded",
      .operands = {{"dY"}, high("X"), high("scale", true), high("inverse_rms"), high("added", true)},
      .results = {{"dX"}, {.name = "dX_low", .optional = true, .asked = true}},
      .attributes = attributes(/*forward=*/false, "dX_low"),
      .infer =
          [](const InferContext& c) {
            const Operands operands{.x = 1, .statistics = {3}, .weights = {2}};
            return inputGradientTypes(c, "rms_norm_input_gradient", operands, 4);
          },
      .precision = PrecisionClass::keepHigh,
      .cost = perElement(9),
      .kernel = {.use = [](const Operation& op) { return kernel(op, "rmsInputGradient", 1); },
                 .replaceable = {{.operand = 0}, {.operand = 4}}},
      .rewrites = {.absorb = absorbAroundNormGradient},
      .split = alongRows({0, 1, 3, 4}, {0, 1}),
      .reference = reference([]<class T>(ReferenceContext& c) { layerNormInputGradientReference<T>(c, false); }),
      .examples = {example("%dy: f32[4, 6], %x: f32[4, 6], %scale: f32[6], %i: f32[4]",
                           "%dx, _ = rms_norm_input_gradient %dy, %x, %scale, %i {axis = 1} : f32[4, 6], _"),
                   example("%dy: f32[2, 3, 17], %x: f32[2, 3, 17], %i: f32[2, 3], %added: f32[2, 3, 17]",
                           "%dx, _ = rms_norm_input_gradient %dy, %x, _, %i, %added {axis = 2} : f32[2, 3, 17], _"),
                   example("%dy: f32[2, 2, 3], %x: f32[2, 2, 3], %i: f32[2, 2]",
                           "%dx, %low = rms_norm_input_gradient %dy, %x, _, %i {axis = 2} : f32[2, 2, 3], "
                           "f32[2, 2, 3]")},
      .facts = {.takesLow = true},
  };
}

OpDef rmsNormWeightGradientDef() {
  return {
      .name = "rms_norm_weight_gradient",
      .summary = "Gradient of rms_norm for scale",
      .operands = {{"dY"}, high("X"), high("inverse_rms")},
      .results = {{"dscale"}},
      .attributes = attributes(/*forward=*/false),
      .infer = [](const InferContext& c) -> Types {
        const auto parts = split(c, "rms_norm_weight_gradient", {.x = 1, .statistics = {2}, .weights = {}});
        if (!parts) return failure;
        return std::vector<Type>{parts->weights};
      },
      .precision = PrecisionClass::keepHigh,
      .cost = perElement(4),
      .kernel = {.use = [](const Operation& op) { return kernel(op, "rmsWeightGradient", 1); }},
      .split = alongRows({0, 1, 2}, {}, {0}),
      .reference = reference([]<class T>(ReferenceContext& c) { layerNormWeightGradientReference<T>(c, false); }),
      .examples = {example("%dy: f32[4, 6], %x: f32[4, 6], %i: f32[4]",
                           "%ds = rms_norm_weight_gradient %dy, %x, %i {axis = 1} : f32[6]"),
                   example("%dy: f32[5, 2, 3], %x: f32[5, 2, 3], %i: f32[5]",
                           "%ds = rms_norm_weight_gradient %dy, %x, %i {axis = 1} : f32[2, 3]"),
                   example("%dy: f32[2, 3, 4], %x: f32[2, 3, 4], %i: f32[2, 3]",
                           "%ds = rms_norm_weight_gradient %dy, %x, %i {axis = 2} : f32[4]")},
      .facts = {.takesLow = true},
  };
}

} // namespace

std::vector<OpDef> define() {
  return {layerNormDef(), layerNormInputGradientDef(), layerNormWeightGradientDef(),
          rmsNormDef(),   rmsNormInputGradientDef(),   rmsNormWeightGradientDef()};
}

} // namespace pdc::ops::LayerNorm
