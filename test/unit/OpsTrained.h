// Modules under differentiation, and central differences to compare gradients with.
#pragma once

#include "OpsExamples.h"

#include "pdc/Transforms/Transforms.h"

namespace pdc::testing {

/// A module with its float inputs as trained parameters, save those whose name begins with "constant", and a loss: the
/// sum over `results` of result · fixed random numbers.
class Trained {
public:
  Trained(std::unique_ptr<Module> differentiated, const std::vector<Value*>& results)
      : module(std::move(differentiated)) {
    Graph& graph = *module->graphs.front();
    Inputs random(2);
    inputs = random.of(graph);
    for (std::size_t i = graph.inputs.size(); i-- > 0;)
      if (isFloat(graph.inputs[i].value->type().element) && graph.inputs[i].value->name().rfind("constant", 0) != 0)
        makeParameter(i);
    addLoss(random, results);
  }

  double loss() {
    Diagnostics diags(nullptr);
    const auto result = interpret(*module->graphs.front(), inputs, parameters, Precision::f64, diags, 5, 2);
    EXPECT_TRUE(result) << messages(diags);
    return result ? result->loss : 0;
  }

  std::unique_ptr<Module> module;
  std::map<std::string, Tensor> inputs, parameters;

private:
  void makeParameter(std::size_t i) {
    Graph& graph = *module->graphs.front();
    Value* input = graph.inputs[i].value;
    const std::string name = input->name();
    Parameter* parameter = module->addParameter({.name = name, .type = input->type(), .reference = {}, .location = {}});
    graph.replaceAllUses(input, graph.parameterValue(*parameter));
    parameters[name] = inputs.at(name).convertedTo(ElementType::f64);
    inputs.erase(name);
    graph.inputs.erase(graph.inputs.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void addLoss(Inputs& random, const std::vector<Value*>& results) {
    Graph& graph = *module->graphs.front();
    Diagnostics diags(nullptr);
    Builder b(*module, graph, allOps(), diags);
    Value* total = nullptr;
    for (Value* result : results) {
      if (!result || !isFloat(result->type().element)) continue;
      std::vector<std::int64_t> axes;
      for (int axis = 0; axis < result->type().rank(); ++axis) axes.push_back(axis);
      Value* weighted = b.value("mul", {result, b.constant(random.make(result->type(), "weight"))});
      Value* sum = b.value("reduce_sum", {weighted}, {{"axes", axes}});
      total = total ? b.value("add", {total, sum}) : sum;
    }
    if (total) graph.outputs.push_back({.kind = OutputKind::loss, .value = total, .name = {}, .parameter = nullptr});
  }
};

/// Central differences of the loss.
inline Tensor finiteDifferences(Trained& trained, const std::string& name) {
  Tensor& values = trained.parameters.at(name);
  Tensor result(values.type());
  const double step = 1e-5;
  for (std::int64_t i = 0; i < values.elements(); ++i) {
    const double value = values.asDouble(i);
    values.set(i, value + step);
    const double above = trained.loss();
    values.set(i, value - step);
    const double below = trained.loss();
    values.set(i, value);
    result.set(i, (above - below) / (2 * step));
  }
  return result;
}

/// Differentiates the module; returns how many gradients were compared with central differences, whose step h errs by
/// O(h²) and O(2^-53 / h), together about 1e-10 here.
inline int expectGradientsToBeDifferences(Trained& trained) {
  std::map<std::string, Tensor> expected;
  for (const auto& [name, value] : std::map(trained.parameters))
    expected.emplace(name, finiteDifferences(trained, name));
  Diagnostics diags(nullptr);
  PassContext context{*trained.module, allOps(), diags, {}};
  EXPECT_TRUE(differentiate(context) && verify(*trained.module, diags)) << messages(diags) << print(*trained.module);
  if (diags.hasErrors()) return 0;
  const auto actual =
      interpret(*trained.module->graphs.front(), trained.inputs, trained.parameters, Precision::f64, diags, 5, 2);
  EXPECT_TRUE(actual) << messages(diags);
  if (!actual) return 0;
  for (const auto& [name, differences] : expected) {
    const auto found = actual->gradients.find(name);
    const Tensor gradient =
        found != actual->gradients.end() ? found->second : Tensor(trained.parameters.at(name).type());
    EXPECT_LT(errorOf(gradient, differences), 1e-6) << "gradient of " << name << " in " << print(*trained.module);
  }
  return static_cast<int>(expected.size());
}

} // namespace pdc::testing
