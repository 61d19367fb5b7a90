// LINK: pdcImport pdcOps
// Sequences whose lengths and positions are known: what their operators become, and which are refused.
#include "ImportModels.h"

#include "pdc/IR/Interpreter.h"

using namespace pdc;
using namespace pdc::test;

namespace {

using Names = std::vector<std::string>;
using Numbers = std::vector<double>;

onnx::NodeProto& node(onnx::GraphProto& graph, const std::string& opType, const Names& inputs, const Names& outputs) {
  onnx::NodeProto& made = *graph.add_node();
  made.set_op_type(opType);
  made.set_name("n_" + outputs.front());
  for (const std::string& input : inputs) made.add_input(input);
  for (const std::string& output : outputs) made.add_output(output);
  return made;
}

onnx::GraphProto& body(onnx::NodeProto& owner, const std::string& name, const Names& inputs, const Names& outputs) {
  onnx::AttributeProto& made = *owner.add_attribute();
  made.set_name(name);
  made.set_type(onnx::AttributeProto::GRAPH);
  onnx::GraphProto& graph = *made.mutable_g();
  graph.set_name(name);
  for (const std::string& input : inputs) ModelMaker::describe(*graph.add_input(), input, {}, onnx::TensorProto::FLOAT);
  for (const std::string& output : outputs)
    ModelMaker::describe(*graph.add_output(), output, {}, onnx::TensorProto::FLOAT);
  return graph;
}

/// x: f32[2, 5], which counts from 1; the constants i0, i1, …, and last, which is -1; the output y.
ModelMaker model() {
  ModelMaker maker;
  maker.input("x", {"2", "5"});
  for (std::int64_t i = 0; i < 4; ++i)
    maker.raw("i" + std::to_string(i), {}, std::vector<std::int64_t>{i}, onnx::TensorProto::INT64);
  maker.raw("last", {}, std::vector<std::int64_t>{-1}, onnx::TensorProto::INT64);
  maker.output("y");
  return maker;
}

/// s: the columns of x, or parts of them.
onnx::NodeProto& split(ModelMaker& maker, const Names& inputs = {"x"}) {
  onnx::NodeProto& made = maker.node("SplitToSequence", inputs, {"s"}, "split");
  attribute(made, "axis", 1);
  return made;
}

void concat(ModelMaker& maker, const std::string& sequence, std::int64_t axis, bool stacks = false) {
  onnx::NodeProto& made = maker.node("ConcatFromSequence", {sequence}, {"y"}, "concat");
  attribute(made, "axis", axis);
  if (stacks) attribute(made, "new_axis", 1);
}

struct Computed {
  Shape shape;
  Numbers values;
  friend bool operator==(const Computed&, const Computed&) = default;
};
void PrintTo(const Computed& computed, std::ostream* out) {
  *out << toString(computed.shape) << " " << ::testing::PrintToString(computed.values);
}

Computed computed(const ModelMaker& maker) {
  Imported imported = importModel(maker);
  EXPECT_TRUE(imported.module) << imported.messages;
  if (!imported.module) return {};
  Tensor x(Type{ElementType::f32, {2, 5}});
  for (std::int64_t i = 0; i < 10; ++i) x.set(i, static_cast<double>(i + 1));
  Diagnostics diags(nullptr);
  const auto result = interpret(imported.graph(), {{"x", x}}, {}, Precision::f64, diags);
  EXPECT_TRUE(result);
  if (!result) return {};
  const Tensor& y = result->outputs.at("y");
  Computed found{y.type().shape, {}};
  for (std::int64_t i = 0; i < y.elements(); ++i) found.values.push_back(y.asDouble(i));
  return found;
}

void expectError(const ModelMaker& maker, ExitCode code, const std::string& text) {
  const Imported imported = importModel(maker);
  EXPECT_NE(imported.messages.find(text), std::string::npos) << imported.messages;
  EXPECT_EQ(imported.exitCode, code);
}

} // namespace

TEST(ImportSequences, SlicesKeepTheirAxisUnlessTheySayOtherwise) {
  ModelMaker maker = model();
  split(maker);
  maker.node("SequenceAt", {"s", "i2"}, {"y"}, "at");
  EXPECT_EQ(computed(maker), (Computed{{2, 1}, {3, 8}}));

  ModelMaker without = model();
  attribute(split(without), "keepdims", 0);
  without.node("SequenceAt", {"s", "last"}, {"y"}, "at");
  EXPECT_EQ(computed(without), (Computed{{2}, {5, 10}}));
}

TEST(ImportSequences, PartsAreOfOneLengthOrOfTheirOwn) {
  ModelMaker equal = model();
  attribute(split(equal, {"x", "i2"}), "keepdims", 0); // which counts only without lengths
  equal.node("SequenceAt", {"s", "last"}, {"y"}, "at");
  EXPECT_EQ(computed(equal), (Computed{{2, 1}, {5, 10}})) << "the last one is shorter";

  ModelMaker own = model();
  own.raw("lengths", {2}, std::vector<std::int64_t>{1, 4}, onnx::TensorProto::INT64);
  split(own, {"x", "lengths"});
  own.node("SequenceAt", {"s", "i1"}, {"y"}, "at");
  EXPECT_EQ(computed(own), (Computed{{2, 4}, {2, 3, 4, 5, 7, 8, 9, 10}}));
}

TEST(ImportSequences, TensorsComeAndGo) {
  ModelMaker maker = model();
  split(maker);                                         // 1 2 3 4 5
  maker.node("SequenceErase", {"s"}, {"a"}, "a");       // 1 2 3 4
  maker.node("SequenceErase", {"a", "i0"}, {"b"}, "b"); // 2 3 4
  maker.node("SequenceAt", {"s", "i0"}, {"first"}, "first");
  maker.node("SequenceInsert", {"b", "first"}, {"c"}, "c");         // 2 3 4 1
  maker.node("SequenceInsert", {"c", "first", "last"}, {"d"}, "d"); // 2 3 4 1 1
  maker.node("SequenceInsert", {"d", "first", "i0"}, {"e"}, "e");   // 1 2 3 4 1 1
  concat(maker, "e", -1);
  EXPECT_EQ(computed(maker), (Computed{{2, 6}, {1, 2, 3, 4, 1, 1, 6, 7, 8, 9, 6, 6}}));
}

TEST(ImportSequences, LengthsAreConstants) {
  ModelMaker maker = model();
  split(maker, {"x", "i2"});
  maker.node("SequenceLength", {"s"}, {"length"}, "length"); // 3
  attribute(maker.node("SplitToSequence", {"x"}, {"t"}, "t"), "axis", 1);
  maker.node("SequenceAt", {"t", "length"}, {"y"}, "at");
  EXPECT_EQ(computed(maker), (Computed{{2, 1}, {4, 9}}));
}

TEST(ImportSequences, AreStackedAlongANewAxis) {
  ModelMaker maker = model();
  attribute(split(maker), "keepdims", 0);
  maker.node("SequenceAt", {"s", "i0"}, {"a"}, "a");
  maker.node("SequenceAt", {"s", "i3"}, {"b"}, "b");
  maker.node("SequenceConstruct", {"b", "a"}, {"t"}, "t");
  maker.node("Identity", {"t"}, {"u"}, "u");
  concat(maker, "u", 0, true);
  EXPECT_EQ(computed(maker), (Computed{{2, 2}, {4, 9, 1, 6}}));
}

// As PyTorch exports nn.EmbeddingBag: each iteration adds what it has found to a sequence that was empty.
TEST(ImportSequences, ALoopCarriesThem) {
  ModelMaker maker = model();
  maker.node("SequenceEmpty", {}, {"none"}, "none");
  onnx::NodeProto& loop = maker.node("Loop", {"i3", "", "none"}, {"t"}, "loop");
  onnx::GraphProto& graph = body(loop, "body", {"i", "c_in", "t_in"}, {"c_out", "t_out"});
  node(graph, "Identity", {"c_in"}, {"c_out"});
  node(graph, "Gather", {"x", "i"}, {"column"});
  attribute(*graph.mutable_node(1), "axis", 1);
  node(graph, "SequenceInsert", {"t_in", "column"}, {"t_out"});
  concat(maker, "t", 0, true);
  EXPECT_EQ(computed(maker), (Computed{{3, 2}, {1, 6, 2, 7, 3, 8}}));
}

TEST(ImportSequences, ABranchYieldsThem) {
  ModelMaker maker = model();
  maker.raw("yes", {}, std::vector<std::uint8_t>{1}, onnx::TensorProto::BOOL);
  split(maker);
  onnx::NodeProto& choice = maker.node("If", {"yes"}, {"t"}, "choice");
  node(body(choice, "then_branch", {}, {"u"}), "SequenceErase", {"s", "i0"}, {"u"});
  node(body(choice, "else_branch", {}, {"u"}), "Identity", {"s"}, {"u"});
  maker.node("SequenceAt", {"t", "i0"}, {"y"}, "at");
  EXPECT_EQ(computed(maker), (Computed{{2, 1}, {2, 7}}));
}

TEST(ImportSequences, AMapCallsItsBodyForEachTensor) {
  ModelMaker maker = model();
  split(maker);
  maker.node("SequenceErase", {"s", "i0"}, {"rest"}, "rest"); // 2 3 4 5
  maker.node("SequenceErase", {"s"}, {"most"}, "most");       // 1 2 3 4
  maker.node("SequenceAt", {"s", "i1"}, {"two"}, "two");
  onnx::NodeProto& map = maker.node("SequenceMap", {"rest", "most", "two"}, {"t"}, "map");
  onnx::GraphProto& graph = body(map, "body", {"a", "b", "c"}, {"d"});
  node(graph, "Mul", {"a", "b"}, {"ab"});
  node(graph, "Add", {"ab", "c"}, {"d"});
  concat(maker, "t", 1);
  EXPECT_EQ(computed(maker), (Computed{{2, 4}, {4, 8, 14, 22, 49, 63, 79, 97}}));

  ModelMaker apart = model();
  split(apart);
  apart.node("SequenceErase", {"s"}, {"most"}, "most");
  node(body(apart.node("SequenceMap", {"s", "most"}, {"t"}, "map"), "body", {"a", "b"}, {"d"}), "Mul", {"a", "b"},
       {"d"});
  concat(apart, "t", 1);
  expectError(apart, ExitCode::invalidInput, "'SequenceMap' operator takes sequences of 5 and of 4 tensors");
}

TEST(ImportSequences, PositionsFromDataAreRefused) {
  ModelMaker maker = model();
  maker.input("where", {}, onnx::TensorProto::INT64);
  split(maker);
  maker.node("SequenceAt", {"s", "where"}, {"y"}, "at");
  expectError(maker, ExitCode::unsupported,
              "m.onnx:at: error: 'SequenceAt' operator needs the position (input 1) as a constant, it is computed from "
              "the model's data\nhelp: export the model with static shapes");
}

TEST(ImportSequences, PositionsAndLengthsThatDoNotFitAreRefused) {
  ModelMaker outside = model();
  outside.raw("five", {}, std::vector<std::int64_t>{5}, onnx::TensorProto::INT64);
  split(outside);
  outside.node("SequenceAt", {"s", "five"}, {"y"}, "at");
  expectError(outside, ExitCode::invalidInput,
              "m.onnx:at: error: 'SequenceAt' operator has position 5 in a sequence of 5");

  ModelMaker lengths = model();
  lengths.raw("lengths", {2}, std::vector<std::int64_t>{1, 5}, onnx::TensorProto::INT64);
  split(lengths, {"x", "lengths"});
  lengths.node("SequenceAt", {"s", "i1"}, {"y"}, "at");
  expectError(
      lengths, ExitCode::invalidInput,
      "m.onnx:split: error: 'SplitToSequence' operator splits an axis of 5 into parts, one of them of 5 after 1");

  ModelMaker nothing = model();
  nothing.node("SequenceEmpty", {}, {"s"}, "none");
  concat(nothing, "s", 0);
  expectError(nothing, ExitCode::invalidInput,
              "m.onnx:concat: error: 'ConcatFromSequence' operator concatenates a sequence of no tensors");
  ModelMaker erased = model();
  erased.node("SequenceEmpty", {}, {"s"}, "none");
  erased.node("SequenceErase", {"s"}, {"t"}, "erase");
  concat(erased, "t", 0);
  expectError(erased, ExitCode::invalidInput,
              "m.onnx:erase: error: 'SequenceErase' operator has position -1 in a sequence of 0 tensors");
}

TEST(ImportSequences, ATensorIsNoSequence) {
  ModelMaker tensor = model();
  tensor.node("SequenceAt", {"x", "i0"}, {"y"}, "at");
  expectError(tensor, ExitCode::invalidInput, "'SequenceAt' operator takes a sequence as input 0, it is f32[2, 5]");

  ModelMaker sequence = model();
  split(sequence);
  sequence.node("Relu", {"s"}, {"y"}, "relu");
  expectError(sequence, ExitCode::unsupported, "m.onnx:relu: error: 'Relu' operator takes a sequence");

  ModelMaker output = model();
  attribute(output.node("SplitToSequence", {"x"}, {"y"}, "split"), "axis", 1);
  expectError(output, ExitCode::unsupported, "m.onnx:y: error: is an output of the model and a sequence");

  ModelMaker nested = model();
  split(nested);
  nested.node("SequenceConstruct", {"s", "s"}, {"t"}, "construct");
  concat(nested, "t", 0);
  expectError(nested, ExitCode::invalidInput,
              "'SequenceConstruct' operator takes a tensor as input 0, it is a sequence");
}
