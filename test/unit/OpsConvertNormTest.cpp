// LINK: pdcOps
// Conversions of the normalisations that ONNX got after opset 17, against their definitions.
#include "OpsNode.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

/// x normalised over blocks of `size` elements that follow each other.
std::vector<double> normalised(const Tensor& x, std::int64_t size, double epsilon, bool centred) {
  std::vector<double> y;
  for (std::int64_t begin = 0; begin < x.elements(); begin += size) {
    double mean = 0, square = 0;
    for (std::int64_t i = begin; centred && i < begin + size; ++i) mean += x.asDouble(i) / static_cast<double>(size);
    for (std::int64_t i = begin; i < begin + size; ++i)
      square += std::pow(x.asDouble(i) - mean, 2) / static_cast<double>(size);
    for (std::int64_t i = begin; i < begin + size; ++i)
      y.push_back((x.asDouble(i) - mean) / std::sqrt(square + epsilon));
  }
  return y;
}

Tensor inputOf(Node& node, const char* name) {
  return Inputs(4).of(node.graph()).at(name);
}

} // namespace

TEST(OpsConvertNorm, GroupNormalizationScalesGroupsBeforeOpset21AndChannelsSince) {
  for (std::int64_t version : {18, 21}) {
    const std::int64_t weights = version == 18 ? 2 : 4;
    Node node("GroupNormalization", version);
    ASSERT_TRUE(node.floats({3, 4, 2, 5})
                    .floats({weights})
                    .floats({weights})
                    .attribute("num_groups", std::int64_t{2})
                    .attribute("epsilon", 0.01)
                    .convert())
        << node.error();
    const std::vector<double> normal = normalised(inputOf(node, "x0"), 20, 0.01, true);
    const Tensor y = node.run(), scale = inputOf(node, "x1"), bias = inputOf(node, "x2");
    for (std::int64_t i = 0; i < y.elements(); ++i) {
      const std::int64_t weight = i / (40 / weights) % weights;
      EXPECT_NEAR(y.asDouble(i), normal[static_cast<std::size_t>(i)] * scale.asDouble(weight) + bias.asDouble(weight),
                  1e-12);
    }
  }
}

TEST(OpsConvertNorm, GroupsMustDivideTheChannels) {
  Node node("GroupNormalization", 21);
  EXPECT_FALSE(node.floats({3, 4, 2}).floats({4}).floats({4}).attribute("num_groups", std::int64_t{3}).convert());
  EXPECT_NE(node.error().find("has 3 groups for 4 channels"), std::string::npos) << node.error();
}

TEST(OpsConvertNorm, RmsNormalizationDividesByTheRootMeanSquare) {
  Node node("RMSNormalization", 23);
  ASSERT_TRUE(node.floats({2, 3, 4}).floats({3, 4}).attribute("axis", std::int64_t{-2}).convert()) << node.error();
  EXPECT_EQ(node.ops(), "rms_norm");
  const std::vector<double> normal = normalised(inputOf(node, "x0"), 12, 1e-5f, false);
  const Tensor y = node.run(), scale = inputOf(node, "x1");
  for (std::int64_t i = 0; i < y.elements(); ++i)
    EXPECT_NEAR(y.asDouble(i), normal[static_cast<std::size_t>(i)] * scale.asDouble(i % 12), 1e-9);
}

TEST(OpsConvertNorm, AScaleOfAnotherShapeIsAppliedApart) {
  Node node("LayerNormalization", 17);
  ASSERT_TRUE(node.floats({2, 3, 4}).floats({4}).floats({3, 1}).attribute("axis", std::int64_t{1}).convert());
  EXPECT_EQ(node.ops(), "layer_norm mul add");
  const std::vector<double> normal = normalised(inputOf(node, "x0"), 12, 1e-5f, true);
  const Tensor y = node.run(), scale = inputOf(node, "x1"), bias = inputOf(node, "x2");
  for (std::int64_t i = 0; i < y.elements(); ++i)
    EXPECT_NEAR(y.asDouble(i), normal[static_cast<std::size_t>(i)] * scale.asDouble(i % 4) + bias.asDouble(i / 4 % 3),
                1e-9);
}

TEST(OpsConvertNorm, GeluIsExactUnlessItSaysTanh) {
  Node exact("Gelu", 20), approximate("Gelu", 20), wrong("Gelu", 20);
  ASSERT_TRUE(exact.floats({5}).convert());
  ASSERT_TRUE(approximate.floats({5}).attribute("approximate", std::string("tanh")).convert());
  EXPECT_EQ(exact.ops(), "gelu");
  EXPECT_EQ(approximate.ops(), "gelu_tanh");
  const Tensor x = inputOf(exact, "x0");
  for (std::int64_t i = 0; i < 5; ++i) {
    const double v = x.asDouble(i), phi = 0.5 * (1 + std::erf(v / std::sqrt(2)));
    EXPECT_NEAR(exact.run().asDouble(i), v * phi, 1e-12);
    EXPECT_NEAR(approximate.run().asDouble(i), v * phi, 1e-3);
    EXPECT_NE(approximate.run().asDouble(i), exact.run().asDouble(i));
  }
  EXPECT_FALSE(wrong.floats({5}).attribute("approximate", std::string("sigmoid")).convert());
}
