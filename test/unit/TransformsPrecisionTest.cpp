// LINK: pdcTransforms pdcOps
// Mixed precision in the interpreter: products in bf16 and f16, master weights in f32, static and dynamic loss scales.
#include "TransformsTesting.h"

#include "pdc/Transforms/Precision.h"
#include "pdcrt/LossScale.h"

#include <cmath>

using namespace pdc;
using namespace pdc::testing;

namespace {

constexpr const char* mlp = R"(module @mlp {
  param %w1 : f32[8, 5]
  param %w2 : f32[5, 3]
  graph @main(%x: f32[6, 8], %target: f32[6, 3] label) {
    %a = matmul %x, %w1 : f32[6, 5]
    %h = tanh %a : f32[6, 5]
    %y = matmul %h, %w2 : f32[6, 3]
    %d = sub %y, %target : f32[6, 3]
    %s = mul %d, %d : f32[6, 3]
    %mean = reduce_mean %s {axes = [0, 1], keep_dims = false} : f32[]
    %small = constant {value = dense<f32[], [FACTOR]>} : f32[]
    %loss = mul %mean, %small : f32[]
    loss %loss
  }
})";

/// With a bias that is trained, and hides a key.
constexpr const char* attention = R"(module @attention {
  param %w : f32[8, 8]
  param %bias : f32[1, 2, 3, 5]
  graph @main(%x: f32[2, 2, 3, 8], %k: f32[2, 2, 5, 8], %v: f32[2, 2, 5, 4], %target: f32[2, 2, 3, 4] label) {
    %q = matmul %x, %w : f32[2, 2, 3, 8]
    %hidden = constant {value = dense<f32[1, 1, 1, 5], [0.0, -1e+31, 0.0, 0.0, 0.0]>} : f32[1, 1, 1, 5]
    %b = add %bias, %hidden : f32[1, 2, 3, 5]
    %y, %largest, %inverse = dot_product_attention %q, %k, %v, %b {hides = true, scale = 0.35} : f32[2, 2, 3, 4], f32[2, 2, 3], f32[2, 2, 3]
    %d = sub %y, %target : f32[2, 2, 3, 4]
    %s = mul %d, %d : f32[2, 2, 3, 4]
    %loss = reduce_mean %s {axes = [0, 1, 2, 3], keep_dims = false} : f32[]
    loss %loss
  }
})";

Status differentiateWith(PassContext& context, const std::string& scale) {
  context.options["loss_scale"] = scale;
  return differentiate(context);
}

/// The model, in low precision unless that is f32, with the gradients of its loss.
std::unique_ptr<Model> modelOf(const std::string& text, ElementType low, const std::string& scale = "") {
  auto model = std::make_unique<Model>(text);
  if (low != ElementType::f32) model->run([&](PassContext& context) { return lowerPrecision(context, low); });
  model->run([&](PassContext& context) { return differentiateWith(context, scale); });
  return model;
}

/// The first one, whose loss is multiplied by `factor`.
std::unique_ptr<Model> modelOf(ElementType low, const std::string& scale, const std::string& factor = "1.0") {
  std::string text = mlp;
  text.replace(text.find("FACTOR"), 6, factor);
  return modelOf(text, low, scale);
}

Tensors some(const Module& module, Graph& graph, bool inputs) {
  return inputs ? randomInputs(graph, 3) : randomParameters(module, 3);
}

double normOf(const Tensor& tensor) {
  double sum = 0;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) sum += tensor.asDouble(i) * tensor.asDouble(i);
  return std::sqrt(sum);
}

/// The norm of the difference of `tensor` / `scale` from `expected`, relative.
double errorOf(const Tensor& tensor, const Tensor& expected, double scale = 1) {
  double sum = 0;
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    sum += std::pow(tensor.asDouble(i) / scale - expected.asDouble(i), 2);
  return std::sqrt(sum) / normOf(expected);
}

InterpreterResult resultOf(Model& model, Precision precision = Precision::f32) {
  return runGraph(model.main(), some(*model.module, model.main(), true), some(*model.module, model.main(), false),
                  precision);
}

TEST(LowPrecision, GradientsAreThoseOfF64AsFarAsItsBitsGo) {
  const InterpreterResult exact = resultOf(*modelOf(ElementType::f32, ""), Precision::f64);
  for (const auto& [low, least, most] :
       {std::tuple(ElementType::f32, 0.0, 1e-6), {ElementType::f16, 1e-5, 2e-3}, {ElementType::bf16, 1e-4, 2e-2}}) {
    const InterpreterResult result = resultOf(*modelOf(low, ""));
    ASSERT_EQ(result.gradients.size(), 2u);
    for (const auto& [name, gradient] : result.gradients) {
      EXPECT_EQ(gradient.type().element, ElementType::f32);
      EXPECT_GE(errorOf(gradient, exact.gradients.at(name)), least) << nameOf(low) << " " << name;
      EXPECT_LE(errorOf(gradient, exact.gradients.at(name)), most) << nameOf(low) << " " << name;
    }
  }
}

/// Hidden scores have no gradient in any precision.
TEST(LowPrecision, AttentionAndItsBiasHaveTheGradientsOfF64AsFarAsItsBitsGo) {
  const InterpreterResult exact = resultOf(*modelOf(attention, ElementType::f32), Precision::f64);
  for (const auto& [low, least, most] :
       {std::tuple(ElementType::f32, 0.0, 1e-5), {ElementType::f16, 1e-5, 5e-3}, {ElementType::bf16, 1e-4, 4e-2}}) {
    const InterpreterResult result = resultOf(*modelOf(attention, low));
    ASSERT_EQ(result.gradients.size(), 2u);
    for (const auto& [name, gradient] : result.gradients) {
      EXPECT_GE(errorOf(gradient, exact.gradients.at(name)), least) << nameOf(low) << " " << name;
      EXPECT_LE(errorOf(gradient, exact.gradients.at(name)), most) << nameOf(low) << " " << name;
    }
  }
}

/// Of a layer's norm that only a classifier reads, whose six classes are no multiple of 16 bytes.
constexpr const char* classifier = R"(module @classifier {
  param %scale : f32[8]
  param %w : f32[6, 8]
  param %b : f32[6]
  graph @main(%x: f32[2, 4, 8], %label: i64[8] label) {
    %n, %mean, %inverse, _, _ = layer_norm %x, %scale {axis = 2} : f32[2, 4, 8], f32[2, 4], f32[2, 4], _, _
    %y = linear %n, %w, %b {transposed = true} : f32[2, 4, 6]
    %flat = reshape %y {shape = [8, 6]} : f32[8, 6]
    %loss, %s = softmax_cross_entropy %flat, %label {label_smoothing = 0.1} : f32[], f32[8, 2]
    loss %loss
  }
})";

TEST(LowPrecision, AGapBehindTheClassesChangesNoBit) {
  const auto resultWith = [](bool gap) {
    Model model(classifier);
    model.run([](PassContext& context) { return lowerPrecision(context, ElementType::bf16); });
    if (gap) model.run([](PassContext& context) { return alignClasses(context, 0); });
    model.run([](PassContext& context) { return differentiateWith(context, ""); });
    const auto& operations = model.main().operations();
    EXPECT_EQ(gap, std::any_of(operations.begin(), operations.end(), [](const auto& operation) {
                return operation->attributes.getOr("gap", std::int64_t{0}) == 2;
              }));
    return resultOf(model);
  };
  const InterpreterResult plain = resultWith(false), aligned = resultWith(true);
  EXPECT_EQ(aligned.loss, plain.loss);
  ASSERT_EQ(plain.gradients.size(), 3u);
  for (const auto& [name, gradient] : plain.gradients) EXPECT_EQ(aligned.gradients.at(name), gradient) << name;
}

TEST(LowPrecision, NormsAndLossesThatReadAndGive16BitsHaveTheGradientsOfF64AsFarAsItsBitsGo) {
  const InterpreterResult exact = resultOf(*modelOf(classifier, ElementType::f32), Precision::f64);
  for (const auto& [low, most] :
       {std::pair(ElementType::f32, 1e-5), {ElementType::f16, 2e-3}, {ElementType::bf16, 2e-2}}) {
    const InterpreterResult result = resultOf(*modelOf(classifier, low));
    for (const auto& [name, gradient] : result.gradients)
      EXPECT_LE(errorOf(gradient, exact.gradients.at(name)), most) << nameOf(low) << " " << name;
  }
}

TEST(LowPrecision, InF64NothingIsRounded) {
  const InterpreterResult exact = resultOf(*modelOf(ElementType::f32, ""), Precision::f64);
  const InterpreterResult result = resultOf(*modelOf(ElementType::bf16, ""), Precision::f64);
  for (const auto& [name, gradient] : result.gradients) EXPECT_LE(errorOf(gradient, exact.gradients.at(name)), 1e-12);
}

TEST(LowPrecision, AStaticLossScaleKeepsSmallGradientsOfF16) {
  const char* factor = "1e-8";
  const InterpreterResult exact = resultOf(*modelOf(ElementType::f32, "", factor), Precision::f64);
  const InterpreterResult lost = resultOf(*modelOf(ElementType::f16, "", factor));
  const InterpreterResult kept = resultOf(*modelOf(ElementType::f16, "1048576", factor));
  const InterpreterResult wide = resultOf(*modelOf(ElementType::bf16, "", factor));
  for (const auto& [name, gradient] : exact.gradients) {
    EXPECT_GE(errorOf(lost.gradients.at(name), gradient), 0.3) << name;
    EXPECT_LE(errorOf(kept.gradients.at(name), gradient, 1048576), 3e-3) << name;
    EXPECT_LE(errorOf(wide.gradients.at(name), gradient), 2e-2) << name; // the exponents of bf16 are those of f32
  }
  EXPECT_EQ(kept.loss, lost.loss) << "the loss that is reported is not scaled";
}

TEST(LowPrecision, APowerOfTwoChangesNoBitOfF32) {
  const InterpreterResult plain = resultOf(*modelOf(ElementType::f32, ""));
  const InterpreterResult scaled = resultOf(*modelOf(ElementType::f32, "1024"));
  for (const auto& [name, gradient] : plain.gradients)
    EXPECT_EQ(errorOf(scaled.gradients.at(name), gradient, 1024), 0) << name;
}

TEST(LowPrecision, WrongScalesAreRefused) {
  Model model(std::string(mlp).replace(std::string(mlp).find("FACTOR"), 6, "1.0"));
  PassContext context = model.context();
  EXPECT_FALSE(differentiateWith(context, "-1"));
  EXPECT_EQ(model.messages(), "error: loss_scale is '-1', expected a number above 0 or 'dynamic'\n");
}

/// Trains by gradient descent from the same weights; the scale is an input. Returns the weights.
struct Trained {
  Tensors weights;
  std::int64_t skipped = 0;
  double scale = 0;
};
Trained train(ElementType low, Precision precision, pdcrt::DynamicLossScale scale, double rate, int steps) {
  auto model = modelOf(low, "dynamic");
  Graph& graph = model->main();
  Trained run;
  for (const auto& [name, tensor] : randomParameters(*model->module, 3))
    run.weights[name] = tensor.convertedTo(heldAs(ElementType::f32, precision));
  Tensors inputs = randomInputs(graph, 3);
  while (steps-- > 0) {
    inputs["loss_scale"] = Tensor::scalar(scale.scale, ElementType::f32);
    const double used = scale.scale;
    const InterpreterResult result = runGraph(graph, inputs, run.weights, precision);
    bool finite = true;
    for (const auto& [name, gradient] : result.gradients) finite = finite && std::isfinite(normOf(gradient));
    if (!scale.step(finite)) {
      ++run.skipped;
      ++steps;
      continue;
    }
    for (auto& [name, weight] : run.weights)
      for (std::int64_t i = 0; i < weight.elements(); ++i)
        weight.set(i, weight.asDouble(i) - rate * result.gradients.at(name).asDouble(i) / used);
  }
  run.scale = scale.scale;
  return run;
}

TEST(LowPrecision, ADynamicLossScaleSkipsAndFindsItsWay) {
  const Trained exact = train(ElementType::f32, Precision::f64, {}, 0.2, 40);
  const Trained f16 = train(ElementType::f16, Precision::f32, {.scale = 0x1p40, .interval = 1000}, 0.2, 40);
  EXPECT_EQ(exact.skipped, 0);
  EXPECT_GT(f16.skipped, 10);
  EXPECT_EQ(f16.scale, std::ldexp(1.0, 40 - static_cast<int>(f16.skipped)));
  for (const auto& [name, weight] : exact.weights) EXPECT_LE(errorOf(f16.weights.at(name), weight), 5e-3) << name;
  // Without overflow it doubles after each interval.
  EXPECT_EQ(train(ElementType::bf16, Precision::f32, {.scale = 1, .interval = 10}, 0.2, 40).scale, 16);
}

TEST(LowPrecision, MasterWeightsKeepUpdatesThatLowPrecisionLoses) {
  // A step of 1e-4 of the weights is below the last bit of bf16, 2^-8; many of them are not.
  const Trained before = train(ElementType::bf16, Precision::f32, {}, 0, 1);
  const Trained after = train(ElementType::bf16, Precision::f32, {}, 1e-4, 200);
  const Trained exact = train(ElementType::f32, Precision::f64, {}, 1e-4, 200);
  for (const auto& [name, weight] : exact.weights) {
    Tensor moved = after.weights.at(name), expected = weight;
    for (std::int64_t i = 0; i < moved.elements(); ++i) {
      moved.set(i, moved.asDouble(i) - before.weights.at(name).asDouble(i));
      expected.set(i, expected.asDouble(i) - before.weights.at(name).asDouble(i));
    }
    EXPECT_LE(errorOf(moved, expected), 3e-2) << name;
  }
}

} // namespace
