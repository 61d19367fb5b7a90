// LINK: pdcDriver
// Generated programs against the interpreter: the same values, losses, gradients and running statistics.
#include "pdc/Driver/CpuEngine.h"
#include "pdc/IR/Text.h"
#include "pdc/IR/Verifier.h"
#include "pdc/Ops/AllOps.h"
#include "pdc/Transforms/Transforms.h"

#include <cmath>
#include <gtest/gtest.h>
#include <iostream>
#include <random>
#include <span>

using namespace pdc;

namespace {

const OpRegistry& registry() {
  static OpRegistry* ops = [] {
    auto* made = new OpRegistry;
    registerAllOps(*made);
    return made;
  }();
  return *ops;
}

std::unique_ptr<Module> parse(const std::string& text, Diagnostics& diags) {
  auto module = parseModule(text, "test.pdir", registry(), diags);
  return module ? std::move(*module) : nullptr;
}

Tensor randomTensor(const Type& type, std::mt19937_64& random) {
  Tensor tensor(type);
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, isFloat(type.element) ? std::uniform_real_distribution<double>(-1, 1)(random)
                                        : static_cast<double>(random() % 3));
  return tensor;
}

/// Largest difference relative to the norm of `expected`.
double errorOf(const Tensor& actual, const Tensor& expected) {
  double difference = 0, norm = 1e-30;
  for (std::int64_t i = 0; i < expected.elements(); ++i) {
    difference += std::pow(actual.asDouble(i) - expected.asDouble(i), 2);
    norm += std::pow(expected.asDouble(i), 2);
  }
  return std::sqrt(difference / norm);
}

struct Case {
  const char* name;
  const char* text;
  bool train;
};

const Case cases[] = {
    {"elementwise", R"(module @m {
  graph @main(%x: f32[4, 3, 5], %b: f32[3, 1], %s: f32[]) {
    %0 = mul %x, %b : f32[4, 3, 5]
    %1 = add %0, %s : f32[4, 3, 5]
    %2 = relu %1 : f32[4, 3, 5]
    %3 = sigmoid %2 : f32[4, 3, 5]
    result "y" = %3
    result "z" = %2
  }
})",
     false},
    {"inputPassedOn", R"(module @m {
  graph @main(%x: f32[4]) {
    %0 = reshape %x {shape = [2, 2]} : f32[2, 2]
    result "y" = %0
    result "x" = %x
  }
})",
     false},
    {"paddedWithInfinity", R"(module @m {
  graph @main(%x: f32[2, 3]) {
    %0 = pad %x {after = [0, 1], before = [0, 0], value = -inf} : f32[2, 4]
    %1 = softmax %0 : f32[2, 4]
    result "y" = %1
  }
})",
     false},
    {"otherElements", R"(module @m {
  graph @main(%d: f64[2, 3], %u: u64[4], %h: u16[4], %s: i16[4]) {
    %0 = mul %d, %d : f64[2, 3]
    %1 = reduce_sum %0 {axes = [1], keep_dims = false} : f64[2]
    %2 = constant {value = dense<u64[], [18446744073709551615]>} : u64[]
    %3 = sub %2, %u : u64[4]
    %4 = mul %h, %h : u16[4]
    %5 = sub %s, %s : i16[4]
    result "double" = %1
    result "wide" = %3
    result "half" = %4
    result "zero" = %5
  }
})",
     false},
    {"residual", R"(module @m {
  param %w1 : f32[8, 8]
  param %b1 : f32[8]
  param %b2 : f32[4, 8]
  param %w2 : f32[1, 32]
  graph @main(%x: f32[4, 8]) {
    %0 = linear %x, %w1, %b1 {transposed = true} : f32[4, 8]
    %1 = relu %0 : f32[4, 8]
    %2 = linear %1, %w1, %b1 {transposed = true} : f32[4, 8]
    %3 = add %1, %2 : f32[4, 8]
    %4 = add %3, %b2 : f32[4, 8]
    %5 = sigmoid %4 : f32[4, 8]
    %6 = reshape %5 {shape = [1, 32]} : f32[1, 32]
    %7 = linear %6, %w2, _ {transposed = true} : f32[1, 1]
    %loss = reshape %7 {shape = []} : f32[]
    loss %loss
    prediction %5
  }
})",
     true},
    {"mlp", R"(module @m {
  param %w1 : f32[6, 8]
  param %b1 : f32[6]
  param %w2 : f32[3, 6]
  graph @main(%x: f32[4, 8], %label: i64[4] label) {
    %0 = linear %x, %w1, %b1 {transposed = true} : f32[4, 6]
    %1 = relu %0 : f32[4, 6]
    %2 = add %1, %b1 : f32[4, 6]
    %3 = linear %2, %w2, _ {transposed = true} : f32[4, 3]
    %loss, %probabilities = softmax_cross_entropy %3, %label : f32[], f32[4, 2]
    loss %loss
    prediction %3
  }
})",
     true},
};

/// Elements for several threads: one loop, a nest, and an outermost loop too short for four threads.
const Case largeCases[] = {
    {"oneLoop", R"(module @m {
  graph @main(%x: f32[400, 401]) {
    %0 = sigmoid %x : f32[400, 401]
    result "y" = %0
  }
})",
     false},
    {"nest", R"(module @m {
  graph @main(%x: f32[5, 300, 101], %b: f32[300, 1]) {
    %0 = mul %x, %b : f32[5, 300, 101]
    result "y" = %0
  }
})",
     false},
    {"outermostBroadcast", R"(module @m {
  graph @main(%x: f32[3, 1], %b: f32[50000]) {
    %0 = add %x, %b : f32[3, 50000]
    result "y" = %0
  }
})",
     false},
};

void expectAgreement(std::span<const Case> chosen, int threads = 1) {
  Diagnostics diags(&std::cerr);
  std::vector<std::unique_ptr<Module>> modules;
  for (const Case& c : chosen) {
    auto module = parse(c.text, diags);
    ASSERT_TRUE(module) << c.name;
    if (c.train) {
      PassContext context{*module, registry(), diags, {}};
      ASSERT_TRUE(differentiate(context)) << c.name;
      ASSERT_TRUE(fuse(context)) << c.name;
      ASSERT_TRUE(verify(*module, diags)) << c.name;
    }
    modules.push_back(std::move(module));
  }
  std::vector<const Module*> pointers;
  for (const auto& module : modules) pointers.push_back(module.get());
  auto engine = CpuEngine::build(pointers, diags, {.threads = threads});
  ASSERT_TRUE(engine);

  for (std::size_t i = 0; i < modules.size(); ++i) {
    SCOPED_TRACE(chosen[i].name);
    const Graph& graph = *modules[i]->findGraph("main");
    std::mt19937_64 random(7);
    std::map<std::string, Tensor> inputs, parameters;
    for (const GraphInput& input : graph.inputs)
      inputs[input.value->name()] = randomTensor(input.value->type(), random);
    for (const auto& parameter : modules[i]->parameters)
      parameters[parameter->name] = randomTensor(parameter->type, random);
    auto expected = interpret(graph, inputs, parameters, Precision::f32, diags);
    auto actual = (*engine)->run(i, inputs, parameters, diags);
    ASSERT_TRUE(expected);
    ASSERT_TRUE(actual);
    EXPECT_NEAR(actual->loss, expected->loss, 1e-6);
    EXPECT_EQ(actual->outputs.size(), expected->outputs.size());
    for (const auto& [name, tensor] : expected->outputs)
      EXPECT_LT(errorOf(actual->outputs[name], tensor), 1e-6) << name;
    EXPECT_EQ(actual->gradients.size(), expected->gradients.size());
    for (const auto& [name, tensor] : expected->gradients)
      EXPECT_LT(errorOf(actual->gradients[name], tensor), 1e-6) << name;
    EXPECT_EQ(actual->states.size(), expected->states.size());
    for (const auto& [name, tensor] : expected->states) EXPECT_LT(errorOf(actual->states[name], tensor), 1e-6) << name;
  }
}

} // namespace

TEST(CodeGenEngine, AgreesWithTheInterpreter) {
  expectAgreement(cases);
}

TEST(CodeGenEngine, AgreesWithSeveralThreads) {
  for (int threads : {2, 4}) expectAgreement(largeCases, threads);
}
