// LINK: pdcTransforms pdcOps
// Law 1 in the interpreter: fusing changes no bit, and the graphs of the stages, run one after another with the values
// that they send each other, compute the bits of the uncut graph for every cut.
#include "TransformsTesting.h"

#include <set>

using namespace pdc;
using namespace pdc::testing;

namespace {

/// The forward part of a stage's graph, which runs before its gradients have arrived.
std::unique_ptr<Graph> forwardPart(const Graph& stage) {
  std::unique_ptr<Graph> graph = clone(stage, stage.name() + ".forward");
  std::erase_if(graph->outputs, [](const GraphOutput& output) {
    return output.kind == OutputKind::gradient || (output.kind == OutputKind::sent && output.isGradient);
  });
  std::vector<bool> backward;
  for (const auto& operation : graph->operations()) backward.push_back(operation->phase != Phase::forward);
  graph->eraseIf(backward);
  std::erase_if(graph->inputs, [](const GraphInput& input) { return input.gradient; });
  return graph;
}

/// Carries values between the graphs of stages.
class StageRunner {
public:
  StageRunner(const Tensors& data, const Tensors& parameters) : data_(data), parameters_(parameters) {}

  InterpreterResult run(const Graph& graph, int stage) {
    Tensors inputs = data_;
    for (const GraphInput& input : graph.inputs) {
      if (input.kind != InputKind::received) continue;
      auto& box = mail_[{input.peer, stage, input.gradient}];
      auto found = box.find(input.value->name());
      EXPECT_NE(found, box.end()) << "stage " << stage << " waits for '" << input.value->name() << "' from stage "
                                  << input.peer;
      if (found != box.end()) inputs[input.value->name()] = found->second;
    }
    InterpreterResult result = runGraph(graph, inputs, parameters_);
    for (const GraphOutput& output : graph.outputs)
      if (output.kind == OutputKind::sent)
        mail_[{stage, output.peer, output.isGradient}][output.value->name()] = result.values.at(output.value->name());
    return result;
  }

private:
  const Tensors &data_, &parameters_;
  std::map<std::tuple<int, int, bool>, Tensors> mail_;
};

std::unique_ptr<Model> fusedModel(unsigned seed) {
  Diagnostics diags(nullptr);
  auto model = std::make_unique<Model>(randomModule(seed, diags, /*kinks=*/true));
  model->run(differentiate);
  model->run(fuse);
  model->run(addEvaluation);
  return model;
}

int groupsOf(const Graph& graph) {
  int groups = 0;
  for (const auto& operation : graph.operations()) groups = std::max(groups, operation->group + 1);
  return groups;
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

std::vector<std::string> portsOf(const Graph& graph, bool inputs, int peer, bool gradient) {
  std::vector<std::string> ports;
  if (inputs) {
    for (const GraphInput& input : graph.inputs)
      if (input.kind == InputKind::received && input.peer == peer && input.gradient == gradient)
        ports.push_back(input.value->name() + " " + toString(input.value->type()));
  } else {
    for (const GraphOutput& output : graph.outputs)
      if (output.kind == OutputKind::sent && output.peer == peer && output.isGradient == gradient)
        ports.push_back(output.value->name() + " " + toString(output.value->type()));
  }
  return ports;
}

/// What the code generator relies on: both ends of an edge agree, what is sent has memory of its own.
void checkPorts(const std::vector<StageGraphs>& stages) {
  for (const StageGraphs& from : stages)
    for (const StageGraphs& to : stages)
      for (bool gradient : {false, true}) {
        EXPECT_EQ(portsOf(*from.training, false, to.stage, gradient),
                  portsOf(*to.training, true, from.stage, gradient));
        if (gradient) continue;
        EXPECT_EQ(portsOf(*from.training, false, to.stage, false), portsOf(*from.evaluation, false, to.stage, false));
        EXPECT_EQ(portsOf(*to.training, true, from.stage, false), portsOf(*to.evaluation, true, from.stage, false));
      }
  for (const StageGraphs& stage : stages) {
    std::set<const Value*> gradients;
    for (const GraphOutput& output : stage.training->outputs) {
      if (output.kind != OutputKind::sent) continue;
      const Value* root = output.value;
      while (root->definer() && root->definer()->def().kind == OpKind::view) root = root->definer()->operand(0);
      EXPECT_TRUE(root->definer()) << "'" << output.value->name() << "' is sent on without memory of its own";
      if (output.isGradient) {
        EXPECT_TRUE(gradients.insert(root).second) << "'" << output.value->name() << "' leaves by two ports";
      }
    }
  }
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

TEST_P(RandomGraph, GroupsAreIntervalsInProgramOrder) {
  const std::unique_ptr<Model> model = fusedModel(GetParam());
  int last = 0;
  for (const auto& operation : model->main().operations()) {
    EXPECT_GE(operation->group, 0);
    if (operation->origin) {
      EXPECT_EQ(operation->group, operation->origin->group);
      continue;
    }
    EXPECT_TRUE(operation->group == last || operation->group == last + 1);
    last = operation->group;
  }
}

TEST_P(RandomGraph, EveryCutComputesTheBitsOfTheUncutGraph) {
  const std::unique_ptr<Model> uncut = fusedModel(GetParam());
  const Tensors inputs = randomInputs(uncut->main(), GetParam());
  const Tensors parameters = randomParameters(*uncut->module, GetParam());
  const InterpreterResult expected = runGraph(uncut->main(), inputs, parameters);
  const InterpreterResult expectedEvaluation = runGraph(*uncut->module->findGraph("evaluate"), inputs, parameters);
  const int groups = groupsOf(uncut->main());

  for (unsigned cuts = 0; cuts < 1u << (groups - 1); ++cuts) {
    std::vector<int> stageOfGroup{0};
    for (int group = 1; group < groups; ++group)
      stageOfGroup.push_back(stageOfGroup.back() + static_cast<int>(cuts >> (group - 1) & 1));
    if (separatesAParameter(uncut->main(), stageOfGroup)) continue;
    SCOPED_TRACE("cuts " + std::to_string(cuts));

    const std::unique_ptr<Model> model = fusedModel(GetParam());
    PassContext context = model->context();
    const auto stages = splitStages(context, stageOfGroup);
    ASSERT_TRUE(stages) << model->messages();
    ASSERT_TRUE(verify(*model->module, model->diags)) << model->messages();
    checkPorts(*stages);

    StageRunner training(inputs, parameters), evaluation(inputs, parameters);
    Tensors gradients, losses, predictions;
    for (const StageGraphs& stage : *stages) {
      training.run(*forwardPart(*stage.training), stage.stage);
      const InterpreterResult result = evaluation.run(*stage.evaluation, stage.stage);
      for (const GraphOutput& output : stage.evaluation->outputs)
        if (output.kind == OutputKind::prediction) predictions.insert(*result.values.find(output.value->name()));
    }
    for (auto stage = stages->rbegin(); stage != stages->rend(); ++stage) {
      const InterpreterResult result = training.run(*stage->training, stage->stage);
      for (const auto& [name, gradient] : result.gradients) EXPECT_TRUE(gradients.emplace(name, gradient).second);
      for (const GraphOutput& output : stage->training->outputs)
        if (output.kind == OutputKind::loss) losses.insert(*result.values.find(output.value->name()));
    }
    EXPECT_EQ(gradients, expected.gradients);
    for (const GraphOutput& output : uncut->main().outputs) {
      const std::string& name = output.value->name();
      if (output.kind == OutputKind::loss) {
        EXPECT_EQ(losses[name], expected.values.at(name));
      }
      if (output.kind == OutputKind::prediction) {
        EXPECT_EQ(predictions[name], expectedEvaluation.values.at(name));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraph, ::testing::Range(0u, 24u));

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

std::string splitError(const std::vector<int>& stageOfGroup) {
  Model model(threeLayers);
  model.run(differentiate);
  model.run(fuse);
  PassContext context = model.context();
  EXPECT_FALSE(splitStages(context, stageOfGroup));
  return model.messages();
}

} // namespace

TEST(SplitStages, RefusesAParameterInTwoStages) {
  const std::string error = splitError({0, 0, 1});
  EXPECT_NE(
      error.find("error: parameter 'w1' is used in stage 0 and in stage 1\nhelp: keep the groups that use it in one "
                 "stage"),
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
