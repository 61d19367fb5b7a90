// LINK: pdcOps
// Conversions where opset versions differ or test vectors are silent: what becomes of a node, and what is refused.
#include "OpsNode.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

double sumOf(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = begin; i < begin + count; ++i) sum += tensor.asDouble(i);
  return sum;
}

} // namespace

TEST(OpsConvert, SoftmaxTakesAllAxesFromOneOnBeforeOpset13) {
  Node before("Softmax", 11), since("Softmax", 13);
  ASSERT_TRUE(before.floats({2, 3, 4}).convert());
  EXPECT_EQ(before.ops(), "reshape softmax reshape");
  EXPECT_NEAR(sumOf(before.run(), 12, 12), 1, 1e-12);
  ASSERT_TRUE(since.floats({2, 3, 4}).convert());
  EXPECT_NEAR(sumOf(since.run(), 12, 4), 1, 1e-12);
}

TEST(OpsConvert, SoftmaxOverAnInnerAxisIsTransposed) {
  Node node("LogSoftmax", 13);
  ASSERT_TRUE(node.floats({2, 3, 4}).attribute("axis", std::int64_t{1}).convert());
  const Tensor y = node.run();
  EXPECT_NEAR(std::exp(y.asDouble(1)) + std::exp(y.asDouble(5)) + std::exp(y.asDouble(9)), 1, 1e-12);
}

TEST(OpsConvert, AxesMoveFromAttributesToInputs) {
  const std::vector<std::int64_t> axes{0};
  for (const auto& [opType, shape, result] :
       {std::tuple("Squeeze", Shape{1, 3}, Shape{3}), std::tuple("Unsqueeze", Shape{3}, Shape{1, 3}),
        std::tuple("ReduceSum", Shape{2, 3}, Shape{1, 3})}) {
    Node before(opType, 11), since(opType, 13);
    ASSERT_TRUE(before.floats(shape).attribute("axes", axes).convert()) << before.error();
    ASSERT_TRUE(since.floats(shape).integers(axes).convert()) << since.error();
    EXPECT_EQ(before.run().shape(), result) << opType;
    EXPECT_EQ(before.run(), since.run()) << opType;
  }
}

TEST(OpsConvert, SliceAndPadAndSplitReadAttributesOfOldOpsets) {
  Node slice("Slice", 9), pad("Pad", 9), split("Split", 11);
  const auto list = [](std::vector<std::int64_t> values) { return values; };
  ASSERT_TRUE(slice.floats({4, 5}).attribute("starts", list({1})).attribute("ends", list({-1})).convert());
  EXPECT_EQ(slice.run().shape(), (Shape{2, 5}));
  ASSERT_TRUE(pad.floats({2}).attribute("pads", list({1, 2})).attribute("value", 7.0).convert());
  EXPECT_EQ(pad.run().asDouble(4), 7);
  ASSERT_TRUE(split.floats({5}).attribute("split", list({2, 3})).convert(2));
  EXPECT_EQ(split.run("1").shape(), Shape{3});
}

TEST(OpsConvert, ClipReadsAttributesBeforeOpset11) {
  Node node("Clip", 6);
  ASSERT_TRUE(node.floats({3}).attribute("max", 0.5).convert());
  EXPECT_EQ(node.ops(), "elementwise");
  EXPECT_LE(node.run().asDouble(0), 0.5);
}

TEST(OpsConvert, DropoutDropsOnlyInTraining) {
  const Tensor yes = Tensor::scalar(1, ElementType::boolean), no = Tensor::scalar(0, ElementType::boolean);
  Node old("Dropout", 10), inference("Dropout", 13), off("Dropout", 13), training("Dropout", 13);
  ASSERT_TRUE(old.floats({4}).attribute("ratio", 0.25).convert());
  EXPECT_EQ(old.ops(), "dropout");
  EXPECT_EQ(old.last().attributes.getFloat("ratio"), 0.25);
  ASSERT_TRUE(inference.floats({4}).convert());
  EXPECT_EQ(inference.ops(), "");
  ASSERT_TRUE(off.floats({4}).constant(Tensor::scalar(0.5)).constant(no).convert());
  EXPECT_EQ(off.ops(), "");
  ASSERT_TRUE(training.floats({4}).constant(Tensor::scalar(0.25)).constant(yes).convert());
  EXPECT_EQ(training.ops(), "dropout");
}

TEST(OpsConvert, DropoutsMaskHasTheTypeThatItsVersionSays) {
  const auto masked = [](std::int64_t version, double ratio) {
    Node node("Dropout", version);
    EXPECT_TRUE(node.floats({4}).attribute("ratio", ratio).convert(2)) << node.error();
    return node.run("1");
  };
  for (double ratio : {0.5, 0.0}) {
    EXPECT_EQ(masked(9, ratio).type().element, ElementType::f64) << "a float, which the interpreter has in f64";
    EXPECT_EQ(masked(10, ratio).type().element, ElementType::boolean);
  }
  const Tensor mask = masked(9, 0);
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(mask.asDouble(i), 1);
}

TEST(OpsConvert, TwoDropoutsDrawDifferentNumbers) {
  Node node("Dropout", 10);
  node.floats({4});
  ASSERT_TRUE(node.convert());
  const std::int64_t first = node.last().attributes.getInt("op_number");
  ASSERT_TRUE(node.convert());
  EXPECT_NE(node.last().attributes.getInt("op_number"), first);
}

TEST(OpsConvert, BatchNormalizationTrainsAsItsVersionSays) {
  const auto operands = [](Node& node) -> Node& {
    return node.floats({4, 3}).floats({3}).floats({3}).floats({3}).input(ElementType::f32, {3});
  };
  Node inference("BatchNormalization", 9), training("BatchNormalization", 9), flag("BatchNormalization", 15);
  ASSERT_TRUE(operands(inference).convert(1));
  EXPECT_EQ(inference.ops(), "batch_norm");
  ASSERT_TRUE(operands(training).convert(3));
  EXPECT_EQ(training.ops(), "batch_norm_training");
  ASSERT_TRUE(operands(flag).attribute("training_mode", std::int64_t{1}).attribute("momentum", 0.75).convert(3));
  EXPECT_EQ(flag.ops(), "batch_norm_training");
  EXPECT_EQ(flag.last().attributes.getFloat("momentum"), 0.75);
  EXPECT_EQ(flag.run("1").shape(), Shape{3});
}

TEST(OpsConvert, OneDimensionalConvolutionIsAPlaneOfHeightOne) {
  Node node("Conv", 11);
  ASSERT_TRUE(node.floats({1, 2, 7}).floats({3, 2, 3}).attribute("pads", std::vector<std::int64_t>{1, 0}).convert());
  EXPECT_EQ(node.ops(), "reshape reshape conv2d reshape");
  EXPECT_EQ(node.run().shape(), (Shape{1, 3, 6}));
}

TEST(OpsConvert, LossesBecomeTheirOpWhereItSaysTheSame) {
  Node mean("SoftmaxCrossEntropyLoss", 13), sum("SoftmaxCrossEntropyLoss", 13);
  ASSERT_TRUE(mean.floats({4, 3}).input(ElementType::i64, {4}).attribute("ignore_index", std::int64_t{1}).convert());
  EXPECT_EQ(mean.ops(), "softmax_cross_entropy");
  EXPECT_TRUE(mean.last().def().facts.lossLike);
  ASSERT_TRUE(sum.floats({4, 3}).input(ElementType::i64, {4}).attribute("reduction", std::string("sum")).convert());
  EXPECT_EQ(sum.ops().find("softmax_cross_entropy"), std::string::npos);
}

TEST(OpsConvert, RefusesWhatItDoesNotKnow) {
  Node unknown("Relu", 14), absent("Gemm", 13), kind("Concat", 13), data("Reshape", 13), plane("MaxPool", 12);
  EXPECT_FALSE(unknown.floats({2}).attribute("slope", 0.5).convert());
  EXPECT_EQ(unknown.error(),
            "m.onnx:n: error: 'Relu' operator has attribute 'slope', which pdc does not know in opset 14\n");
  EXPECT_EQ(unknown.exitCode(), ExitCode::unsupported);
  EXPECT_FALSE(absent.floats({2, 2}).convert());
  EXPECT_EQ(absent.error(), "m.onnx:n: error: 'Gemm' operator needs 2 inputs, input 1 is absent\n");
  EXPECT_FALSE(kind.floats({2, 2}).floats({2, 2}).attribute("axis", 0.5).convert());
  EXPECT_EQ(kind.error(), "m.onnx:n: error: 'Concat' operator has attribute 'axis' of the wrong kind\n");
  EXPECT_FALSE(data.floats({2}).input(ElementType::i64, {1}).convert());
  EXPECT_EQ(data.error(),
            "m.onnx:n: error: 'Reshape' operator needs a constant input 1 (shape), it is computed from the "
            "model's data\nhelp: give 'x1' one value: --bind x1=VALUE\n");
  EXPECT_EQ(data.exitCode(), ExitCode::unsupported);
  EXPECT_FALSE(
      plane.floats({1, 1, 4, 4, 4, 4}).attribute("kernel_shape", std::vector<std::int64_t>{2, 2, 2, 2}).convert());
  EXPECT_EQ(plane.exitCode(), ExitCode::unsupported);
}
