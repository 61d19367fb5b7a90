// Random models and data for the tests of the transforms.
#pragma once

#include "pdc/IR/Builder.h"
#include "pdc/IR/Interpreter.h"
#include "pdc/IR/Text.h"
#include "pdc/IR/Verifier.h"
#include "pdc/Ops/AllOps.h"
#include "pdc/Transforms/Transforms.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <sstream>

namespace pdc::testing {

using Tensors = std::map<std::string, Tensor>;

inline const OpRegistry& allOps() {
  static const OpRegistry* registry = [] {
    auto* ops = new OpRegistry;
    registerAllOps(*ops);
    return ops;
  }();
  return *registry;
}

/// A module with the diagnostics of what is done to it.
class Model {
public:
  explicit Model(const std::string& text) {
    auto parsed = parseModule(text, "test.pdir", allOps(), diags);
    if (parsed) module = std::move(*parsed);
    EXPECT_TRUE(module) << messages();
  }
  explicit Model(std::unique_ptr<Module> built) : module(std::move(built)) {}

  PassContext context() { return {.module = *module, .registry = allOps(), .diags = diags, .options = {}}; }
  Graph& main() { return *module->findGraph("main"); }
  std::string messages() const {
    std::string text;
    for (const Diagnostic& diagnostic : diags.all()) text += toString(diagnostic);
    return text;
  }
  /// Runs one pass, which must succeed and leave a module that verifies.
  template <class Pass>
  void run(Pass pass) {
    PassContext c = context();
    ASSERT_TRUE(pass(c)) << messages() << print(*module);
    ASSERT_TRUE(verify(*module, diags)) << messages() << print(*module);
  }

  Diagnostics diags{nullptr};
  std::unique_ptr<Module> module;
};

/// `fuse`, with every gradient of weights in a fusion group of its own.
inline Status fuseGradientsApart(PassContext& context) {
  context.options["gradients"] = "";
  return fuse(context);
}

/// Numbers in [-1, 1) that are the same on every machine.
class Numbers {
public:
  explicit Numbers(unsigned seed) : engine_(seed) {}
  double next() { return static_cast<double>(engine_()) / 2147483648.0 - 1.0; }
  std::size_t below(std::size_t n) { return engine_() % n; }

private:
  std::mt19937 engine_;
};

inline Tensor randomTensor(const Type& type, Numbers& numbers, std::int64_t classes = 2) {
  Tensor tensor(type);
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, isFloat(type.element) ? numbers.next()
                                        : static_cast<double>(numbers.below(static_cast<std::size_t>(classes))));
  return tensor;
}

inline Tensors randomInputs(const Graph& graph, unsigned seed, std::int64_t classes = 2) {
  Numbers numbers(seed);
  Tensors tensors;
  for (const GraphInput& input : graph.inputs)
    tensors[input.value->name()] = randomTensor(input.value->type(), numbers, classes);
  return tensors;
}

inline Tensors randomParameters(const Module& module, unsigned seed) {
  Numbers numbers(seed + 1000);
  Tensors tensors;
  for (const auto& parameter : module.parameters) tensors[parameter->name] = randomTensor(parameter->type, numbers);
  return tensors;
}

/// A graph of linear layers and smooth elementwise operations over f32[4, 6]: values with several consumers, parameters
/// with several uses, additions that pass gradients through, one loss or two. With `kinks`, maxima too.
inline std::unique_ptr<Module> randomModule(unsigned seed, Diagnostics& diags, bool kinks) {
  Numbers numbers(seed);
  auto module = std::make_unique<Module>();
  module->name = "random";
  Graph& graph = *module->graphs.emplace_back(std::make_unique<Graph>("main"));
  Builder b(*module, graph, allOps(), diags);
  const Type activation{ElementType::f32, {4, 6}};
  std::vector<Value*> values{graph.addInput(activation, "x")};
  std::vector<Value*> weights, biases;
  auto parameter = [&](std::vector<Value*>& known, const Shape& shape, const std::string& name) {
    // Some uses are of a parameter that is used already; most are not, so that most cuts are allowed.
    if (!known.empty() && numbers.below(20) == 0) return known[numbers.below(known.size())];
    Parameter* made = module->addParameter({.name = name + std::to_string(known.size()),
                                            .type = {ElementType::f32, shape},
                                            .reference = {},
                                            .location = {}});
    return known.emplace_back(graph.parameterValue(*made));
  };
  // Recent values more often, so that the graph is deep; never only the input.
  auto any = [&] { return values[values.size() - 1 - numbers.below(std::min<std::size_t>(values.size(), 6))]; };

  const std::size_t steps = 12 + numbers.below(8);
  for (std::size_t step = 0; step < steps; ++step) {
    b.setLocation({.node = "step" + std::to_string(step)});
    Value* made = nullptr;
    switch (numbers.below(kinks ? 12 : 11)) {
    case 0:
    case 1:
    case 7:
    case 8:
    case 9:
    case 10: made = b.value("linear", {any(), parameter(weights, {6, 6}, "w"), parameter(biases, {6}, "b")}); break;
    case 2: made = b.value("tanh", {any()}); break;
    case 3: made = b.value("add", {any(), any()}); break;
    case 4: made = b.value("tanh", {b.value("mul", {any(), any()})}); break;
    case 5: made = b.value("sub", {any(), parameter(biases, {6}, "b")}); break;
    case 6: made = b.value("mul", {any(), b.constant(0.5)}); break;
    default: made = b.value("relu", {any()}); break;
    }
    values.push_back(made);
  }
  // Always a path to a parameter; every second model has an auxiliary loss in the middle.
  values.push_back(b.value("linear", {values.back(), parameter(weights, {6, 6}, "w")}));
  const std::size_t losses = 1 + seed % 2;
  for (std::size_t i = 0; i < losses; ++i) {
    Value* of = i == 0 ? values.back() : values[values.size() / 2];
    Value* loss = b.value("reduce_mean", {b.value("mul", {of, of})},
                          {{"axes", std::vector<std::int64_t>{0, 1}}, {"keep_dims", false}});
    graph.outputs.push_back({.kind = OutputKind::loss, .value = loss, .name = {}, .parameter = nullptr});
  }
  graph.outputs.push_back({.kind = OutputKind::prediction, .value = values.back(), .name = "y", .parameter = nullptr});
  return module;
}

inline InterpreterResult runGraph(const Graph& graph, const Tensors& inputs, const Tensors& parameters,
                                  Precision precision = Precision::f32) {
  Diagnostics diags(nullptr);
  Expected<InterpreterResult> result = interpret(graph, inputs, parameters, precision, diags, 7, 3);
  for (const Diagnostic& diagnostic : diags.all()) ADD_FAILURE() << toString(diagnostic);
  if (!result) ADD_FAILURE() << "the interpreter failed on\n" << print(graph);
  return result ? std::move(*result) : InterpreterResult{};
}

/// The error that `pass` reports on `text`.
template <class Pass>
std::string errorOf(const std::string& text, Pass pass) {
  Model model(text);
  if (!model.module) return "does not parse";
  PassContext context = model.context();
  EXPECT_FALSE(pass(context)) << print(*model.module);
  return model.messages();
}

/// Number of fusion groups.
inline int groupsOf(const Graph& graph) {
  int groups = 0;
  for (const auto& operation : graph.operations()) groups = std::max(groups, operation->group + 1);
  return groups;
}

/// y, and the gradients of the sum of its squares, of a graph as it is or after `raise`, in f64.
inline Tensors squaresOf(const std::string& text, bool isRaised, const Tensors& inputs, const Tensors& parameters) {
  Model model(text);
  if (!model.module) return {};
  if (isRaised) model.run(pdc::raise);
  Graph& graph = model.main();
  Value* y = graph.outputs.front().value;
  std::vector<std::int64_t> axes;
  for (int axis = 0; axis < y->type().rank(); ++axis) axes.push_back(axis);
  Builder b(*model.module, graph, allOps(), model.diags);
  Value* square = b.value("mul", {y, y});
  Value* sum = b.value("reduce_sum", {square}, {{"axes", axes}, {"keep_dims", false}});
  graph.outputs.push_back({.kind = OutputKind::loss, .value = sum, .name = "loss"});
  model.run(pdc::differentiate);
  const auto result = runGraph(graph, inputs, parameters, Precision::f64);
  Tensors all = result.gradients;
  all["y"] = result.outputs.at("y");
  return all;
}

} // namespace pdc::testing
