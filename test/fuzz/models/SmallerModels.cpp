// Models that are another without one of its operations, or one of its losses: for finding the smallest that fails.
#include "RandomModel.h"

#include "pdc/IR/Interpreter.h"
#include "pdc/IR/Text.h"
#include "pdc/Transforms/Transforms.h"

#include <algorithm>

using namespace pdc;
using namespace pdc::testing;

/// Every value of the forward, by minibatch.
static std::vector<Tensors> valuesOf(const RandomModel& model, Module& module) {
  Graph& graph = *module.findGraph("main");
  for (const auto& operation : graph.operations())
    for (Value* result : operation->results())
      if (result)
        graph.outputs.push_back(
            {.kind = OutputKind::result, .value = result, .name = result->name(), .parameter = nullptr});
  std::vector<Tensors> values;
  Diagnostics silent(nullptr);
  for (int m = 0; m < dataMinibatches; ++m) {
    auto result = interpret(graph, model.inputs[static_cast<std::size_t>(m)], model.parameters, Precision::f32, silent,
                            drawSeed, static_cast<std::uint64_t>(m));
    values.push_back(result ? result->outputs : Tensors());
  }
  return values;
}

/// Removes what leads to no loss.
static void dropDead(Module& module) {
  Graph& graph = *module.findGraph("main");
  for (bool again = true; again;) {
    again = false;
    for (std::size_t i = graph.operations().size(); i-- > 0;) {
      Operation& operation = *graph.operations()[i];
      if (std::all_of(operation.results().begin(), operation.results().end(),
                      [&](Value* r) { return !r || (r->users().empty() && !graph.isOutput(r)); }))
        graph.erase(&operation), again = true;
    }
  }
  std::erase_if(graph.inputs, [](const GraphInput& input) { return input.value->users().empty(); });
  std::erase_if(module.parameters, [&](const auto& parameter) {
    const Value* value = graph.find(parameter->name);
    return !value || value->users().empty();
  });
}

std::vector<RandomModel> pdc::testing::reductionsOf(const RandomModel& model) {
  std::vector<RandomModel> smaller;
  Diagnostics silent(nullptr);
  auto whole = parseModule(model.text, "random", allOps(), silent);
  const std::vector<Tensors> values = valuesOf(model, **whole);
  auto keep = [&](Module& module, RandomModel& reduced) {
    dropDead(module);
    reduced.text = print(module);
    reduced.describe(module);
    if (reduced.operations < model.operations && isSound(reduced)) smaller.push_back(std::move(reduced));
  };
  const std::size_t operations = (*whole)->findGraph("main")->operations().size();
  for (std::size_t i = 0; i < operations; ++i) {
    auto module = parseModule(model.text, "random", allOps(), silent);
    Graph& graph = *(*module)->findGraph("main");
    const Operation& operation = *graph.operations()[i];
    if (operation.def().kind == OpKind::constant) continue;
    RandomModel reduced = model;
    for (Value* result : operation.results()) {
      if (!result || graph.isOutput(result)) continue;
      Value* input = graph.addInput(result->type(), "cut");
      for (std::size_t m = 0; m < values.size(); ++m)
        reduced.inputs[m][input->name()] = values[m].at(result->name()).convertedTo(result->type().element);
      graph.replaceAllUses(result, input);
    }
    keep(**module, reduced);
  }
  for (std::size_t i = 0; i < (*whole)->findGraph("main")->outputs.size(); ++i) {
    auto module = parseModule(model.text, "random", allOps(), silent);
    Graph& graph = *(*module)->findGraph("main");
    if (i >= graph.outputs.size()) break;
    graph.outputs.erase(graph.outputs.begin() + static_cast<std::ptrdiff_t>(i));
    RandomModel reduced = model;
    keep(**module, reduced);
  }
  return smaller;
}
