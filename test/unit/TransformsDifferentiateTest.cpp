// LINK: pdcTransforms pdcOps
// Differentiation of whole graphs: against finite differences, and the structure that later passes rely on.
#include "TransformsTesting.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

/// Of all parameters, the trained ones and others.
void expectGradientsToBeDifferences(Model model, unsigned seed) {
  const std::unique_ptr<Graph> forward = clone(model.main(), "forward");
  const Tensors inputs = randomInputs(model.main(), seed);
  const Tensors parameters = randomParameters(*model.module, seed);
  model.run(differentiate);
  const InterpreterResult result = runGraph(model.main(), inputs, parameters, Precision::f64);

  for (const auto& [name, tensor] : parameters) {
    const auto gradient = result.gradients.find(name);
    EXPECT_EQ(gradient != result.gradients.end(), model.module->findParameter(name)->role == ParameterRole::trained);
    for (std::int64_t i = 0; i < tensor.elements(); i += 5) {
      constexpr double step = 1e-5;
      double loss[2];
      for (int side : {0, 1}) {
        Tensors moved = parameters;
        Tensor nudged = tensor.convertedTo(ElementType::f64);
        nudged.set(i, nudged.asDouble(i) + (side ? step : -step));
        moved[name] = nudged;
        loss[side] = runGraph(*forward, inputs, moved, Precision::f64).loss;
      }
      const double difference = (loss[1] - loss[0]) / (2 * step);
      const double computed = gradient == result.gradients.end() ? 0 : gradient->second.asDouble(i);
      EXPECT_NEAR(computed, difference, 1e-8 + 1e-6 * std::abs(difference)) << name << "[" << i << "]";
    }
  }
}

class RandomGraph : public ::testing::TestWithParam<unsigned> {};

} // namespace

TEST_P(RandomGraph, GradientsAgreeWithFiniteDifferences) {
  Diagnostics diags(nullptr);
  expectGradientsToBeDifferences(Model(randomModule(GetParam(), diags, /*kinks=*/false)), GetParam());
}

// All that a norm gives leads to the loss: its result, statistics, the sum that it normalised, and the copy that others
// may round.
TEST(Differentiate, EveryResultOfANormThatAdds) {
  for (const char* norm :
       {"%y, %m, %i, %sum, %low = layer_norm %a, %scale, %bias, %b {axis = 1} : f32[2, 3], f32[2], f32[2], ",
        "%y, %i, %sum, %low = rms_norm %a, %scale, %b {axis = 1} : f32[2, 3], f32[2], "})
    expectGradientsToBeDifferences(Model(std::string(R"(module @m {
  param %a : f32[2, 3]
  param %b : f32[2, 3]
  param %scale : f32[3]
  param %bias : f32[3]
  graph @main(%x: f32[2, 3]) {
    )") + norm + R"(f32[2, 3], f32[2, 3]
    %is = reshape %i {shape = [2, 1]} : f32[2, 1]
    %h = elementwise %y, %sum, %low, %x, %bias, %is {expressions = ["a0 * a3 + a1 * a1 * a3 + a2 * a2 + a4 + a5 * a3 * a0"]} : f32[2, 3]
    %loss = reduce_mean %h {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})"),
                                   1);
}

TEST_P(RandomGraph, EachUseOfAParameterHasAnAccumulatorInProgramOrder) {
  Diagnostics diags(nullptr);
  Model model(randomModule(GetParam(), diags, /*kinks=*/true));
  model.run(differentiate);

  std::vector<std::string> uses, accumulators;
  for (const auto& operation : model.main().operations())
    for (const Value* operand : operation->operands())
      if (operand && operand->parameter() && operand->parameter()->role == ParameterRole::trained &&
          operation->phase == Phase::forward)
        uses.push_back(operand->name());
  std::set<const Value*> distinct;
  for (const GraphOutput& output : model.main().outputs) {
    if (output.kind != OutputKind::gradient) continue;
    accumulators.push_back(output.parameter->name);
    EXPECT_TRUE(distinct.insert(output.value).second) << "two accumulators share '" << output.value->name() << "'";
  }
  // Uses that lead to no loss have none.
  auto use = uses.begin();
  for (const std::string& name : accumulators) {
    use = std::find(use, uses.end(), name);
    ASSERT_NE(use, uses.end()) << "accumulator of '" << name << "' out of order";
    ++use;
  }
}

TEST_P(RandomGraph, InputGradientsNeverWaitForWeightGradients) {
  Diagnostics diags(nullptr);
  Model model(randomModule(GetParam(), diags, /*kinks=*/true));
  model.run(differentiate);
  for (const auto& operation : model.main().operations())
    for (const Value* operand : operation->operands())
      if (operation->phase == Phase::inputGradient && operand && operand->definer()) {
        EXPECT_NE(operand->definer()->phase, Phase::weightGradient);
      }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraph, ::testing::Range(0u, 24u));

/// x is used by three operations: (last + middle) + first, and each addition belongs to the earlier consumer.
TEST(Differentiate, FoldsConsumersFromTheLastToTheFirst) {
  Model model(R"(module @m {
  param %w : f32[2, 2]
  graph @main(%image: f32[2, 2]) {
    %x = linear %image, %w : f32[2, 2]
    %first = tanh %x : f32[2, 2]
    %middle = exp %x : f32[2, 2]
    %last = sigmoid %x : f32[2, 2]
    %s = add %first, %middle : f32[2, 2]
    %t = add %s, %last : f32[2, 2]
    %loss = reduce_mean %t {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})");
  model.run(differentiate);
  const Operation* outer = model.main().find("x.gradient")->definer();
  EXPECT_EQ(outer->def().name, "add");
  EXPECT_EQ(outer->origin()->result()->name(), "first");
  const Operation* inner = outer->operand(0)->definer();
  EXPECT_EQ(inner->def().name, "add");
  EXPECT_EQ(inner->origin()->result()->name(), "middle");
  EXPECT_EQ(inner->operand(0)->definer()->origin()->result()->name(), "last");
  EXPECT_EQ(inner->operand(1)->definer()->origin()->result()->name(), "middle");
  EXPECT_EQ(outer->operand(1)->definer()->origin()->result()->name(), "first");
}

TEST(Differentiate, ComputesNoGradientOfTheData) {
  Model model(R"(module @m {
  param %w : f32[2, 2]
  graph @main(%image: f32[2, 2]) {
    %scaled = tanh %image : f32[2, 2]
    %x = linear %scaled, %w : f32[2, 2]
    %loss = reduce_mean %x {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})");
  model.run(differentiate);
  const std::string text = print(model.main());
  EXPECT_EQ(text.find("linear_input_gradient"), std::string::npos) << text;
  EXPECT_NE(text.find("linear_weight_gradient"), std::string::npos) << text;
}

TEST(Differentiate, FreezesWhatDoesNotInfluenceTheLossAndSaysSo) {
  Model model(R"(module @m {
  param %unused : f32[2, 2]
  param %w : f32[2, 2]
  graph @main(%image: f32[2, 2]) {
    %x = linear %image, %w : f32[2, 2]
    %aside = linear %image, %unused : f32[2, 2]
    %loss = reduce_mean %x {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
    prediction %aside
  }
})");
  model.run(differentiate);
  EXPECT_EQ(model.module->findParameter("unused")->role, ParameterRole::frozen);
  EXPECT_EQ(model.module->findParameter("w")->role, ParameterRole::trained);
  EXPECT_NE(model.messages().find("warning: parameter 'unused' does not influence the loss and is not trained"),
            std::string::npos)
      << model.messages();
}

TEST(Differentiate, RefusesAnOpWithoutGradientOnTheWayToAParameter) {
  const std::string error = errorOf(R"(module @m {
  param %w : f32[2, 2]
  graph @main(%image: f32[2, 2]) {
    %x = linear %image, %w : f32[2, 2]
    %y = linear_input_gradient %x, %w : f32[2, 2]
    %loss = reduce_mean %y {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})",
                                    differentiate);
  EXPECT_NE(
      error.find(
          "test.pdir:5:5: error: 'linear_input_gradient' op has no gradient, and parameter 'w' is trained through it"),
      std::string::npos)
      << error;
  EXPECT_NE(error.find("help: freeze what lies before it (--freeze=REGEX)"), std::string::npos) << error;
}

// One of the statistics alone, and both.
TEST(Differentiate, StatisticsOfANorm) {
  for (const char* used : {"a0 * a2", "a1 * a2", "a0 * a1 + a1 * a1 * a0"})
    expectGradientsToBeDifferences(Model(std::string(R"(module @m {
  param %a : f32[2, 3, 2]
  param %scale : f32[3, 2]
  graph @main(%x: f32[2]) {
    %y, %m, %i, _, _ = layer_norm %a, %scale {axis = 1} : f32[2, 3, 2], f32[2], f32[2], _, _
    %h = elementwise %m, %i, %x {expressions = [")") +
                                         used + R"("]} : f32[2]
    %g = reduce_sum %y {axes = [1, 2], keep_dims = false} : f32[2]
    %k = mul %h, %g : f32[2]
    %l = add %h, %k : f32[2]
    %loss = reduce_mean %l {axes = [0], keep_dims = false} : f32[]
    loss %loss
  }
})"),
                                   2);
}

// The mean of the minibatch beside what is normalised.
TEST(Differentiate, RefusesAResultThatHasNoGradientButInfluencesTheLoss) {
  const std::string error = errorOf(R"(module @m {
  param %w : f32[2, 2]
  graph @main(%image: f32[2, 2], %c: f32[2]) {
    %x = linear %image, %w : f32[2, 2]
    %y, %mean, %inverse, _, _ = batch_norm_training %x, %c, %c, %c, %c : f32[2, 2], f32[2], f32[2], _, _
    %loss = reduce_mean %mean {axes = [0], keep_dims = false} : f32[]
    loss %loss
  }
})",
                                    differentiate);
  EXPECT_NE(error.find("test.pdir:5:5: error: 'batch_norm_training' op has no gradient of result 1, and parameter 'w' "
                       "is trained through it"),
            std::string::npos)
      << error;
}

TEST(Differentiate, RefusesATrainedOperandThatHasNoGradient) {
  const std::string error = errorOf(R"(module @m {
  param %weights : f32[3]
  graph @main(%x: f32[4, 3], %labels: i64[4]) {
    %loss, %m = softmax_cross_entropy %x, %labels, %weights : f32[], f32[4, 2]
    loss %loss
  }
})",
                                    differentiate);
  EXPECT_NE(error.find("test.pdir:4:5: error: 'softmax_cross_entropy' op has no gradient for operand 2, and parameter "
                       "'weights' is trained through it"),
            std::string::npos)
      << error;
}

// Statistics that the model computes, or that somebody trains.
TEST(Differentiate, StatisticsOfAFrozenBatchNorm) {
  expectGradientsToBeDifferences(Model(R"(module @m {
  param %scale : f32[2]
  param %mean : f32[2]
  param %root : f32[2]
  graph @main(%x: f32[4, 2]) {
    %variance = elementwise %root {expressions = ["a0 * a0 + 0.5"]} : f32[2]
    %y = batch_norm %x, %scale, %mean, %mean, %variance {epsilon = 0.01} : f32[4, 2]
    %h = mul %y, %y : f32[4, 2]
    %loss = reduce_mean %h {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})"),
                                 3);
}

// A straight-through estimator whose detach() was lost: x + (round(x) - x) is round(x), to the gradient, too.
TEST(Differentiate, TellsWhatHasTheDerivativeZero) {
  Model model(R"(module @m {
  param %w : f32[2, 2]
  graph @main(%image: f32[2, 2]) {
    %x = linear %image, %w : f32[2, 2]
    %r = round %x : f32[2, 2]
    %d = sub %r, %x : f32[2, 2]
    %y = add %x, %d : f32[2, 2]
    %loss = reduce_mean %y {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})");
  model.run(differentiate);
  EXPECT_NE(model.messages().find("test.pdir:5:5: warning: has the derivative 0: what is trained before learns nothing "
                                  "through it"),
            std::string::npos)
      << model.messages();
}

// Rounding to integers is where gradients end; a loss that depends on a parameter in no other way leaves it as it is.
TEST(Differentiate, TellsWhatIsLostInIntegers) {
  const std::string text = R"(module @m {
  param %w : f32[2, 2]
  param %v : f32[2, 2]
  graph @main(%image: f32[2, 2]) {
    %x = linear %image, %w : f32[2, 2]
    %q = cast %x {to = "i8"} : i8[2, 2]
    %y = cast %q {to = "f32"} : f32[2, 2]
    %z = linear %y, %v : f32[2, 2]
    %loss = reduce_mean %z {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})";
  Model model(text);
  model.run(differentiate);
  const std::string said = model.messages();
  EXPECT_NE(said.find("test.pdir:6:5: warning: makes integers of what is trained: no gradient passes, what lies before "
                      "learns nothing through it"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("warning: parameter 'w' is not trained: no gradient passes 'cast', which makes integers of what "
                      "it leads to"),
            std::string::npos)
      << said;
  EXPECT_EQ(model.module->findParameter("v")->role, ParameterRole::trained);

  std::string only = text;
  only.insert(only.find("param %v : f32[2, 2]") + 20, " frozen");
  const std::string error = errorOf(only, differentiate);
  EXPECT_NE(error.find("error: no trained parameter influences the loss\nnote: no gradient passes 'cast', which makes "
                       "integers\nhelp: export the model before it is quantized"),
            std::string::npos)
      << error;
}

TEST(Differentiate, AMaximumOfAnotherTypeIsSharedInThatType) {
  Model model(R"(module @m {
  param %w : f64[2, 3]
  graph @main() {
    %y = reduce_max %w {axes = [1], keep_dims = false} : f64[2]
    %loss = reduce_mean %y {axes = [0], keep_dims = false} : f64[]
    loss %loss
  }
})");
  model.run(differentiate);
  Tensors weights;
  weights["w"] = Tensor::ofFloats({2, 3}, std::vector<double>{1, 3, 3, 4, 0, -1});
  const Tensor gradient = runGraph(model.main(), {}, weights, Precision::f64).gradients.at("w");
  const std::vector<double> expected = {0, 0.25, 0.25, 0.5, 0, 0};
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(gradient.asDouble(i), expected[static_cast<std::size_t>(i)]);
}

TEST(Differentiate, RefusesAGraphWithoutLoss) {
  const std::string error = errorOf(R"(module @m {
  param %w : f32[2, 2]
  graph @main(%image: f32[2, 2]) {
    %x = linear %image, %w : f32[2, 2]
    result "x" = %x
  }
})",
                                    differentiate);
  EXPECT_NE(error.find("error: there is no loss to differentiate\nhelp: name one with --loss="), std::string::npos)
      << error;
}

TEST(Differentiate, RefusesALossThatNoParameterInfluences) {
  const std::string error = errorOf(R"(module @m {
  graph @main(%image: f32[2, 2]) {
    %loss = reduce_mean %image {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})",
                                    differentiate);
  EXPECT_NE(error.find("error: no trained parameter influences the loss"), std::string::npos) << error;
}

TEST(Differentiate, RefusesToDifferentiateTwice) {
  Model model(R"(module @m {
  param %w : f32[2, 2]
  graph @main(%image: f32[2, 2]) {
    %x = linear %image, %w : f32[2, 2]
    %loss = reduce_mean %x {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})");
  model.run(differentiate);
  PassContext context = model.context();
  EXPECT_FALSE(differentiate(context));
  EXPECT_NE(model.messages().find("error: graph '@main' is differentiated already"), std::string::npos);
}
