// LINK: pdcStage pdcOps
// Law 1 in the interpreter: fusing changes no bit, and the graphs of the stages, run one after another with the values
// that they send each other, compute the bits of the uncut graph for every cut.
#include "StageTesting.h"
#include "pdc/IR/GradientGroups.h"
#include "pdc/IR/SharedParameters.h"

#include <set>

using namespace pdc;
using namespace pdc::testing;

namespace {

std::unique_ptr<Model> fusedModel(unsigned seed, Status (*fusion)(PassContext&) = fuse) {
  Diagnostics diags(nullptr);
  auto model = std::make_unique<Model>(randomModule(seed, diags, /*kinks=*/true));
  model->run(differentiate);
  model->run(fusion);
  model->run(addEvaluation);
  return model;
}

/// Whether a parameter is used on both sides of a cut, which is refused.
bool separatesAParameter(const Graph& graph, const std::vector<int>& stageOfGroup) {
  for (const Value* value : graph.parameterValues()) {
    std::set<int> stages;
    for (const Operation* user : value->users()) stages.insert(stageOfGroup[static_cast<std::size_t>(user->group)]);
    if (stages.size() > 1) return true;
  }
  return false;
}

class RandomGraph : public ::testing::TestWithParam<unsigned> {};

} // namespace

TEST_P(RandomGraph, FusionChangesNoBit) {
  Diagnostics diags(nullptr);
  Model model(randomModule(GetParam(), diags, /*kinks=*/true));
  const Tensors inputs = randomInputs(model.main(), GetParam());
  const Tensors parameters = randomParameters(*model.module, GetParam());
  model.run(differentiate);
  const InterpreterResult before = runGraph(model.main(), inputs, parameters);
  model.run(fuse);
  const InterpreterResult after = runGraph(model.main(), inputs, parameters);
  EXPECT_EQ(before.loss, after.loss);
  EXPECT_EQ(before.values, after.values);
  EXPECT_EQ(before.gradients, after.gradients);
}

TEST_P(RandomGraph, ComputingAgainChangesNoBit) {
  const std::unique_ptr<Model> model = fusedModel(GetParam());
  const Tensors inputs = randomInputs(model->main(), GetParam());
  const Tensors parameters = randomParameters(*model->module, GetParam());
  const InterpreterResult before = runGraph(model->main(), inputs, parameters);
  model->run([&](PassContext& context) { return computeAgain(context, model->main(), {.share = 1, .leastBytes = 0}); });
  const InterpreterResult after = runGraph(model->main(), inputs, parameters);
  EXPECT_EQ(before.loss, after.loss);
  EXPECT_EQ(before.gradients, after.gradients);
}

TEST_P(RandomGraph, GroupsAreIntervalsInProgramOrder) {
  const std::unique_ptr<Model> model = fusedModel(GetParam());
  int last = 0;
  for (const auto& operation : model->main().operations()) {
    EXPECT_GE(operation->group, 0);
    if (operation->origin()) {
      EXPECT_EQ(operation->group, operation->origin()->group);
      continue;
    }
    EXPECT_TRUE(operation->group == last || operation->group == last + 1);
    last = operation->group;
  }
}

static void checkEveryCut(unsigned seed, Status (*fusion)(PassContext&)) {
  const std::unique_ptr<Model> uncut = fusedModel(seed, fusion);
  const Tensors inputs = randomInputs(uncut->main(), seed);
  const Tensors parameters = randomParameters(*uncut->module, seed);
  const int groups = groupsOf(uncut->main());
  // Every cut of a small graph; of a large one some, and the finest.
  const unsigned finest = (1u << (groups - 1)) - 1;
  for (unsigned cuts = 0; cuts <= finest; cuts += cuts == finest ? 1 : std::min(1 + finest / 32, finest - cuts)) {
    std::vector<int> stageOfGroup{0};
    for (int group = 1; group < groups; ++group)
      stageOfGroup.push_back(stageOfGroup.back() + static_cast<int>(cuts >> (group - 1) & 1));
    if (separatesAParameter(uncut->main(), stageOfGroup)) continue;
    SCOPED_TRACE("cuts " + std::to_string(cuts));
    const std::unique_ptr<Model> cut = fusedModel(seed, fusion);
    checkCut(*uncut, *cut, stageOfGroup, inputs, parameters);
  }
}

TEST_P(RandomGraph, EveryCutComputesTheBitsOfTheUncutGraph) {
  checkEveryCut(GetParam(), fuse);
}

TEST_P(RandomGraph, EveryCutBesideGradientsComputesTheBitsOfTheUncutGraph) {
  checkEveryCut(GetParam(), fuseGradientsApart);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraph, ::testing::Range(0u, 24u));

TEST(RandomGraphs, HaveGroupsOfGradients) {
  std::size_t groups = 0;
  for (unsigned seed = 0; seed < 24; ++seed)
    groups += gradientGroups(fusedModel(seed, fuseGradientsApart)->main()).size();
  EXPECT_GE(groups, 24u);
}

namespace {

/// Three layers, one of whose weights is used twice, and a skip.
const char* const threeLayers = R"(module @m {
  param %w1 : f32[2, 2]
  param %w2 : f32[2, 2]
  graph @main(%image: f32[2, 2]) {
    %a = linear %image, %w1 : f32[2, 2]
    %b = linear %a, %w2 : f32[2, 2]
    %c = linear %b, %w1 : f32[2, 2]
    %d = add %c, %a : f32[2, 2]
    %loss = reduce_mean %d {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})";

std::string splitError(const std::vector<int>& stageOfGroup, const std::string& text = threeLayers) {
  Model model(text);
  model.run(differentiate);
  model.run(fuse);
  PassContext context = model.context();
  EXPECT_FALSE(splitStages(context, stageOfGroup));
  return model.messages();
}

} // namespace

TEST(SplitStages, GivesEachStageTheGradientsOfItsUses) {
  Model model(threeLayers);
  model.run(differentiate);
  model.run(fuse);
  PassContext context = model.context();
  Expected<std::vector<StageGraphs>> stages = splitStages(context, {0, 0, 1});
  ASSERT_TRUE(stages);
  for (std::size_t s = 0; s < 2; ++s) {
    int uses = 0;
    for (const GraphOutput& output : (*stages)[s].training->outputs)
      uses += output.kind == OutputKind::gradient && output.parameter->name == "w1";
    EXPECT_EQ(uses, 1) << "stage " << s;
  }
  const std::vector<SharedParameter> shared = sharedParameters(*context.module.findGraph("main"), {0, 0, 1});
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_EQ(shared[0].parameter->name, "w1");
  EXPECT_EQ(shared[0].useStages, (std::vector<int>{0, 1}));
  EXPECT_EQ(shared[0].owner(), 0);
  EXPECT_TRUE(sharedParameters(*context.module.findGraph("main"), {0, 0, 0}).empty());
}

/// The gradient of %shift, which follows from data and a parameter, is that parameter's; and the next stage computes it
/// together with a weight gradient.
TEST(SplitStages, KeepsAnAccumulatorInTheStageOfItsUse) {
  Model model(R"(module @m {
  param %b : f32[2]
  param %v : f32[2, 2]
  param %w : f32[2, 2]
  graph @main(%x: f32[3, 2], %s: f32[1]) {
    %h = linear %x, %v : f32[3, 2]
    %shift = add %b, %s : f32[2]
    %y = linear %h, %w, %shift : f32[3, 2]
    %loss = reduce_mean %y {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})");
  model.run(differentiate);
  model.run(fuse);
  ASSERT_EQ(groupsOf(model.main()), 2);
  PassContext context = model.context();
  const auto stages = splitStages(context, {0, 1});
  ASSERT_TRUE(stages) << model.messages();
  for (const StageGraphs& stage : *stages)
    for (const GraphOutput& output : stage.training->outputs)
      if (output.kind == OutputKind::gradient) {
        EXPECT_EQ(stage.stage, output.parameter->name == "w" ? 1 : 0) << output.parameter->name;
      }
}

/// Parallel branches may lie in stages in any order; the gradient of their input is summed in the order of the program.
TEST(SplitStages, SumsTheGradientsOfBranchesInTheOrderOfTheProgram) {
  const char* const branches = R"(module @m {
  param %u : f32[3, 3]
  param %w1 : f32[3, 3]
  param %w2 : f32[3, 3]
  param %w3 : f32[3, 3]
  param %w4 : f32[3, 3]
  graph @main(%image: f32[3, 3]) {
    %a = linear %image, %u : f32[3, 3]
    %b1 = linear %a, %w1 : f32[3, 3]
    %b2 = linear %a, %w2 : f32[3, 3]
    %b3 = linear %a, %w3 : f32[3, 3]
    %b4 = linear %a, %w4 : f32[3, 3]
    %c1 = mul %b1, %b2 : f32[3, 3]
    %c2 = mul %b3, %b4 : f32[3, 3]
    %d = mul %c1, %c2 : f32[3, 3]
    %loss = reduce_mean %d {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})";
  auto make = [&] {
    auto model = std::make_unique<Model>(branches);
    model->run(differentiate);
    model->run(fuse);
    model->run(addEvaluation);
    return model;
  };
  const std::unique_ptr<Model> uncut = make();
  ASSERT_EQ(groupsOf(uncut->main()), 5);
  const Tensors inputs = randomInputs(uncut->main(), 1), parameters = randomParameters(*uncut->module, 1);
  for (const std::vector<int>& stageOfGroup : std::vector<std::vector<int>>{
           {0, 1, 2, 1, 2}, {0, 2, 1, 0, 2}, {0, 1, 0, 1, 1}, {0, 2, 2, 1, 3}, {0, 3, 2, 1, 3}, {0, 0, 1, 0, 1}}) {
    SCOPED_TRACE(::testing::PrintToString(stageOfGroup));
    checkCut(*uncut, *make(), stageOfGroup, inputs, parameters);
  }
}

TEST(SplitStages, GivesEachStageTheFrozenParametersThatItUses) {
  std::string text = threeLayers;
  text.replace(text.find("%w1 : f32[2, 2]"), 15, "%w1 : f32[2, 2] frozen");
  auto make = [&] {
    auto model = std::make_unique<Model>(text);
    model->run(differentiate);
    model->run(fuse);
    model->run(addEvaluation);
    return model;
  };
  const std::unique_ptr<Model> uncut = make();
  const Tensors inputs = randomInputs(uncut->main(), 1), parameters = randomParameters(*uncut->module, 1);
  for (const std::vector<int>& stageOfGroup : std::vector<std::vector<int>>{{0, 0, 1}, {0, 1, 1}, {0, 1, 2}})
    checkCut(*uncut, *make(), stageOfGroup, inputs, parameters);
}

TEST(SplitStages, RefusesAParameterInTwoStagesThatOneOfThemDoesNotTrain) {
  std::string text = threeLayers;
  text.replace(text.find("    %c = linear %b, %w1"), 23,
               "    %fixed = detach %w1 : f32[2, 2]\n    %c = linear %b, %fixed");
  const std::string error = splitError({0, 0, 1}, text);
  EXPECT_NE(error.find("error: parameter 'w1' is used in stage 0 and in stage 1, and not trained by all of its uses\n"
                       "help: keep the groups that use it in one stage"),
            std::string::npos)
      << error;
}

TEST(SplitStages, RefusesAnEdgeThatGoesBack) {
  const std::string error = splitError({1, 0, 1});
  EXPECT_NE(error.find("error: value 'a' goes back from stage 1 (group 0) to stage 0 (group 1)"), std::string::npos)
      << error;
}

TEST(SplitStages, RefusesGapsInTheStages) {
  const std::string error = splitError({0, 2, 2});
  EXPECT_NE(error.find("error: stages must be numbered from 0 without gaps; the highest is 2 of 2"), std::string::npos)
      << error;
}

TEST(SplitStages, RefusesAListThatIsTooShort) {
  const std::string error = splitError({0, 0});
  EXPECT_NE(error.find("is in group 2, but stages are given for 2 groups"), std::string::npos) << error;
}
