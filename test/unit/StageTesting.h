// Stages of a cut model, run one after another, for the tests of the passes of stages.
#pragma once

#include "TransformsTesting.h"
#include "pdc/Stage/StagePasses.h"

namespace pdc::testing {

/// The forward part of a stage's graph, which runs before its gradients have arrived.
inline std::unique_ptr<Graph> forwardPart(const Graph& stage) {
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

inline std::vector<std::string> portsOf(const Graph& graph, bool inputs, int peer, bool gradient) {
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
inline void checkPorts(const std::vector<StageGraphs>& stages) {
  for (const StageGraphs& from : stages)
    for (const StageGraphs& to : stages)
      for (bool gradient : {false, true}) {
        EXPECT_EQ(portsOf(*from.training, false, to.stage, gradient),
                  portsOf(*to.training, true, from.stage, gradient));
        if (gradient) continue;
        // What an evaluation does not send comes last, and only the backward reads it.
        const std::vector<std::string> sent = portsOf(*from.evaluation, false, to.stage, false);
        EXPECT_EQ(portsOf(*to.evaluation, true, from.stage, false), sent);
        std::vector<std::string> all = portsOf(*from.training, false, to.stage, false);
        ASSERT_GE(all.size(), sent.size());
        for (std::size_t i = sent.size(); i < all.size(); ++i)
          for (const Operation* user : to.training->find(all[i].substr(0, all[i].find(' ')))->users())
            EXPECT_NE(user->phase, Phase::forward) << all[i];
        all.resize(sent.size());
        EXPECT_EQ(all, sent);
      }
  // Gradients go where those of the values go that cross: from each user to the next earlier one, and to the maker.
  std::map<std::pair<int, std::string>, std::set<int>> users;
  for (const StageGraphs& stage : stages)
    for (const GraphOutput& output : stage.training->outputs)
      if (output.kind == OutputKind::sent && !output.isGradient)
        users[{stage.stage, output.value->name()}].insert(output.peer);
  std::set<std::pair<int, int>> ways;
  for (const auto& [value, list] : users)
    for (int earlier = value.first; int user : list) {
      ways.emplace(user, earlier);
      earlier = user;
    }
  for (const StageGraphs& stage : stages)
    for (const GraphOutput& output : stage.training->outputs)
      if (output.kind == OutputKind::sent && output.isGradient) {
        EXPECT_TRUE(ways.contains({stage.stage, output.peer}))
            << "'" << output.value->name() << "' goes from stage " << stage.stage << " to " << output.peer;
        EXPECT_NE(output.value->definer()->phase, Phase::weightGradient) << "it leaves before that";
      }
  // A gradient goes to the stage that made its value, or to an earlier one that uses the value too. From one that
  // computes gradients of weights for a stage below come others, too.
  auto reads = [](const Graph& graph) {
    std::set<std::string> names;
    for (const GraphInput& input : graph.inputs)
      if (input.kind == InputKind::received && !input.gradient) names.insert(input.value->name());
    return names;
  };
  for (const StageGraphs& stage : stages)
    for (const GraphOutput& output : stage.training->outputs) {
      if (output.kind != OutputKind::sent || !output.isGradient) continue;
      const std::string value = output.value->name().substr(0, output.value->name().find(".gradient"));
      const auto& operations = stage.training->operations();
      if (std::any_of(operations.begin(), operations.end(),
                      [](const auto& o) { return o->phase != Phase::forward && !o->origin(); }))
        continue;
      EXPECT_TRUE(reads(*stage.training).contains(value))
          << "stage " << stage.stage << " sends a gradient of '" << value << "', which it does not use";
      const Graph& peer = *stages[static_cast<std::size_t>(output.peer)].training;
      EXPECT_TRUE(reads(peer).contains(value) || (peer.find(value) && peer.find(value)->definer()))
          << "stage " << output.peer << " is sent a gradient of '" << value << "', which it neither makes nor uses";
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

/// Cuts `cut` and runs its stages one after another: every loss, gradient, state and prediction must have the bits of
/// `uncut`, which is the same model.
inline void checkCut(Model& uncut, Model& cut, const std::vector<int>& stageOfGroup, const Tensors& inputs,
                     const Tensors& parameters) {
  const InterpreterResult expected = runGraph(uncut.main(), inputs, parameters);
  const InterpreterResult expectedEvaluation = runGraph(*uncut.module->findGraph("evaluate"), inputs, parameters);
  PassContext context = cut.context();
  const auto stages = splitStages(context, stageOfGroup);
  ASSERT_TRUE(stages) << cut.messages();
  ASSERT_TRUE(verify(*cut.module, cut.diags)) << cut.messages();
  checkPorts(*stages);

  StageRunner training(inputs, parameters), evaluation(inputs, parameters);
  Tensors gradients, states, losses, predictions;
  for (const StageGraphs& stage : *stages) {
    training.run(*forwardPart(*stage.training), stage.stage);
    const InterpreterResult result = evaluation.run(*stage.evaluation, stage.stage);
    for (const GraphOutput& output : stage.evaluation->outputs)
      if (output.kind == OutputKind::prediction) predictions.insert(*result.values.find(output.value->name()));
  }
  for (auto stage = stages->rbegin(); stage != stages->rend(); ++stage) {
    const InterpreterResult result = training.run(*stage->training, stage->stage);
    for (const auto& [name, gradient] : result.gradients) EXPECT_TRUE(gradients.emplace(name, gradient).second);
    for (const auto& [name, state] : result.states) EXPECT_TRUE(states.emplace(name, state).second);
    for (const GraphOutput& output : stage->training->outputs)
      if (output.kind == OutputKind::loss) losses.insert(*result.values.find(output.value->name()));
  }
  EXPECT_EQ(gradients, expected.gradients);
  EXPECT_EQ(states, expected.states);
  for (const GraphOutput& output : uncut.main().outputs) {
    const std::string& name = output.value->name();
    if (output.kind == OutputKind::loss) {
      EXPECT_EQ(losses[name], expected.values.at(name));
    }
    if (output.kind == OutputKind::prediction) {
      EXPECT_EQ(predictions[name], expectedEvaluation.values.at(name));
    }
  }
}

} // namespace pdc::testing
