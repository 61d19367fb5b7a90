// LINK: pdcStage pdcOps pdcAnalysis
// Stages of one model with different splits, run one after another by the interpreter with the values that they send
// each other, compute what the undivided graph computes: losses and gradients, in f64. What is refused is what the
// costs of the splits say.
#include "SplitDecoder.h"
#include "StageTesting.h"
#include "pdc/Analysis/Profile.h"
#include "pdc/IR/TeamInterpreter.h"
#include "pdc/Transforms/Split.h"

#include <cmath>

using namespace pdc;
using namespace pdc::testing;

namespace {

TeamSplit splitNamed(const std::string& text) {
  return *teamSplitFromText(text);
}

/// The decoder, differentiated and fused, with the graphs of all these splits.
std::unique_ptr<Model> divided(const Sizes& sizes, const std::vector<std::string>& splits) {
  auto model = std::make_unique<Model>(decoder(sizes));
  model->run(differentiate);
  model->run(fuse);
  model->run(addEvaluation);
  for (const std::string& text : splits) {
    const TeamSplit split = splitNamed(text);
    if (split.isNone() || model->module->findGraph("main" + suffixOf(split))) continue;
    const SplitOptions options{.members = split.members,
                               .all = !split.tokens || split.weights,
                               .tokens = split.tokens,
                               .weights = split.weights};
    model->run([&](PassContext& context) { return splitOverTeam(context, options); });
  }
  model->run(hideCollectives);
  return model;
}

/// Carries values between the graphs of stages, each of which a team runs.
class TeamRunner {
public:
  explicit TeamRunner(Model& model)
      : inputs_(randomInputs(model.main(), 3, 10)), parameters_(randomParameters(*model.module, 3)) {}

  InterpreterResult run(const Graph& graph, int stage) {
    Tensors inputs = inputs_;
    for (const GraphInput& input : graph.inputs)
      if (input.kind == InputKind::received)
        inputs[input.value->name()] = mail_.at({input.peer, stage, input.gradient}).at(input.value->name());
    InterpreterResult result = runAlone(graph, inputs);
    for (const GraphOutput& output : graph.outputs)
      if (output.kind == OutputKind::sent)
        mail_[{stage, output.peer, output.isGradient}][output.value->name()] = result.values.at(output.value->name());
    return result;
  }
  InterpreterResult runAlone(const Graph& graph) const { return runAlone(graph, inputs_); }

private:
  InterpreterResult runAlone(const Graph& graph, const Tensors& inputs) const {
    Diagnostics diags(nullptr);
    auto result = graph.team.members > 1 ? interpretTeam(graph, inputs, parameters_, Precision::f64, diags, 5, 2)
                                         : interpret(graph, inputs, parameters_, Precision::f64, diags, 5, 2);
    for (const Diagnostic& diagnostic : diags.all()) ADD_FAILURE() << toString(diagnostic) << print(graph);
    return result ? std::move(*result) : InterpreterResult{};
  }

  Tensors inputs_, parameters_;
  std::map<std::tuple<int, int, bool>, Tensors> mail_;
};

/// A gradient: the sum of those of the stages that use the parameter.
using Sums = std::map<std::string, std::vector<double>>;

void add(Sums& sums, const Tensors& gradients) {
  for (const auto& [name, gradient] : gradients) {
    std::vector<double>& sum = sums[name];
    sum.resize(static_cast<std::size_t>(gradient.elements()));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient.asDouble(static_cast<std::int64_t>(i));
  }
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b.at(i)) * (a[i] - b.at(i));
    norm += a[i] * a[i];
  }
  return norm > 1e-20 ? std::sqrt(difference / norm) : 0; // of 0 but for rounding, nothing is asked
}

CostGraph costsOf(Model& model, const Graph& graph) {
  const Profile profile = analyticProfile(graph, {.f32Flops = 1e9, .memoryBandwidthBytesPerS = 1e9}, "");
  Expected<CostGraph> costs = costGraphOf(graph, "m", profile, {}, model.diags);
  EXPECT_TRUE(costs) << model.messages();
  return costs ? *costs : CostGraph{};
}

int unneeded = 0; ///< cuts that costs advise against without need

/// Whether the costs say that terms of a sum would cross between different splits.
bool separatesTerms(Model& model, const std::vector<int>& stageOfGroup, const std::vector<TeamSplit>& splits) {
  for (const TeamSplit& split : splits) {
    const CostGraph costs = costsOf(model, *model.module->findGraph("main" + suffixOf(split)));
    const auto splitOf = [&](std::int64_t group) {
      return splits[static_cast<std::size_t>(stageOfGroup[static_cast<std::size_t>(group)])];
    };
    for (const CostTensor& tensor : costs.tensors) {
      std::vector<std::int64_t> ends = tensor.to;
      if (tensor.isPart) ends.push_back(tensor.from);
      const auto count = std::ranges::count_if(ends, [&](std::int64_t end) { return splitOf(end) == split; });
      if (tensor.hasTerms && count > 0 && count < std::ssize(ends)) return true;
    }
  }
  return false;
}

/// Cuts before the groups in `begins` into stages of these splits and compares them with the undivided graph. False:
/// the cut was refused, for the reason that is added to `refused`.
bool computesTheWhole(const Sizes& sizes, const std::vector<std::string>& splits, const std::vector<int>& begins,
                      std::set<std::string>& refused) {
  const std::unique_ptr<Model> model = divided(sizes, splits);
  std::vector<int> stageOfGroup;
  for (int group = 0; group < groupsOf(model->main()); ++group)
    stageOfGroup.push_back(
        static_cast<int>(std::count_if(begins.begin(), begins.end(), [&](int begin) { return begin <= group; })));
  std::vector<TeamSplit> ofStages;
  for (const std::string& text : splits) ofStages.push_back(splitNamed(text));
  const bool separates = separatesTerms(*model, stageOfGroup, ofStages);
  PassContext context = model->context();
  const auto stages = splitStages(context, stageOfGroup, ofStages);
  EXPECT_TRUE(stages || separates) << model->messages();
  unneeded += stages && separates;
  if (!stages) {
    refused.insert(model->messages());
    return false;
  }
  EXPECT_TRUE(verify(*model->module, model->diags)) << model->messages();
  checkPorts(*stages);

  TeamRunner training(*model), evaluation(*model);
  const InterpreterResult expected = training.runAlone(model->main());
  double loss = 0, evaluated = 0;
  Sums gradients, wholeGradients;
  add(wholeGradients, expected.gradients);
  for (const StageGraphs& stage : *stages) {
    training.run(*forwardPart(*stage.training), stage.stage);
    evaluated += evaluation.run(*stage.evaluation, stage.stage).loss;
  }
  for (auto stage = stages->rbegin(); stage != stages->rend(); ++stage) {
    const InterpreterResult result = training.run(*stage->training, stage->stage);
    loss += result.loss;
    add(gradients, result.gradients);
  }
  EXPECT_EQ(gradients.size(), wholeGradients.size());
  for (const auto& [name, gradient] : gradients) EXPECT_LE(distance(wholeGradients.at(name), gradient), 1e-12) << name;
  EXPECT_NEAR(loss, expected.loss, 1e-12 * std::abs(expected.loss));
  EXPECT_NEAR(evaluated, evaluation.runAlone(*model->module->findGraph("evaluate")).loss, 1e-12);
  return true;
}

/// All cuts of the decoder into stages of these splits; how many were not refused.
int cutsThatCompute(const std::vector<std::string>& splits, std::set<std::string>& refused) {
  const Sizes sizes{.batch = 2, .drops = true};
  const int groups = groupsOf(divided(sizes, {})->main());
  int count = 0;
  std::vector<int> begins(splits.size() - 1);
  std::iota(begins.begin(), begins.end(), 1);
  while (true) {
    std::string text;
    for (int begin : begins) text += " " + std::to_string(begin);
    SCOPED_TRACE("stages begin at" + text);
    count += computesTheWhole(sizes, splits, begins, refused);
    std::size_t last = begins.size();
    while (last > 0 && begins[last - 1] == groups - static_cast<int>(begins.size() - last) - 1) --last;
    if (last == 0) return count;
    ++begins[last - 1];
    for (std::size_t i = last; i < begins.size(); ++i) begins[i] = begins[i - 1] + 1;
  }
}

} // namespace

TEST(StageBorders, WholeValuesCrossBetweenDifferentSplits) {
  for (const std::vector<std::string>& splits : std::vector<std::vector<std::string>>{
           {"none", "tp:2", "none"}, {"none", "tp:4", "none"}, {"none", "tp:2", "tp:4", "none"}}) {
    SCOPED_TRACE(splits[0] + " " + splits[1] + " " + splits[2]);
    std::set<std::string> refused;
    unneeded = 0;
    EXPECT_GE(cutsThatCompute(splits, refused), 3);
    EXPECT_EQ(unneeded, 0);
    EXPECT_FALSE(refused.empty());
    for (const std::string& message : refused) EXPECT_NE(message.find("terms of a sum"), std::string::npos) << message;
  }
}

TEST(StageBorders, PartsAreGatheredAndTaken) {
  for (const std::vector<std::string>& splits :
       std::vector<std::vector<std::string>>{{"none", "sp:2", "none"},
                                             {"none", "sp:2", "tps:2", "none"},
                                             {"none", "tps:2", "none"},
                                             {"none", "sp:3", "tp:2", "none"}}) {
    SCOPED_TRACE(splits[0] + " " + splits[1] + " " + splits[2]);
    std::set<std::string> refused;
    EXPECT_GE(cutsThatCompute(splits, refused), 3);
  }
}

/// The planner compares nodes by their place, and tensors by their name.
TEST(StageBorders, CostsOfSplitsAreOfTheSameNodesAndTensors) {
  const std::vector<std::string> splits = {"tp:2", "tps:2", "sp:2", "tp:4"};
  const std::unique_ptr<Model> model = divided({.batch = 2, .drops = true}, splits);
  const CostGraph whole = costsOf(*model, model->main());
  for (const std::string& text : splits) {
    SCOPED_TRACE(text);
    const CostGraph costs = costsOf(*model, *model->module->findGraph("main" + suffixOf(splitNamed(text))));
    ASSERT_EQ(costs.nodes.size(), whole.nodes.size());
    int parts = 0;
    std::set<std::string> names;
    for (const CostTensor& tensor : costs.tensors) {
      parts += tensor.isPart;
      names.insert(tensor.isPart ? tensor.name.substr(0, tensor.name.rfind(".own")) : tensor.name);
    }
    EXPECT_GT(parts, 0);
    for (const CostTensor& tensor : whole.tensors) {
      EXPECT_FALSE(tensor.isPart || tensor.hasTerms) << tensor.name;
      EXPECT_TRUE(names.contains(tensor.name)) << tensor.name;
    }
    EXPECT_EQ(costGraphFromJson(toJson(costs), "costs.json", model->diags)->tensors.front().isPart,
              costs.tensors.front().isPart);
  }
}
