// LINK: pdcDriver
// Fusion changes roundings only, and the layout pass no value: graphs before and after have the same meaning, and so
// have the generated programs.
#include "pdc/Driver/CpuEngine.h"

#include "TransformsTesting.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

struct Case {
  const char* name;
  const char* text;
};

const Case cases[] = {
    {"residual", R"(module @m {
  param %w0 : f32[16, 3, 3, 3]
  param %w1 : f32[32, 16, 3, 3]
  param %w2 : f32[32, 32, 3, 3]
  param %scale : f32[32]
  param %bias : f32[32]
  param %mean : f32[32] state
  param %variance : f32[32] state
  param %mean2 : f32[32] state
  param %variance2 : f32[32] state
  param %fc : f32[32, 3]
  graph @main(%x: f32[2, 3, 8, 9], %label: i64[2] label) {
    %c0 = conv2d %x, %w0 {pads = [1, 1, 1, 1]} : f32[2, 16, 8, 9]
    %r0 = relu %c0 : f32[2, 16, 8, 9]
    %p0, %i0 = max_pool %r0 {kernel = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]} : f32[2, 16, 4, 5], i32[2, 16, 4, 5]
    %c1 = conv2d %p0, %w1 {pads = [1, 1, 1, 1]} : f32[2, 32, 4, 5]
    %n1, %m1, %v1, %sm1, %sv1 = batch_norm_training %c1, %scale, %bias, %mean, %variance : f32[2, 32, 4, 5], f32[32], f32[32], f32[32], f32[32]
    %r1 = relu %n1 : f32[2, 32, 4, 5]
    %c2 = conv2d %r1, %w2 {pads = [1, 1, 1, 1]} : f32[2, 32, 4, 5]
    %n2, %m2, %v2, %sm2, %sv2 = batch_norm_training %c2, %scale, %bias, %mean2, %variance2 : f32[2, 32, 4, 5], f32[32], f32[32], f32[32], f32[32]
    %s2 = add %n2, %r1 : f32[2, 32, 4, 5]
    %r2 = relu %s2 : f32[2, 32, 4, 5]
    %a2 = reduce_mean %r2 {axes = [2, 3], keep_dims = false} : f32[2, 32]
    %y = linear %a2, %fc : f32[2, 3]
    %loss, %p = softmax_cross_entropy %y, %label : f32[], f32[2, 2]
    loss %loss
    prediction %y
    state %mean = %sm1
    state %variance = %sv1
    state %mean2 = %sm2
    state %variance2 = %sv2
  }
})"},
    {"branches", R"(module @m {
  param %w0 : f32[32, 16, 1, 1]
  param %w1 : f32[16, 16, 3, 3]
  param %w2 : f32[48, 48, 3, 3]
  param %b2 : f32[48]
  param %gate : f32[48, 48]
  param %fc : f32[960, 3]
  graph @main(%x: f32[2, 16, 5, 4], %label: i64[2] label) {
    %c0 = conv2d %x, %w0 : f32[2, 32, 5, 4]
    %c1 = conv2d %x, %w1 {pads = [1, 1, 1, 1]} : f32[2, 16, 5, 4]
    %both = concat %c0, %c1 {axis = 1} : f32[2, 48, 5, 4]
    %wide = pad %both {after = [0, 0, 1, 2], before = [0, 0, 1, 0], value = 0.5} : f32[2, 48, 7, 6]
    %c2 = conv2d %wide, %w2, %b2 : f32[2, 48, 5, 4]
    %squeezed = reduce_mean %c2 {axes = [2, 3], keep_dims = false} : f32[2, 48]
    %g0 = linear %squeezed, %gate : f32[2, 48]
    %g1 = reshape %g0 {shape = [2, 48, 1, 1]} : f32[2, 48, 1, 1]
    %g2 = sigmoid %g1 : f32[2, 48, 1, 1]
    %gated = mul %c2, %g2 : f32[2, 48, 5, 4]
    %part = slice %gated {sizes = [2, 32, 5, 4], starts = [0, 16, 0, 0], steps = [1, 1, 1, 1]} : f32[2, 32, 5, 4]
    %sum = add %part, %c0 : f32[2, 32, 5, 4]
    %smooth = average_pool %sum {kernel = [3, 3], pads = [1, 1, 1, 1]} : f32[2, 32, 5, 4]
    %rest = slice %gated {sizes = [2, 16, 5, 4], starts = [0, 0, 0, 0], steps = [1, 1, 1, 1]} : f32[2, 16, 5, 4]
    %whole = concat %smooth, %rest {axis = 1} : f32[2, 48, 5, 4]
    %flat = reshape %whole {shape = [2, 960]} : f32[2, 960]
    %y = linear %flat, %fc : f32[2, 3]
    %loss, %p = softmax_cross_entropy %y, %label : f32[], f32[2, 2]
    loss %loss
    prediction %y
  }
})"},
};

double errorOf(const Tensor& actual, const Tensor& expected) {
  double difference = 0, norm = 1e-30;
  for (std::int64_t i = 0; i < expected.elements(); ++i) {
    difference += std::pow(actual.asDouble(i) - expected.asDouble(i), 2);
    norm += std::pow(expected.asDouble(i), 2);
  }
  return std::sqrt(difference / norm);
}

std::size_t valuesInBlocks(const Graph& graph) {
  std::size_t count = 0;
  for (const auto& operation : graph.operations())
    for (const Value* result : operation->results()) count += result && result->type().layout == channelsInBlocks;
  return count;
}

Tensors parametersOf(const Module& module) {
  Tensors tensors = randomParameters(module, 5);
  for (auto& [name, tensor] : tensors)
    if (name.rfind("variance", 0) == 0)
      for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, tensor.asDouble(i) + 1.5);
  return tensors;
}

} // namespace

TEST(Fusion, AndLayoutsChangeNoMeaningAndProgramsAgree) {
  // Without AVX-512 what is in blocks is convolved by another kernel, which sums up in another order.
  const double betweenLayouts = __builtin_cpu_supports("avx512f") ? 1e-6 : 1e-5;
  std::vector<std::unique_ptr<Model>> models, unfused, unfusedInBlocks;
  std::vector<const Module*> modules, plain, inBlocks;
  std::vector<InterpreterResult> expected;
  for (const Case& c : cases) {
    Model& model = *models.emplace_back(std::make_unique<Model>(c.text));
    model.run(differentiate);
    Model& separate = *unfused.emplace_back(std::make_unique<Model>(c.text));
    separate.run(differentiate);
    plain.push_back(separate.module.get());
    Model& blocks = *unfusedInBlocks.emplace_back(std::make_unique<Model>(c.text));
    blocks.run(differentiate);
    blocks.run(chooseLayouts);
    inBlocks.push_back(blocks.module.get());
    model.run(fuse);
    const Tensors inputs = randomInputs(model.main(), 3), parameters = parametersOf(*model.module);
    const auto before = interpret(model.main(), inputs, parameters, Precision::f32, model.diags);
    const auto exact = interpret(model.main(), inputs, parameters, Precision::f64, model.diags);
    model.run(chooseLayouts);
    EXPECT_GT(valuesInBlocks(model.main()), 14u) << print(*model.module);
    EXPECT_EQ(model.module->findParameter("w1")->type.layout, filterInBlocks) << print(*model.module);
    const auto after = interpret(model.main(), inputs, parameters, Precision::f32, model.diags);
    ASSERT_TRUE(before && exact && after) << model.messages();
    for (const auto& [name, gradient] : before->gradients)
      EXPECT_TRUE(std::ranges::equal(gradient.bytes(), after->gradients.at(name).bytes())) << c.name << " " << name;
    EXPECT_EQ(before->loss, after->loss) << c.name;
    expected.push_back(*exact);
    modules.push_back(model.module.get());
  }

  Diagnostics diags(nullptr);
  std::vector<const Module*> all = modules;
  all.insert(all.end(), plain.begin(), plain.end());
  all.insert(all.end(), inBlocks.begin(), inBlocks.end());
  const auto engine = CpuEngine::build(all, diags);
  ASSERT_TRUE(engine) << toString(diags.all().front());
  for (std::size_t i = 0; i < models.size(); ++i) {
    const Graph& main = models[i]->main();
    const auto actual = (*engine)->run(i, randomInputs(main, 3), parametersOf(*modules[i]), diags);
    const auto separate = (*engine)->run(models.size() + i, randomInputs(main, 3), parametersOf(*modules[i]), diags);
    const auto blocks = (*engine)->run(2 * models.size() + i, randomInputs(main, 3), parametersOf(*modules[i]), diags);
    ASSERT_TRUE(actual && separate && blocks);
    EXPECT_NEAR(actual->loss, expected[i].loss, 1e-5 * std::abs(expected[i].loss)) << cases[i].name;
    ASSERT_EQ(actual->gradients.size(), expected[i].gradients.size());
    for (const auto& [name, gradient] : expected[i].gradients)
      EXPECT_LT(errorOf(actual->gradients.at(name), gradient), 1e-4) << cases[i].name << " " << name; // f32 is that far
    for (const auto& [name, gradient] : separate->gradients)
      EXPECT_LT(errorOf(actual->gradients.at(name), gradient), betweenLayouts) << cases[i].name << " unfused " << name;
    for (const auto& [name, gradient] : blocks->gradients)
      EXPECT_LT(errorOf(actual->gradients.at(name), gradient), 1e-6) << cases[i].name << " unfused in blocks " << name;
    for (const auto& [name, state] : expected[i].states)
      EXPECT_LT(errorOf(actual->states.at(name), state), 3e-6) << cases[i].name << " " << name;
  }
}
