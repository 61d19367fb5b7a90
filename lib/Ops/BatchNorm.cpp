// Batch normalisation (Ioffe and Szegedy 2015) over all axes but the second: with the minibatch's statistics in
// training, with running statistics in inference. Kernel: pdcrt::BatchNorm.
#include "Convert/Onnx.h"
#include "Kernels/KernelOptions.h"
#include "Raise/MatchExpression.h"
#include "Shared/BatchNormReference.h"
#include "Shared/Define.h"
#include "Shared/InitialValues.h"
#include "Shared/LoopsOf.h"

#include "pdc/IR/Builder.h"
#include "pdc/IR/Elementwise.h"

#include <cmath>

namespace pdc::ops::BatchNorm {

namespace {

std::vector<AttributeDef> attributes(bool momentum, bool relu = false) {
  std::vector<AttributeDef> defs = {number("epsilon", 1e-5, "is added to the variance")};
  if (relu) defs.push_back(boolean("relu", false, "whether Y has nothing below 0, after the residual was added"));
  if (momentum) {
    defs.push_back(number("momentum", 0.9, "share of the old running statistics in the new ones"));
    defs.push_back(boolean("unbiased", false, "whether the variance that moves the running one is divided by n - 1"));
  }
  return defs;
}

/// Operand `x` is [N, C, …]; the operands in `like` have its type, the other floats are [C].
Status requireChannels(const InferContext& c, const char* op, std::size_t x, std::vector<std::size_t> like = {}) {
  if (!requireFloat(c, op, x, 2)) return failure;
  const Type& type = c.operand(x);
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    if (!has(c, i)) continue;
    const bool same = i == x || std::find(like.begin(), like.end(), i) != like.end();
    if (!requireType(c, op, i, same ? type : Type{type.element, {type.shape[1]}}, "the number of channels"))
      return failure;
  }
  return success;
}

Type channelType(const InferContext& c, std::size_t x) {
  return {c.operand(x).element, {c.operand(x).shape[1]}};
}

KernelUse kernel(const Operation& op, const char* method, std::size_t x) {
  return kernelUse<pdcrt::BatchNorm>("BatchNorm", method,
                                     {.input = toRuntime(operandType(op, x).shape),
                                      .epsilon = op.attributes.getFloat("epsilon"),
                                      .momentum = op.attributes.getOr("momentum", 0.9),
                                      .unbiased = op.attributes.getOr("unbiased", false),
                                      .relu = op.attributes.getOr("relu", false),
                                      .lanes = lanesOf(op)});
}

/// The axes of operand `x`: the channels, which all operands and results have, and the others, over which the gradients
/// of scale and bias are summed. The others may be divided only where no statistics of them are computed.
std::function<Loops(const Operation&)> loopsOver(std::size_t x, bool channelsOnly) {
  return [=](const Operation& op) {
    Loops loops(op);
    const Shape& shape = operandType(op, x).shape;
    for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis) {
      if (axis != 1 && channelsOnly) continue;
      Index index{.size = shape[static_cast<std::size_t>(axis)], .operands = {}, .results = {}};
      const auto hasAll = [](const Value* value) { return value && value->type().rank() > 1; };
      for (std::size_t i = 0; i < op.operands().size(); ++i)
        if (hasAll(op.operand(i)) || axis == 1) index.operands.push_back({i, hasAll(op.operand(i)) ? axis : 0});
      for (std::size_t i = 0; i < op.results().size(); ++i) {
        if (!op.result(i)) continue;
        if (hasAll(op.result(i)) || axis == 1)
          index.results.push_back({i, hasAll(op.result(i)) ? axis : 0});
        else
          index.reduced.push_back(i);
      }
      addIndex(loops, op, index);
    }
    return loops;
  };
}

std::vector<Value*> trainGradient(GradientContext& g) {
  const Operation& op = g.op();
  std::vector<Value*> gradients(op.operands().size(), nullptr);
  if (!g.resultGradient(0)) return gradients;
  const bool relu = op.attributes.get<bool>("relu"), residual = op.operand(5);
  // One kernel yields all of them; it belongs to the input gradient (semantics of a split backward).
  Operation* backward =
      g.create(0, "batch_norm_gradient",
               {g.resultGradient(0), op.operand(0), op.operand(1), op.result(1), op.result(2),
                relu && residual ? op.result(0) : nullptr, relu && !residual ? op.operand(2) : nullptr},
               {{"epsilon", op.attributes.getFloat("epsilon")}, {"relu", relu}}, {true, true, true, residual});
  if (!backward) return gradients;
  for (std::size_t i = 0; i < 3; ++i) gradients[i] = g.wants(i) ? backward->result(i) : nullptr;
  if (residual && g.wants(5)) gradients[5] = backward->result(3);
  for (std::size_t i : {3, 4}) // Y does not depend on the running statistics
    if (g.wants(i)) {
      Value* zero = g.value(i, "constant", {}, {{"value", Tensor::scalar(0, operandType(op, i).element)}});
      gradients[i] = g.value(i, "broadcast", {zero}, {{"shape", operandType(op, i).shape}});
    }
  return gradients;
}

std::vector<Value*> frozenGradient(GradientContext& g) {
  const Operation& op = g.op();
  std::vector<Value*> gradients(5, nullptr);
  if (!g.resultGradient(0)) return gradients;
  const std::vector<Value*> operands = {g.resultGradient(0), op.operand(0), op.operand(1), op.operand(3),
                                        op.operand(4)};
  const char* name = "batch_norm_frozen_gradient";
  if (g.wants(0))
    if (Operation* backward = g.create(0, name, operands, op.attributes, {true, false, false}))
      gradients[0] = backward->result(0);
  const bool wantsStatistics = g.wants(3) || g.wants(4);
  if (!g.wants(1) && !g.wants(2) && !wantsStatistics) return gradients;
  const std::size_t first = g.wants(1) ? 1 : g.wants(2) ? 2 : g.wants(3) ? 3 : 4;
  Operation* backward = g.create(first, name, operands, op.attributes, {false, true, true});
  if (!backward) return gradients;
  for (std::size_t i : {1, 2}) gradients[i] = g.wants(i) ? backward->result(i) : nullptr;
  if (!wantsStatistics) return gradients;
  // Statistics that the model computes. With dscale = Σ dY · (X - mean) / std and dbias = Σ dY:
  // dmean = -dbias · scale / std, dvariance = -dscale · scale / (2 · std²).
  const std::string variance = "(a2 + " + toString(*numberExpression(op.attributes.getFloat("epsilon"))) + ")";
  const auto ofStatistic = [&](std::size_t i, Value* sum, const std::string& expression) {
    if (g.wants(i))
      gradients[i] = g.value(i, "elementwise", {sum, op.operand(1), op.operand(4)},
                             {{"expressions", std::vector<std::string>{expression}}});
  };
  ofStatistic(3, backward->result(2), "-(a0 * a1) / sqrt" + variance);
  ofStatistic(4, backward->result(1), "-0.5 * (a0 * a1) / " + variance);
  return gradients;
}

/// batch_norm_training, when max(Y, 0), Y + residual, or max(Y + residual, 0) is all that Y is for.
Absorbed absorbActivation(Operation& op, Builder& b) {
  Value* y = op.result(0);
  Operation* follower = onlyUser(y);
  if (!follower || op.attributes.get<bool>("relu") || op.operand(5)) return {};
  const ExpressionPtr whole = expressionsOf(*follower).front();
  const bool relu = isCall(*whole, "max", 2) && isNumber(*whole->arguments[1], 0);
  const Expression& sum = relu ? *whole->arguments[0] : *whole;
  Value* residual = nullptr;
  if (isBinary(sum, "+") && follower->operands().size() == 2) {
    const std::size_t other = follower->operand(0) == y ? 1 : 0;
    residual = follower->operand(other);
    const std::string names[] = {operandNameInExpressions(follower->def(), 0),
                                 operandNameInExpressions(follower->def(), 1)};
    const bool isSum = (isName(*sum.arguments[0], names[0]) && isName(*sum.arguments[1], names[1])) ||
                       (isName(*sum.arguments[0], names[1]) && isName(*sum.arguments[1], names[0]));
    if (!isSum || residual->type() != y->type()) return {};
  } else if (!relu || !isName(sum, operandNameInExpressions(follower->def(), 0))) {
    return {};
  }
  Attributes attributes = op.attributes;
  attributes.set("relu", relu);
  std::vector<Value*> operands(op.operands().begin(), op.operands().begin() + 5);
  if (residual) operands.push_back(residual);
  b.setInsertionPoint(follower);
  std::vector<bool> wanted;
  for (const Value* result : op.results()) wanted.push_back(result != nullptr);
  Operation* made = b.create(op.def().name, operands, attributes, wanted);
  if (!made) return {};
  Absorbed absorbed{.made = made, .gone = {&op, follower}, .replaced = {{follower->result(), made->result(0)}}};
  for (std::size_t i = 1; i < op.results().size(); ++i)
    if (op.result(i)) absorbed.replaced.emplace_back(op.result(i), made->result(i));
  return absorbed;
}

/// batch_norm_gradient, when its dY is select(Y > 0, dY', 0): the gradient of a ReLU.
Absorbed absorbMask(Operation& op, Builder& b) {
  Value* dy = op.operand(0);
  Operation* mask = dy->definer();
  if (!mask || mask->def().kind != OpKind::elementwise || mask->results().size() != 1 || mask->operands().size() != 2 ||
      op.attributes.get<bool>("relu") || op.result(3))
    return {};
  const ExpressionPtr select = expressionsOf(*mask).front();
  if (!isCall(*select, "select", 3) || !isNumber(*select->arguments[2], 0)) return {};
  const Expression &positive = *select->arguments[0], &gradient = *select->arguments[1];
  const std::string names[] = {operandNameInExpressions(mask->def(), 0), operandNameInExpressions(mask->def(), 1)};
  if (!isBinary(positive, ">") || !isName(*positive.arguments[0], names[1]) || !isNumber(*positive.arguments[1], 0) ||
      !isName(gradient, names[0]))
    return {};
  if (mask->operand(0)->type() != dy->type() || mask->operand(1)->type() != dy->type()) return {};
  // What comes through the ReLU is the gradient of the residual, too.
  const bool others = dy->users().size() > 1;
  Attributes attributes = op.attributes;
  attributes.set("relu", true);
  Value* const y = mask->operand(1);
  const Operation* forward = y->definer();
  // Y need not be kept, nor read, where it is X normalised and nothing else.
  const bool again = forward && forward->def().name == "batch_norm_training" && forward->result(0) == y &&
                     forward->operand(0) == op.operand(1) && !forward->operand(5);
  b.setInsertionPoint(mask); // before whatever else reads dY
  Operation* made = b.create(op.def().name,
                             {mask->operand(0), op.operand(1), op.operand(2), op.operand(3), op.operand(4),
                              again ? nullptr : y, again ? forward->operand(2) : nullptr},
                             attributes, {true, true, true, others});
  if (!made) return {};
  Absorbed absorbed{.made = made, .gone = {mask, &op}, .replaced = {}};
  for (std::size_t i = 0; i < 3; ++i) absorbed.replaced.emplace_back(op.result(i), made->result(i));
  if (others) absorbed.replaced.emplace_back(dy, made->result(3));
  return absorbed;
}

/// ONNX BatchNormalization. It trains with `training_mode` since opset 14, with more than one output before.
Expected<std::vector<Value*>> convert(OnnxReader& n) {
  const double epsilon = n.number("epsilon", 1e-5f), momentum = n.number("momentum", 0.9f);
  const bool training = n.version() >= 14 ? n.integer("training_mode", 0) != 0 : n.node.outputs > 1;
  if (n.version() < 9 && n.integer("spatial", 1) == 0)
    return n.unsupported() << "has spatial = 0, statistics per element are not supported";
  const std::vector<Value*> operands = {n.input(0), n.input(1), n.input(2), n.input(3), n.input(4)};
  if (!training) {
    Value* y = n.value("batch_norm", operands, {{"epsilon", epsilon}});
    return y ? Expected(std::vector{y}) : failure;
  }
  Operation* op =
      n.b.create("batch_norm_training", operands,
                 {{"epsilon", epsilon}, {"momentum", momentum}, {"unbiased", n.integer("unbiased", 0) != 0}},
                 {true, true, true, n.used(1), n.used(2)});
  return op ? Expected(std::vector{op->result(0), op->result(3), op->result(4)}) : failure;
}

std::vector<std::string> trainExamples() {
  std::vector<std::string> texts;
  constexpr const char* shapes[][2] = {
      {"[4, 3, 2, 2]", "[3]"}, {"[5, 2]", "[2]"}, {"[2, 1, 4]", "[1]"}, {"[2, 3, 1, 2, 2]", "[3]"}, {"[6, 4]", "[4]"}};
  for (const auto& [x, channels] : shapes) {
    const std::string c = std::string("f32") + channels, t = std::string("f32") + x;
    texts.push_back(example("%x: " + t + ", %scale: " + c + ", %bias: " + c + ", %mean: " + c + ", %positive: " + c,
                            "%y, %m, %i, %new_mean, %new_variance = batch_norm_training %x, %scale, %bias, %mean, "
                            "%positive {epsilon = 0.001, momentum = 0.75} : " +
                                t + ", " + c + ", " + c + ", " + c + ", " + c));
  }
  texts.push_back(example("%x: f32[4, 3, 2], %scale: f32[3], %bias: f32[3], %mean: f32[3], %positive: f32[3]",
                          "%y, %m, %i, %new_mean, %new_variance = batch_norm_training %x, %scale, %bias, %mean, "
                          "%positive {unbiased = true} : f32[4, 3, 2], f32[3], f32[3], f32[3], f32[3]"));
  const std::string c = "f32[3]", t = "f32[3, 3, 2, 1]";
  for (const char* residual : {"", ", %residual"})
    texts.push_back(example("%x: " + t + ", %scale: " + c + ", %bias: " + c + ", %mean: " + c + ", %positive: " + c +
                                (*residual ? residual + (": " + t) : ""),
                            "%y, %m, %i, _, _ = batch_norm_training %x, %scale, %bias, %mean, %positive" +
                                std::string(residual) + " {epsilon = 0.001, relu = true} : " + t + ", " + c + ", " + c +
                                ", _, _"));
  return texts;
}

std::vector<std::string> inferenceExamples() {
  std::vector<std::string> texts;
  constexpr const char* shapes[][2] = {
      {"[2, 3, 2, 2]", "[3]"}, {"[5, 2]", "[2]"}, {"[2, 1, 4]", "[1]"}, {"[1, 3, 1, 2, 2]", "[3]"}, {"[1, 4]", "[4]"}};
  for (const auto& [x, channels] : shapes) {
    const std::string c = std::string("f32") + channels, t = std::string("f32") + x;
    texts.push_back(example("%x: " + t + ", %scale: " + c + ", %bias: " + c + ", %mean: " + c + ", %positive: " + c,
                            "%y = batch_norm %x, %scale, %bias, %mean, %positive {epsilon = 0.001} : " + t));
  }
  return texts;
}

OpDef batchNormDef() {
  return {
      .name = "batch_norm",
      .summary = "X normalised per channel by running statistics, times scale, plus bias",
      .onnx = {onnxMany("BatchNormalization", 5, convert)},
      .operands = {{"X"}, {"scale"}, {"bias"}, {"running_mean"}, {"running_variance"}},
      .results = {{"Y"}},
      .attributes = attributes(/*momentum=*/false),
      .infer = [](const InferContext& c) -> Types {
        if (!requireChannels(c, "batch_norm", 0)) return failure;
        return std::vector<Type>{c.operand(0)};
      },
      .precision = PrecisionClass::keepHigh,
      .cost = perElement(2),
      .gradient = frozenGradient,
      .kernel = {.use = [](const Operation& op) { return kernel(op, "forward", 0); },
                 .channelBlocks = everyPlane,
                 .replaceable = {{.operand = 0}}},
      .split = {.loops = loopsOver(0, /*channelsOnly=*/false)},
      .usage = {.initialValues = startsAt(1, {1, 0, 0, 1})},
      .reference = reference([]<class T>(ReferenceContext& c) {
        const auto x = c.in<T>(0), scale = c.in<T>(1), bias = c.in<T>(2), mean = c.in<T>(3), variance = c.in<T>(4);
        const auto y = c.out<T>(0);
        const T epsilon = static_cast<T>(c.op.attributes.getFloat("epsilon"));
        NormChannels(operandType(c.op, 0).shape).forEach([&](std::int64_t i, std::int64_t channel) {
          y[i] = (x[i] - mean[channel]) / std::sqrt(variance[channel] + epsilon) * scale[channel] + bias[channel];
        });
      }),
      .examples = inferenceExamples(),
  };
}

OpDef batchNormTrainingDef() {
  return {
      .name = "batch_norm_training",
      .summary = "X normalised per channel by its own statistics, which also move the running ones, and perhaps what "
                 "follows: plus a residual, and no less than 0",
      .operands =
          {{"X"}, {"scale"}, {"bias"}, {"running_mean"}, {"running_variance"}, {.name = "residual", .optional = true}},
      .results = {{"Y"},
                  {"mean"},
                  {"inverse_std"},
                  {.name = "new_running_mean", .optional = true, .detached = true},
                  {.name = "new_running_variance", .optional = true, .detached = true}},
      .attributes = attributes(/*momentum=*/true, /*relu=*/true),
      .infer = [](const InferContext& c) -> Types {
        if (!requireChannels(c, "batch_norm_training", 0, {5})) return failure;
        const Type channels = channelType(c, 0);
        return std::vector<Type>{c.operand(0), channels, channels, channels, channels};
      },
      .precision = PrecisionClass::keepHigh,
      .cost = perElement(7),
      .gradient = trainGradient,
      .kernel = {.use = [](const Operation& op) { return kernel(op, "trainForward", 0); },
                 .channelBlocks = everyPlane,
                 .replaceable = {{.operand = 5}}},
      .rewrites = {
          .again = [](const Operation& op, Builder& b) -> Operation* {
            std::vector<Value*> operands = {op.operand(0), op.operand(1), op.operand(2), op.result(1), op.result(2)};
            if (op.operand(5)) operands.push_back(op.operand(5));
            return b.create(
                "batch_norm_training_again", operands,
                {{"epsilon", op.attributes.getFloat("epsilon")}, {"relu", op.attributes.get<bool>("relu")}});
          },
          .evaluation = [](const Operation& op, Builder& b) -> std::vector<Value*> {
            const std::vector<Value*> operands(op.operands().begin(), op.operands().begin() + 5);
            Value* y = b.value("batch_norm", operands, {{"epsilon", op.attributes.getFloat("epsilon")}});
            const bool relu = op.attributes.get<bool>("relu"), residual = op.operand(5);
            if (y && (relu || residual)) {
              const std::string sum = residual ? "a0 + a1" : "a0";
              const std::vector<std::string> expressions{relu ? "max(" + sum + ", 0)" : sum};
              y = b.value("elementwise", residual ? std::vector{y, op.operand(5)} : std::vector{y},
                          {{"expressions", expressions}});
            }
            // Running statistics stay as they are.
            Value *mean = op.result(3) ? op.operand(3) : nullptr, *variance = op.result(4) ? op.operand(4) : nullptr;
            return {y, nullptr, nullptr, mean, variance};
          },
          .absorb = absorbActivation},
      .split = {.loops = loopsOver(0, /*channelsOnly=*/true)},
      .usage = {.initialValues = startsAt(1, {1, 0, 0, 1})},
      .reference = reference([]<class T>(ReferenceContext& c) { batchNormTrainingReference<T>(c); }),
      .examples = trainExamples(),
  };
}

OpDef batchNormTrainingAgainDef() {
  return {
      .name = "batch_norm_training_again",
      .summary = "Y of batch_norm_training from the statistics that it has saved, in one pass and with the same bits",
      .operands = {{"X"}, {"scale"}, {"bias"}, {"mean"}, {"inverse_std"}, {.name = "residual", .optional = true}},
      .results = {{"Y"}},
      .attributes = attributes(/*momentum=*/false, /*relu=*/true),
      .infer = [](const InferContext& c) -> Types {
        if (!requireChannels(c, "batch_norm_training_again", 0, {5})) return failure;
        return std::vector<Type>{c.operand(0)};
      },
      .precision = PrecisionClass::keepHigh,
      .cost = perElement(2),
      .kernel = {.use = [](const Operation& op) { return kernel(op, "trainForwardAgain", 0); },
                 .channelBlocks = everyPlane},
      .split = {.loops = loopsOver(0, /*channelsOnly=*/false)},
      .reference = reference([]<class T>(ReferenceContext& c) { batchNormReference<T>(c, c.in<T>(3), c.in<T>(4)); }),
      .examples = {example("%x: f32[4, 3, 2, 2], %scale: f32[3], %bias: f32[3], %mean: f32[3], %i: f32[3]",
                           "%y = batch_norm_training_again %x, %scale, %bias, %mean, %i : f32[4, 3, 2, 2]"),
                   example("%x: f32[4, 3, 2], %scale: f32[3], %bias: f32[3], %mean: f32[3], %i: f32[3], "
                           "%residual: f32[4, 3, 2]",
                           "%y = batch_norm_training_again %x, %scale, %bias, %mean, %i, %residual {relu = true} : "
                           "f32[4, 3, 2]")},
  };
}

OpDef batchNormGradientDef() {
  return {
      .name = "batch_norm_gradient",
      .summary =
          "Gradients of batch_norm_training for X, scale and bias; what its ReLU let through says Y, or with bias "
          "X, from which it is computed again where there was no residual",
      .operands = {{"dY"},
                   {"X"},
                   {"scale"},
                   {"mean"},
                   {"inverse_std"},
                   {.name = "Y", .optional = true},
                   {.name = "bias", .optional = true}},
      .results = {{"dX"}, {"dscale"}, {"dbias"}, {.name = "dresidual", .optional = true}},
      .attributes = attributes(/*momentum=*/false, /*relu=*/true),
      .infer = [](const InferContext& c) -> Types {
        if (!requireChannels(c, "batch_norm_gradient", 0, {1, 5})) return failure;
        if (c.attributes.get<bool>("relu") && has(c, 5) == has(c, 6))
          return c.error() << "'batch_norm_gradient' op needs either Y or bias for its ReLU";
        return std::vector<Type>{c.operand(0), channelType(c, 0), channelType(c, 0), c.operand(0)};
      },
      .precision = PrecisionClass::keepHigh,
      .cost = perElement(10),
      .kernel = {.use = [](const Operation& op) { return kernel(op, "gradient", 1); },
                 .channelBlocks = everyPlane,
                 .replaceable = {{.operand = 0, .result = 3}, {.operand = 0}, {.operand = 1}}},
      .rewrites = {.absorb = absorbMask},
      .split = {.loops = loopsOver(1, /*channelsOnly=*/true)},
      .reference = reference([]<class T>(ReferenceContext& c) { batchNormGradientReference<T>(c); }),
      .examples = {example("%dy: f32[4, 3, 2, 2], %x: f32[4, 3, 2, 2], %scale: f32[3], %mean: f32[3], %i: f32[3]",
                           "%dx, %dscale, %dbias, _ = batch_norm_gradient %dy, %x, %scale, %mean, %i {epsilon = "
                           "0.001} : f32[4, 3, 2, 2], f32[3], f32[3], _"),
                   example("%dy: f32[4, 3, 2], %x: f32[4, 3, 2], %scale: f32[3], %mean: f32[3], %i: f32[3], "
                           "%y: f32[4, 3, 2]",
                           "%dx, %dscale, %dbias, %dr = batch_norm_gradient %dy, %x, %scale, %mean, %i, %y {relu = "
                           "true} : f32[4, 3, 2], f32[3], f32[3], f32[4, 3, 2]"),
                   example("%dy: f32[4, 3, 2], %x: f32[4, 3, 2], %scale: f32[3], %mean: f32[3], %i: f32[3], "
                           "%bias: f32[3]",
                           "%dx, %dscale, %dbias, _ = batch_norm_gradient %dy, %x, %scale, %mean, %i, _, %bias "
                           "{relu = true} : f32[4, 3, 2], f32[3], f32[3], _")},
  };
}

OpDef batchNormFrozenGradientDef() {
  return {
      .name = "batch_norm_frozen_gradient",
      .summary = "Gradients of batch_norm for X, scale and bias, from which those of the statistics follow",
      .operands = {{"dY"}, {"X"}, {"scale"}, {"running_mean"}, {"running_variance"}},
      .results = {{.name = "dX", .optional = true},
                  {.name = "dscale", .optional = true},
                  {.name = "dbias", .optional = true}},
      .attributes = attributes(/*momentum=*/false),
      .infer = [](const InferContext& c) -> Types {
        if (!requireChannels(c, "batch_norm_frozen_gradient", 0, {1})) return failure;
        return std::vector<Type>{c.operand(0), channelType(c, 0), channelType(c, 0)};
      },
      .precision = PrecisionClass::keepHigh,
      .cost = perElement(5),
      .kernel = {.use = [](const Operation& op) { return kernel(op, "frozenGradient", 1); },
                 .channelBlocks = everyPlane,
                 .replaceable = {{.operand = 0}}},
      .split = {.loops = loopsOver(1, /*channelsOnly=*/false)},
      .reference = reference([]<class T>(ReferenceContext& c) { batchNormFrozenGradientReference<T>(c); }),
      .examples = {example("%dy: f32[4, 3, 2], %x: f32[4, 3, 2], %scale: f32[3], %mean: f32[3], %positive: f32[3]",
                           "%dx, _, _ = batch_norm_frozen_gradient %dy, %x, %scale, %mean, %positive {epsilon = "
                           "0.001} : f32[4, 3, 2], _, _"),
                   example("%dy: f32[4, 3], %x: f32[4, 3], %scale: f32[3], %mean: f32[3], %positive: f32[3]",
                           "_, %dscale, %dbias = batch_norm_frozen_gradient %dy, %x, %scale, %mean, %positive "
                           "{epsilon = 0.001} : _, f32[3], f32[3]")},
  };
}

} // namespace

std::vector<OpDef> define() {
  return {batchNormDef(), batchNormTrainingDef(), batchNormTrainingAgainDef(), batchNormGradientDef(),
          batchNormFrozenGradientDef()};
}

} // namespace pdc::ops::BatchNorm
