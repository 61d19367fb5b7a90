// LINK: pdcAnalysis pdcTransforms pdcOps
// What the planner is told of groups that compute gradients of weights.
#include "TransformsTesting.h"
#include "pdc/Analysis/Profile.h"

#include <array>

using namespace pdc;
using namespace pdc::testing;

namespace {

constexpr const char* twoLayers = R"(module @m {
  param %w1 : f32[3, 2]
  param %w2 : f32[2, 4]
  graph @main(%x: f32[5, 3]) {
    %a = linear %x, %w1 : f32[5, 2]
    %h = linear %a, %w2 : f32[5, 4]
    %loss = reduce_mean %h {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})";

/// Of a fused model.
CostGraph costsOf(Model& model) {
  const Profile profile = analyticProfile(model.main(), {.f32Flops = 1e9, .memoryBandwidthBytesPerS = 1e9}, "");
  Expected<CostGraph> costs = costGraphOf(model.main(), "m", profile, {}, model.diags);
  EXPECT_TRUE(costs) << model.messages();
  return costs ? *costs : CostGraph{};
}

/// "x 0>1,2 24 back from 2": the tensors between groups; "back": a part of the gradient comes from every user.
std::vector<std::string> tensorsOf(const CostGraph& costs) {
  std::vector<std::string> all;
  for (const CostTensor& tensor : costs.tensors) {
    std::string text = tensor.name + " " + std::to_string(tensor.from);
    for (std::int64_t to : tensor.to) text += (to == tensor.to[0] ? ">" : ",") + std::to_string(to);
    text += " " + std::to_string(tensor.bytes) + (tensor.hasGradient ? " back" : "");
    for (std::int64_t from : tensor.gradientFrom)
      text += (from == tensor.gradientFrom[0] ? " from " : ",") + std::to_string(from);
    all.push_back(text);
  }
  return all;
}

} // namespace

/// The second layer is group 1, its weights' gradient group 2: it is above the layer, which makes %b, and below the
/// third, which reads %b. It needs that for the gradient of the tanh, and what the layer reads. The first reads the
/// model's input, the last waits for nobody else: they have none.
TEST(CostGraph, PutsGradientsOfWeightsBetweenALayerAndItsReaders) {
  Model model(R"(module @m {
  param %w1 : f32[3, 2]
  param %w2 : f32[2, 4]
  param %w3 : f32[4, 2]
  graph @main(%x: f32[5, 3]) {
    %a = linear %x, %w1 : f32[5, 2]
    %h = linear %a, %w2 : f32[5, 4]
    %b = tanh %h : f32[5, 4]
    %c = linear %b, %w3 : f32[5, 2]
    %loss = reduce_mean %c {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})");
  model.run(differentiate);
  model.run(fuseGradientsApart);
  const CostGraph costs = costsOf(model);
  ASSERT_EQ(costs.nodes.size(), 4u);
  EXPECT_EQ(tensorsOf(costs), (std::vector<std::string>{"a 0>1,2 40 back from 1", "b 1>2 80 back", "b 2>3 80 back"}));
  // The parameter stays with its layer, the work does not.
  EXPECT_EQ(costs.nodes[1].parameterBytes, 32);
  EXPECT_EQ(costs.nodes[1].gradientBytes, 32);
  EXPECT_EQ(costs.nodes[1].weightGradientMs, 0);
  EXPECT_GT(costs.nodes[1].inputGradientMs, 0);
  EXPECT_GT(costs.nodes[1].updateMs, 0);
  EXPECT_EQ(costs.nodes[2].parameterBytes, 0);
  EXPECT_EQ(costs.nodes[2].gradientBytes, 0);
  EXPECT_GT(costs.nodes[2].weightGradientMs, 0);
  EXPECT_EQ(costs.nodes[2].forwardMs, 0);
  EXPECT_EQ(costs.nodes[2].savedBytes, 40 + 80); // %a, and %b for the gradient of the tanh
}

/// What an update takes in the middle of a backward counts where it is there, and the rest where replicas wait.
TEST(CostGraph, KnowsWhatUpdatesTakeWhereTheyFollowEachBackward) {
  Model model(twoLayers);
  model.run(differentiate);
  model.run(fuse);
  Profile profile = analyticProfile(model.main(), {.f32Flops = 1e9, .memoryBandwidthBytesPerS = 1e9}, "");
  ASSERT_EQ(profile.groups.size(), 2u);
  profile.groups[0].updateMs = profile.groups[1].updateMs = 8;
  profile.groups[1].earlyUpdateMs = 3; // that of the other was not measured
  for (bool early : {false, true}) {
    const Expected<CostGraph> costs = costGraphOf(model.main(), "m", profile, {.earlyUpdates = early}, model.diags);
    ASSERT_TRUE(costs) << model.messages();
    EXPECT_EQ(costs->nodes[0].updateMs, 8);
    EXPECT_EQ(costs->nodes[0].lateUpdateMs, 0);
    EXPECT_EQ(costs->nodes[1].updateMs, early ? 3 : 8);
    EXPECT_EQ(costs->nodes[1].lateUpdateMs, early ? 5 : 0);
  }
}

/// Three of four microbatches add their gradients to a sum: weights of 24 and of 32 bytes share what that takes.
TEST(CostGraph, ChargesAddingUpTheGradientsOfMicrobatches) {
  Model model(twoLayers);
  model.run(differentiate);
  model.run(fuseGradientsApart);
  Profile profile = analyticProfile(model.main(), {.f32Flops = 1e9, .memoryBandwidthBytesPerS = 1e9}, "");
  profile.accumulateMs = 8;
  const auto backwards = [&](const CostOptions& options) {
    Expected<CostGraph> costs = costGraphOf(model.main(), "m", profile, options, model.diags);
    EXPECT_TRUE(costs) << model.messages();
    std::array<double, 2> input{}, weight{}; // of the parameters' nodes
    for (const CostNode& node : costs->nodes)
      if (node.parameterBytes > 0) {
        input[node.parameterBytes == 32] = node.inputGradientMs;
        weight[node.parameterBytes == 32] = node.weightGradientMs;
      }
    return std::pair(input, weight);
  };
  const auto [input, weight] = backwards({});
  const auto [more, same] = backwards({.microbatches = 4});
  EXPECT_NEAR(more[0] - input[0], 6.0 * 24 / 56, 1e-9);
  EXPECT_NEAR(more[1] - input[1], 6.0 * 32 / 56, 1e-9);
  EXPECT_EQ(same, weight);
  EXPECT_EQ(backwards({.microbatches = 1}), std::pair(input, weight));
  const auto apart = backwards({.splitBackward = true}), added = backwards({.splitBackward = true, .microbatches = 4});
  EXPECT_EQ(added.first, apart.first);
  EXPECT_NEAR(added.second[1] - apart.second[1], 6.0 * 32 / 56, 1e-9);
}

/// Where pooling found its maxima only the pooling's gradient reads, which is with that of the weights.
TEST(CostGraph, SendsWhatOnlyTheBackwardReadsOneWay) {
  Model model(R"(module @m {
  param %w1 : f32[2, 1, 3, 3]
  param %w2 : f32[2, 2, 3, 3]
  param %w3 : f32[2, 2, 3, 3]
  graph @main(%x: f32[1, 1, 4, 4]) {
    %a = conv2d %x, %w1 {pads = [1, 1, 1, 1]} : f32[1, 2, 4, 4]
    %b = conv2d %a, %w2 {pads = [1, 1, 1, 1]} : f32[1, 2, 4, 4]
    %p, %i = max_pool %b {kernel = [2, 2], strides = [2, 2]} : f32[1, 2, 2, 2], i32[1, 2, 2, 2]
    %c = conv2d %p, %w3 {pads = [1, 1, 1, 1]} : f32[1, 2, 2, 2]
    %loss = reduce_mean %c {axes = [0, 1, 2, 3], keep_dims = false} : f32[]
    loss %loss
  }
})");
  model.run(differentiate);
  model.run(fuseGradientsApart);
  EXPECT_EQ(tensorsOf(costsOf(model)),
            (std::vector<std::string>{"a 0>1,2 128 back from 1", "p 1>2 32 back", "p 2>3 32 back", "i 1>2 32"}));
}

/// The gradient of a sum is that of what is added, which no operation makes: what the sum's reader sends is it.
TEST(CostGraph, SendsTheGradientOfASumToWhatIsAdded) {
  Model model(R"(module @m {
  param %words : f32[8, 4]
  param %kinds : f32[2, 4]
  param %w : f32[4, 3]
  graph @main(%x: i64[5], %k: i64[5]) {
    %a = gather %words, %x : f32[5, 4]
    %b = gather %kinds, %k : f32[5, 4]
    %c = add %a, %b : f32[5, 4]
    %d = linear %c, %w : f32[5, 3]
    %loss = reduce_mean %d {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})");
  model.run(differentiate);
  model.run(fuse);
  EXPECT_EQ(tensorsOf(costsOf(model)), (std::vector<std::string>{"a 0>1 80 back", "c 1>2 80 back"}));
}

/// A user that only looks at a value has no part of its gradient.
TEST(CostGraph, KnowsWhichUsersHaveAPartOfAGradient) {
  Model model(R"(module @m {
  param %w1 : f32[3, 4]
  param %w2 : f32[3, 4]
  param %w3 : f32[4, 4]
  graph @main(%x: f32[5, 3]) {
    %a = linear %x, %w1 : f32[5, 4]
    %m = linear %x, %w2 : f32[5, 4]
    %above = greater %a, %m : bool[5, 4]
    %mask = cast %above {to = "f32"} : f32[5, 4]
    %b = mul %m, %mask : f32[5, 4]
    %c = linear %b, %w3 : f32[5, 4]
    %d = add %c, %a : f32[5, 4]
    %loss = reduce_mean %d {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})");
  model.run(differentiate);
  model.run(fuse);
  EXPECT_EQ(tensorsOf(costsOf(model)), (std::vector<std::string>{"a 0>1,2 80 back from 2", "b 1>2 80 back"}));
}
