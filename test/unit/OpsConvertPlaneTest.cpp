// LINK: pdcOps
// Conversions of operators over images and volumes where ONNX's test vectors are silent: three axes, dilated means, and
// what is refused.
#include "OpsNode.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

using Ints = std::vector<std::int64_t>;

Tensor inputOf(Node& node, const char* name) {
  return Inputs(4).of(node.graph()).at(name);
}

/// x[sample, channel, d, h, w] of one sample, 0 outside.
double at(const Tensor& x, std::int64_t c, std::int64_t d, std::int64_t h, std::int64_t w) {
  const Shape& s = x.shape();
  if (d < 0 || h < 0 || w < 0 || d >= s[2] || h >= s[3] || w >= s[4]) return 0;
  return x.asDouble(((c * s[2] + d) * s[3] + h) * s[4] + w);
}

} // namespace

TEST(OpsConvertPlane, ConvOfAVolumeIsTheSumOverItsFilter) {
  Node node("Conv", 11);
  ASSERT_TRUE(node.floats({1, 4, 6, 5, 4})
                  .floats({2, 2, 3, 2, 2})
                  .floats({2})
                  .attribute("group", std::int64_t{2})
                  .attribute("strides", Ints{2, 1, 1})
                  .attribute("dilations", Ints{1, 2, 1})
                  .attribute("pads", Ints{1, 0, 1, 2, 0, 0})
                  .convert())
      << node.error();
  const Tensor y = node.run(), x = inputOf(node, "x0"), w = inputOf(node, "x1"), b = inputOf(node, "x2");
  ASSERT_EQ(y.shape(), (Shape{1, 2, 4, 3, 4}));
  for (std::int64_t o = 0, i = 0; o < 2; ++o)
    for (std::int64_t d = 0; d < 4; ++d)
      for (std::int64_t h = 0; h < 3; ++h)
        for (std::int64_t v = 0; v < 4; ++v, ++i) {
          double sum = b.asDouble(o);
          for (std::int64_t tap = 0; tap < 24; ++tap) {
            const std::int64_t c = tap / 12, td = tap / 4 % 3, th = tap / 2 % 2, tw = tap % 2;
            sum += w.asDouble(o * 24 + tap) * at(x, o * 2 + c, 2 * d - 1 + td, h + 2 * th, v - 1 + tw);
          }
          EXPECT_NEAR(y.asDouble(i), sum, 1e-9);
        }
}

TEST(OpsConvertPlane, ConvTransposeOfAVolumeSpreadsEveryElement) {
  Node node("ConvTranspose", 11);
  ASSERT_TRUE(node.floats({1, 2, 3, 2, 2})
                  .floats({2, 1, 2, 3, 2})
                  .attribute("strides", Ints{3, 2, 1})
                  .attribute("pads", Ints{1, 0, 0, 0, 1, 1})
                  .attribute("output_padding", Ints{2, 1, 0})
                  .convert())
      << node.error();
  const Tensor y = node.run(), x = inputOf(node, "x0"), w = inputOf(node, "x1");
  ASSERT_EQ(y.shape(), (Shape{1, 1, 9, 5, 2}));
  Tensor expected(Type{ElementType::f64, {1, 1, 9, 5, 2}});
  for (std::int64_t c = 0, i = 0; c < 2; ++c)
    for (std::int64_t d = 0; d < 3; ++d)
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t v = 0; v < 2; ++v, ++i)
          for (std::int64_t tap = 0; tap < 12; ++tap) {
            const std::int64_t td = 3 * d - 1 + tap / 6, th = 2 * h + tap / 2 % 3, tw = v + tap % 2;
            if (td < 0 || td >= 9 || th >= 5 || tw >= 2) continue;
            const std::int64_t to = (td * 5 + th) * 2 + tw;
            expected.set(to, expected.asDouble(to) + x.asDouble(i) * w.asDouble(c * 12 + tap));
          }
  for (std::int64_t i = 0; i < y.elements(); ++i) EXPECT_NEAR(y.asDouble(i), expected.asDouble(i), 1e-9) << i;
}

TEST(OpsConvertPlane, ConvTransposeRefusesWhatIsNoGradientOfAConvolution) {
  Node node("ConvTranspose", 11);
  EXPECT_FALSE(node.floats({1, 2, 3}).floats({2, 1, 2}).attribute("output_padding", Ints{1}).convert());
  EXPECT_EQ(node.exitCode(), ExitCode::unsupported);
  EXPECT_NE(node.error().find("the output padding must be below the stride"), std::string::npos) << node.error();
}

TEST(OpsConvertPlane, PoolsOfAVolumeLookAtAllItsWindow) {
  for (const char* opType : {"MaxPool", "AveragePool"}) {
    Node node(opType, 12);
    ASSERT_TRUE(node.floats({1, 2, 5, 4, 4})
                    .attribute("kernel_shape", Ints{3, 2, 2})
                    .attribute("strides", Ints{2, 2, 1})
                    .attribute("pads", Ints{1, 0, 1, 1, 0, 0})
                    .convert())
        << node.error();
    const Tensor y = node.run(), x = inputOf(node, "x0");
    ASSERT_EQ(y.shape(), (Shape{1, 2, 3, 2, 4}));
    for (std::int64_t c = 0, i = 0; c < 2; ++c)
      for (std::int64_t d = 0; d < 3; ++d)
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t v = 0; v < 4; ++v, ++i) {
            double largest = -1e9, sum = 0, count = 0;
            for (std::int64_t tap = 0; tap < 12; ++tap) {
              const std::int64_t td = 2 * d - 1 + tap / 4, th = 2 * h + tap / 2 % 2, tw = v - 1 + tap % 2;
              if (td < 0 || td >= 5 || tw < 0) continue;
              largest = std::max(largest, at(x, c, td, th, tw));
              sum += at(x, c, td, th, tw);
              ++count;
            }
            EXPECT_NEAR(y.asDouble(i), opType[0] == 'M' ? largest : sum / count, 1e-9);
          }
  }
}

TEST(OpsConvertPlane, ADilatedMeanDividesByWhatCounts) {
  for (std::int64_t withPadding : {0, 1}) {
    Node node("AveragePool", 17);
    ASSERT_TRUE(node.floats({1, 1, 7})
                    .attribute("kernel_shape", Ints{2})
                    .attribute("dilations", Ints{3})
                    .attribute("pads", Ints{1, 1})
                    .attribute("strides", Ints{2})
                    .attribute("ceil_mode", std::int64_t{1})
                    .attribute("count_include_pad", withPadding)
                    .convert())
        << node.error();
    const Tensor y = node.run(), x = inputOf(node, "x0");
    ASSERT_EQ(y.shape(), (Shape{1, 1, 4})); // windows at -1, 1, 3 and 5, of which the last ends behind the padding
    const double first = withPadding ? 2 : 1;
    EXPECT_NEAR(y.asDouble(0), x.asDouble(2) / first, 1e-12);
    EXPECT_NEAR(y.asDouble(1), (x.asDouble(1) + x.asDouble(4)) / 2, 1e-12);
    EXPECT_NEAR(y.asDouble(2), (x.asDouble(3) + x.asDouble(6)) / 2, 1e-12);
    EXPECT_NEAR(y.asDouble(3), x.asDouble(5), 1e-12);
  }
}

TEST(OpsConvertPlane, MaxPoolSaysWhereItsMaximaAre) {
  Node node("MaxPool", 12);
  ASSERT_TRUE(node.floats({2, 3, 4}).attribute("kernel_shape", Ints{2}).convert(2)) << node.error();
  const Tensor y = node.run("0"), index = node.run("1"), x = inputOf(node, "x0");
  EXPECT_EQ(index.type().element, ElementType::i64);
  for (std::int64_t i = 0; i < y.elements(); ++i) EXPECT_EQ(x.asDouble(index.asInt(i)), y.asDouble(i));
}

TEST(OpsConvertPlane, LpPoolOfAnotherOrder) {
  Node node("LpPool", 17);
  ASSERT_TRUE(node.floats({1, 1, 5})
                  .attribute("kernel_shape", Ints{2})
                  .attribute("p", std::int64_t{3})
                  .attribute("dilations", Ints{2})
                  .convert())
      << node.error();
  const Tensor y = node.run(), x = inputOf(node, "x0");
  for (std::int64_t i = 0; i < 3; ++i)
    EXPECT_NEAR(std::pow(y.asDouble(i), 3),
                std::pow(std::abs(x.asDouble(i)), 3) + std::pow(std::abs(x.asDouble(i + 2)), 3), 1e-9);
}

TEST(OpsConvertPlane, UpsampleOfOldOpsetsRepeatsElements) {
  Node before("Upsample", 7), since("Upsample", 9);
  const std::vector<double> scales{1, 1, 2.5};
  ASSERT_TRUE(before.floats({1, 1, 2}).attribute("scales", scales).convert()) << before.error();
  ASSERT_TRUE(since.floats({1, 1, 2}).constant(Tensor::ofFloats({3}, scales)).convert()) << since.error();
  const Tensor x = inputOf(before, "x0");
  ASSERT_EQ(before.run().shape(), (Shape{1, 1, 5}));
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(before.run().asDouble(i), x.asDouble(i < 3 ? 0 : 1));
  EXPECT_EQ(before.run(), since.run());
}

TEST(OpsConvertPlane, ResizeNeedsScalesOrSizes) {
  Node node("Resize", 13);
  EXPECT_FALSE(node.floats({1, 1, 2}).convert());
  EXPECT_NE(node.error().find("has 0 scales and 0 sizes for 3 axes"), std::string::npos) << node.error();
}

TEST(OpsConvertPlane, BlocksMustFit) {
  Node depth("DepthToSpace", 13), space("SpaceToDepth", 13);
  EXPECT_FALSE(depth.floats({1, 6, 2, 2}).attribute("blocksize", std::int64_t{2}).convert());
  EXPECT_FALSE(space.floats({1, 6, 2, 3}).attribute("blocksize", std::int64_t{2}).convert());
  EXPECT_NE(space.error().find("has blocks of 2, which do not fit f32[1, 6, 2, 3]"), std::string::npos);
}

/// Every element of every block is added at its place of the image.
TEST(OpsConvertPlane, Col2ImAddsBlocks) {
  Node node("Col2Im", 18);
  ASSERT_TRUE(node.floats({2, 12, 6})
                  .integers({5, 7})
                  .integers({2, 3})
                  .attribute("strides", Ints{2, 3})
                  .attribute("dilations", Ints{2, 1})
                  .attribute("pads", Ints{1, 1, 0, 2})
                  .convert())
      << node.error();
  const Tensor y = node.run(), x = inputOf(node, "x0");
  ASSERT_EQ(y.shape(), (Shape{2, 2, 5, 7}));
  std::vector<double> image(140);
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const std::int64_t block = i % 6, place = i / 6 % 6, plane = i / 36; // blocks: 2 × 3, places: 2 × 3
    const std::int64_t h = block / 3 * 2 - 1 + place / 3 * 2, w = block % 3 * 3 - 1 + place % 3;
    if (h >= 0 && h < 5 && w >= 0 && w < 7) image[static_cast<std::size_t>((plane * 5 + h) * 7 + w)] += x.asDouble(i);
  }
  for (std::int64_t i = 0; i < 140; ++i) EXPECT_NEAR(y.asDouble(i), image[static_cast<std::size_t>(i)], 1e-12) << i;
}

TEST(OpsConvertPlane, Col2ImNeedsItsBlocks) {
  Node blocks("Col2Im", 18), volume("Col2Im", 18);
  EXPECT_FALSE(blocks.floats({1, 5, 4}).integers({5, 5}).integers({1, 5}).convert());
  EXPECT_NE(blocks.error().find("expected a multiple of 5 channels and 5 blocks"), std::string::npos) << blocks.error();
  EXPECT_FALSE(volume.floats({1, 8, 8}).integers({3, 3, 3}).integers({2, 2, 2}).convert());
  EXPECT_EQ(volume.exitCode(), ExitCode::unsupported);
}

TEST(OpsConvertPlane, AffineGridMapsPlaces) {
  for (bool corners : {false, true}) {
    Node node("AffineGrid", 20);
    ASSERT_TRUE(
        node.floats({2, 2, 3}).integers({2, 1, 3, 4}).attribute("align_corners", std::int64_t{corners}).convert())
        << node.error();
    const Tensor y = node.run(), theta = inputOf(node, "x0");
    ASSERT_EQ(y.shape(), (Shape{2, 3, 4, 2}));
    for (std::int64_t i = 0; i < y.elements(); ++i) {
      const std::int64_t axis = i % 2, w = i / 2 % 4, h = i / 8 % 3, row = i / 24 * 6 + axis * 3;
      const double px = corners ? 2 * double(w) / 3 - 1 : (2 * double(w) + 1) / 4 - 1,
                   py = corners ? double(h) - 1 : (2 * double(h) + 1) / 3 - 1;
      EXPECT_NEAR(y.asDouble(i), theta.asDouble(row) * px + theta.asDouble(row + 1) * py + theta.asDouble(row + 2),
                  1e-6);
    }
  }
  Node wrong("AffineGrid", 20);
  EXPECT_FALSE(wrong.floats({2, 2, 3}).integers({3, 1, 3, 4}).convert());
  EXPECT_NE(wrong.error().find("has matrices f32[2, 2, 3] for a size of [3, 1, 3, 4]"), std::string::npos)
      << wrong.error();
}
