// LINK: pdcOps
// Conversions where opset versions differ or test vectors are silent: what becomes of a node, and what is refused.
#include "OpsExamples.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

/// One node under conversion, with graph inputs x0, x1, … and constants as its inputs.
class Node {
public:
  Node(std::string opType, std::int64_t version) {
    node_.opType = std::move(opType);
    node_.version = version;
    node_.location = {.file = "m.onnx", .node = "n"};
    module_.graphs.push_back(std::make_unique<Graph>("main"));
    builder_.emplace(module_, graph(), allOps(), diags_, /*fold=*/true);
  }

  Node& input(ElementType element, Shape shape) {
    const std::string name = "x" + std::to_string(node_.inputs.size());
    node_.inputs.push_back(graph().addInput({element, std::move(shape)}, name));
    return *this;
  }
  Node& floats(Shape shape) { return input(ElementType::f32, std::move(shape)); }
  Node& constant(const Tensor& tensor) {
    node_.inputs.push_back(builder_->constant(tensor));
    return *this;
  }
  Node& integers(std::vector<std::int64_t> values) {
    return constant(Tensor::ofInts({static_cast<std::int64_t>(values.size())}, values));
  }
  Node& attribute(const std::string& name, Attribute value) {
    node_.attributes.set(name, std::move(value));
    return *this;
  }

  /// Converts; the results that are there become outputs "0", "1", ….
  bool convert(std::size_t outputs = 1) {
    node_.outputs = outputs;
    node_.outputUsed.assign(outputs, true);
    const OnnxMapping* mapping = allOps().findOnnx(node_.opType, node_.version);
    if (!mapping) return false;
    auto values = mapping->convert(node_, *builder_, diags_);
    if (!values) return false;
    for (std::size_t i = 0; i < values->size(); ++i)
      if (Value* value = (*values)[i])
        graph().outputs.push_back(
            {.kind = OutputKind::result, .value = value, .name = std::to_string(i), .parameter = nullptr});
    return true;
  }

  /// The ops of the graph, constants left out: "reshape softmax reshape".
  std::string ops() {
    std::string names;
    for (const auto& operation : graph().operations())
      if (operation->def().kind != OpKind::constant) names += (names.empty() ? "" : " ") + operation->def().name;
    return names;
  }
  const Operation& last() { return *graph().operations().back(); }
  Tensor run(const std::string& output = "0") {
    const auto result = interpret(graph(), Inputs(4).of(graph()), {}, Precision::f64, diags_);
    EXPECT_TRUE(result) << error();
    return result ? result->outputs.at(output) : Tensor();
  }
  Graph& graph() { return *module_.graphs.front(); }
  std::string error() const { return messages(diags_); }
  ExitCode exitCode() const { return diags_.exitCode(); }

private:
  Module module_;
  Diagnostics diags_{nullptr};
  OnnxNode node_;
  std::optional<Builder> builder_;
};

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
  EXPECT_EQ(node.ops(), "minimum");
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
  EXPECT_TRUE(mean.last().def().lossLike);
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
            "model's data\nhelp: export the model with static shapes and constant folding of shapes\n");
  EXPECT_EQ(data.exitCode(), ExitCode::unsupported);
  EXPECT_FALSE(plane.floats({1, 1, 4, 4, 4}).attribute("kernel_shape", std::vector<std::int64_t>{2, 2, 2}).convert());
  EXPECT_EQ(plane.exitCode(), ExitCode::unsupported);
}
