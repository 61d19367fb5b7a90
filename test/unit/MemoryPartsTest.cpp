// LINK: pdcMemory pdcStage pdcOps
// Gradients of large layers that are used up at once: the memory plan gives them a buffer for a part.
#include "MemorySimulation.h"
#include "pdc/IR/Text.h"
#include "pdc/Stage/StagePasses.h"
#include "pdc/Transforms/Transforms.h"

#include <gtest/gtest.h>
#include <iostream>

using namespace pdc;

namespace {

/// Stage 0 of a model with a layer of 2050 x 1031 weights between others, and a plan of its memory.
struct LargeLayer {
  std::unique_ptr<Module> module;
  Expected<std::vector<StageGraphs>> stages = failure;
  Expected<MemoryPlan> plan = failure;
  const Graph& graph() const { return *(*stages)[0].training; }

  LargeLayer(const MemoryOptions& options, bool inputGradientFirst, Diagnostics& diags, bool together = false) {
    auto parsed = parseModule(R"(module @m {
  param %v : f32[3, 2050]
  param %w : f32[1031, 2050]
  graph @main(%x: f32[4, 3]) {
    %0 = linear %x, %v : f32[4, 2050] <group 0>
    %1 = linear %0, %w {transposed = true} : f32[4, 1031] <group 0>
    %2 = mul %1, %1 : f32[4, 1031] <group 0>
    %3 = reduce_sum %2 {axes = [0, 1]} : f32[] <group 0>
    loss %3
  }
})",
                              "test.pdir", registry(), diags);
    if (!parsed) return;
    module = std::move(*parsed);
    PassContext context{*module, registry(), diags, {}};
    if (!differentiate(context)) return;
    stages = splitStages(context, {0});
    if (!stages) return;
    computeWeightGradientsEarly(*(*stages)[0].training, inputGradientFirst);
    if (together && !computeGradientsTogether(context, *(*stages)[0].training)) return;
    plan = planMemory(graph(), nullptr, options, diags);
  }

  const EarlyUpdate* updateOf(const std::string& parameter) const {
    for (const EarlyUpdate& update : plan->earlyUpdates)
      if (plan->parameters[static_cast<std::size_t>(update.parameter)].parameter->name == parameter) return &update;
    return nullptr;
  }
};

TEST(MemoryParts, ALargeGradientThatIsUsedUpAtOnceIsMadeInParts) {
  Diagnostics diags(&std::cerr);
  const LargeLayer layer({.earlyUpdates = true, .gradientsInParts = true, .oneSlot = true}, true, diags);
  ASSERT_TRUE(layer.plan);
  const EarlyUpdate* update = layer.updateOf("w");
  ASSERT_TRUE(update);
  EXPECT_TRUE(update->inParts);
  EXPECT_EQ(layer.plan->takerOfParts(*update->after), update);
  const Buffer* buffer = layer.plan->training.find(update->gradient);
  EXPECT_LT(buffer->bytes, update->gradient->type().bytes() / 4);
  EXPECT_EQ(buffer->bytes, update->after->def().kernel.use(*update->after).partBytes);
  EXPECT_LT(layer.plan->live.peak, update->gradient->type().bytes());
  Simulation simulation(*layer.plan);
  EXPECT_EQ(simulation.train(layer.graph()), "");
  EXPECT_FALSE(layer.updateOf("v")->inParts) << "it is small";
}

TEST(MemoryParts, BothGradientsOfALargeLayerAreMadeInParts) {
  Diagnostics diags(&std::cerr);
  const LargeLayer apart({.earlyUpdates = true, .gradientsInParts = true, .oneSlot = true}, true, diags),
      layer({.earlyUpdates = true, .gradientsInParts = true, .oneSlot = true}, true, diags, true);
  ASSERT_TRUE(layer.plan);
  EXPECT_EQ(layer.graph().operations().size() + 1, apart.graph().operations().size()) << print(layer.graph());
  const EarlyUpdate* update = layer.updateOf("w");
  ASSERT_TRUE(update);
  EXPECT_TRUE(update->inParts);
  EXPECT_EQ(update->after->phase, Phase::inputGradient);
  EXPECT_EQ(update->gradient->name(), apart.updateOf("w")->gradient->name());
  const KernelUse use = update->after->def().kernel.use(*update->after);
  EXPECT_EQ(use.partsMethod, "gradientsInParts");
  EXPECT_EQ(layer.plan->training.find(update->gradient)->bytes, use.partBytes);
  Simulation simulation(*layer.plan);
  EXPECT_EQ(simulation.train(layer.graph()), "");
  EXPECT_FALSE(layer.updateOf("v")->inParts) << "it is small";
}

TEST(MemoryParts, AGradientIsMadeAsAWholeWhereTheParameterIsReadAfterIt) {
  Diagnostics diags(&std::cerr);
  const LargeLayer layer({.earlyUpdates = true, .gradientsInParts = true, .oneSlot = true}, false, diags);
  ASSERT_TRUE(layer.plan);
  const EarlyUpdate* update = layer.updateOf("w");
  ASSERT_TRUE(update);
  EXPECT_FALSE(update->inParts);
  EXPECT_EQ(layer.plan->training.find(update->gradient)->bytes, update->gradient->type().bytes());
}

TEST(MemoryParts, AGradientIsMadeAsAWholeWhereNoPartsAreAskedFor) {
  Diagnostics diags(&std::cerr);
  const LargeLayer layer({.earlyUpdates = true, .oneSlot = true}, true, diags);
  ASSERT_TRUE(layer.plan);
  EXPECT_FALSE(layer.updateOf("w")->inParts);
}

} // namespace
