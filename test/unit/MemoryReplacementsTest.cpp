// LINK: pdcMemory pdcStage pdcOps
// Results that lie in the memory of an operand which nothing reads afterwards.
#include "MemorySimulation.h"
#include "pdc/IR/Text.h"
#include "pdc/Transforms/Transforms.h"

#include <gtest/gtest.h>
#include <iostream>

using namespace pdc;

namespace {

struct Replacements {
  std::vector<const Value*> made, replaced; ///< per operation: result 0, and what it may replace
};
Replacements replacementsIn(const GraphMemory& memory, const Graph& graph) {
  Replacements found;
  for (const auto& operation : graph.operations()) {
    found.made.push_back(operation->result(0));
    found.replaced.push_back(memory.find(found.made.back())->replaces);
  }
  return found;
}

// The first results lie where the input was; integers and floats lie apart; the sum cannot replace %z, which is read
// again, and the product, which has a place of its own, does not replace it either.
TEST(MemoryReplacements, AnElementwiseResultMayReplaceAnOperandThatNothingElseReads) {
  Diagnostics diags(&std::cerr);
  const std::string text = R"(module @m {
  graph @main(%x: f32[1024], %z: f32[32, 32]) {
    %0 = relu %x : f32[1024]
    %1 = sigmoid %0 : f32[1024]
    %2 = add %1, %1 : f32[1024]
    %3 = reshape %2 {shape = [32, 32]} : f32[32, 32]
    %4 = exp %3 : f32[32, 32]
    %5 = cast %4 {to = "i32"} : i32[32, 32]
    %6 = cast %5 {to = "f32"} : f32[32, 32]
    %7 = add %z, %6 : f32[32, 32]
    %8 = mul %7, %z : f32[32, 32]
    result "y" = %8
  }
})";
  auto module = parseModule(text, "test.pdir", registry(), diags);
  ASSERT_TRUE(module);
  const Graph& graph = *(*module)->findGraph("main");
  auto plan = planMemory(graph, nullptr, {.keepResults = true}, diags);
  ASSERT_TRUE(plan);
  const GraphMemory& memory = plan->training;
  const Value* x = graph.inputs[0].value;
  const auto [made, replaced] = replacementsIn(memory, graph);
  EXPECT_EQ(replaced,
            (std::vector<const Value*>{x, made[0], made[1], made[1], made[2], nullptr, nullptr, made[6], made[7]}));
  EXPECT_EQ(memory.find(made[4])->place, memory.find(x)->place);
  EXPECT_EQ(plan->bytes.scratch, 0U);
  EXPECT_EQ(plan->bytes.slot, 3 * 4096U); // x, z and y
  EXPECT_EQ(plan->live.peak, 3 * 4096);
  Simulation simulation(*plan);
  EXPECT_EQ(simulation.train(graph), "");
  EXPECT_GE(simulation.inPlace(), 5U);
}

// The gradient of the logits lies where they were, since nobody reads them again; not where labels were, which the
// kernel reads at other places. The gradient of what is added to lies there.
TEST(MemoryReplacements, AKernelsResultMayReplaceWhatItsOpSays) {
  Diagnostics diags(&std::cerr);
  const std::string text = R"(module @m {
  graph @main(%x: f32[32, 32], %label: i64[32], %one: f32[], %s: f32[32, 2], %d: f32[1, 16, 8, 4],
              %b: f32[16], %w: f32[16, 16, 1, 1]) {
    %0 = relu %x : f32[32, 32]
    %1 = softmax_cross_entropy_gradient %one, %label, %0, %s : f32[32, 32]
    %2 = conv2d %d, %w : f32[1, 16, 8, 4]
    %3 = sigmoid %2 : f32[1, 16, 8, 4]
    %4 = conv2d_added_input_gradient %3, %w, %2 {input_shape = [1, 16, 8, 4]} : f32[1, 16, 8, 4]
    %5 = batch_norm %4, %b, %b, %b, %b : f32[1, 16, 8, 4]
    result "y" = %1
    result "z" = %5
  }
})";
  auto module = parseModule(text, "test.pdir", registry(), diags);
  ASSERT_TRUE(module);
  const Graph& graph = *(*module)->findGraph("main");
  auto plan = planMemory(graph, nullptr, {.keepResults = true}, diags);
  ASSERT_TRUE(plan);
  const auto [made, replaced] = replacementsIn(plan->training, graph);
  EXPECT_EQ(replaced, (std::vector<const Value*>{graph.inputs[0].value, made[0], nullptr, nullptr, made[2], made[4]}));
}

// The gradient of the residual lies where dY was, and that of X where X was; X is read after the former is written, so
// that it does not lie there. Without a residual, dX lies where either was; nowhere where both are read again.
TEST(MemoryReplacements, SeveralResultsReplaceAnOperandEach) {
  const auto replaced = [](const std::string& resultsAndOperands, const std::string& last) {
    Diagnostics diags(&std::cerr);
    const std::string text = R"(module @m {
  graph @main(%dy: f32[4, 3, 2], %x: f32[4, 3, 2], %c: f32[3], %y: f32[4, 3, 2]) {
    %0 = sigmoid %dy : f32[4, 3, 2]
    %1 = sigmoid %x : f32[4, 3, 2]
    )" + resultsAndOperands + R"(
    %8 = mul )" + last + R"( : f32[4, 3, 2]
    result "y" = %2
    result "z" = %8
  }
})";
    auto module = parseModule(text, "test.pdir", registry(), diags);
    EXPECT_TRUE(module);
    const Graph& graph = *(*module)->findGraph("main");
    auto plan = planMemory(graph, nullptr, {.keepResults = true}, diags);
    EXPECT_TRUE(plan);
    Simulation simulation(*plan);
    EXPECT_EQ(simulation.train(graph), "");
    std::vector<std::string> names;
    for (const Value* result : graph.operations()[2]->results()) {
      const Value* operand = result ? plan->training.find(result)->replaces : nullptr;
      names.push_back(operand ? operand->name() : "");
    }
    return names;
  };
  using Names = std::vector<std::string>;
  const std::string whole = "%2, %3, %4, %5 = batch_norm_gradient %0, %1, %c, %c, %c, %y {relu = true} : f32[4, 3, 2], "
                            "f32[3], f32[3], f32[4, 3, 2]",
                    alone = "%2, %3, %4, _ = batch_norm_gradient %0, %1, %c, %c, %c : f32[4, 3, 2], f32[3], f32[3], _";
  EXPECT_EQ(replaced(whole, "%5, %5"), (Names{"1", "", "", "0"}));
  EXPECT_EQ(replaced(whole, "%5, %1"), (Names{"", "", "", "0"}));
  EXPECT_EQ(replaced(whole, "%5, %0"), (Names{"1", "", "", ""}));
  EXPECT_EQ(replaced(alone, "%1, %1"), (Names{"0", "", "", ""}));
  EXPECT_EQ(replaced(alone, "%0, %0"), (Names{"1", "", "", ""}));
  EXPECT_EQ(replaced(alone, "%0, %1"), (Names{"", "", "", ""}));
}

} // namespace
