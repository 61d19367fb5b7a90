// LINK: pdcTransforms pdcOps
// ONNX's LSTM, GRU and RNN in all their forms: gradients of whole nodes, the unrolled form against the ops, weights as
// exporters store them, and what is refused.
#include "OpsNode.h"
#include "OpsTrained.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

/// A recurrent node of 3 steps, 2 rows, 2 inputs and 2 hidden units.
struct Recurrent {
  std::string name, opType;
  Attributes attributes = {};
  std::vector<std::int64_t> lengths = {}; ///< none: absent
  bool initial = true, peepholes = false;

  std::int64_t gates() const { return opType == "LSTM" ? 4 : opType == "GRU" ? 3 : 1; }
  std::size_t outputs() const { return opType == "LSTM" ? 3 : 2; }

  std::unique_ptr<Node> make() const {
    const std::int64_t directions = attributes.getOr<std::string>("direction", "") == "bidirectional" ? 2 : 1;
    const bool batchFirst = attributes.getOr<std::int64_t>("layout", 0) != 0;
    auto owned = std::make_unique<Node>(opType, 14);
    Node& node = *owned;
    for (const auto& [attribute, value] : attributes) node.attribute(attribute, value);
    node.floats(batchFirst ? Shape{2, 3, 2} : Shape{3, 2, 2});
    node.floats({directions, gates() * 2, 2}).floats({directions, gates() * 2, 2}).floats({directions, gates() * 4});
    if (lengths.empty())
      node.absent();
    else
      node.constant(Tensor::ofInts({2}, lengths, ElementType::i32));
    for (std::size_t state = 1; state < outputs(); ++state)
      initial ? node.floats(batchFirst ? Shape{2, directions, 2} : Shape{directions, 2, 2}) : node.absent();
    if (peepholes) node.floats({directions, 6});
    return owned;
  }
};

void PrintTo(const Recurrent& form, std::ostream* stream) {
  *stream << form.name;
}

/// The node's graph, under differentiation for all of its outputs.
Trained trained(Node& node) {
  auto module = parse(print(node.module()));
  Graph& graph = *module->graphs.front();
  std::vector<Value*> results;
  for (const GraphOutput& output : graph.outputs) results.push_back(output.value);
  graph.outputs.clear();
  return {std::move(module), results};
}

std::vector<Recurrent> forms() {
  const auto texts = [](std::vector<std::string> names) { return Attribute(std::move(names)); };
  const auto direction = [](const char* name) { return std::pair<const std::string, Attribute>("direction", name); };
  std::vector<Recurrent> list;
  for (const char* opType : {"LSTM", "GRU", "RNN"}) {
    const Attributes standard =
        std::string(opType) == "GRU" ? Attributes{{"linear_before_reset", std::int64_t{1}}} : Attributes{};
    const auto with = [&](std::initializer_list<std::pair<const std::string, Attribute>> more) {
      Attributes all = standard;
      for (const auto& [name, value] : more) all.set(name, value);
      return all;
    };
    const std::string type = opType;
    list.push_back({type + "Forward", type, standard});
    list.push_back({type + "Zeros", type, standard, {}, false});
    list.push_back({type + "Both", type, with({direction("bidirectional")}), {2, 3}});
    list.push_back({type + "BatchFirst", type, with({direction("bidirectional"), {"layout", std::int64_t{1}}})});
    list.push_back({type + "ReverseLengths", type, with({direction("reverse")}), {1, 2}});
    list.push_back({type + "LengthZero", type, standard, {0, 3}, false});
    list.push_back({type + "Clip", type, with({{"clip", 1.3}}), {3, 2}});
  }
  list.push_back({"RNNRelu", "RNN", {{"activations", texts({"Relu"})}}});
  list.push_back({"RNNAffineReverse",
                  "RNN",
                  {{"activations", texts({"Affine"})},
                   {"activation_alpha", std::vector<double>{0.5}},
                   {"activation_beta", std::vector<double>{0.25}},
                   direction("reverse")}});
  list.push_back({"GRUResetBefore", "GRU", {}, {3, 1}});
  list.push_back({"LSTMPeepholes", "LSTM", {}, {}, true, true});
  list.push_back({"LSTMPeepholesBoth", "LSTM", {direction("bidirectional")}, {2, 3}, true, true});
  list.push_back({"LSTMInputForget", "LSTM", {{"input_forget", std::int64_t{1}}}});
  list.push_back({"LSTMActivations",
                  "LSTM",
                  {{"activations", texts({"HardSigmoid", "softsign", "ScaledTanh"})},
                   {"activation_alpha", std::vector<double>{0.3, 1.5}},
                   {"activation_beta", std::vector<double>{0.4, 0.75}}}});
  return list;
}

class RecurrentForm : public ::testing::TestWithParam<Recurrent> {};

} // namespace

TEST_P(RecurrentForm, GradientsAreDifferences) {
  const auto node = GetParam().make();
  ASSERT_TRUE(node->convert(GetParam().outputs())) << node->error();
  Trained differentiated = trained(*node);
  EXPECT_GE(expectGradientsToBeDifferences(differentiated), 4);
}

// A clip that limits nothing makes the conversion unroll the layer; the ops must compute the same.
TEST_P(RecurrentForm, UnrolledIsTheSame) {
  Recurrent form = GetParam();
  if (form.attributes.has("clip")) GTEST_SKIP() << "is unrolled";
  const auto node = form.make();
  form.attributes.set("clip", 1e9);
  const auto unrolled = form.make();
  ASSERT_TRUE(node->convert(form.outputs()) && unrolled->convert(form.outputs())) << node->error() << unrolled->error();
  for (std::size_t i = 0; i < form.outputs(); ++i)
    EXPECT_LT(errorOf(node->run(std::to_string(i)), unrolled->run(std::to_string(i))), 1e-12) << "output " << i;
}

INSTANTIATE_TEST_SUITE_P(All, RecurrentForm, ::testing::ValuesIn(forms()),
                         [](const auto& tested) { return tested.param.name; });

// PyTorch, exported for training: weights are sliced into gates and concatenated in ONNX's order.
TEST(OpsRecurrent, StoredWeightsAreUsedInTheirOwnOrder) {
  Node node("LSTM", 14), plain("LSTM", 14);
  node.floats({3, 2, 2});
  plain.floats({3, 2, 2});
  Builder& b = node.builder();
  const auto input = [&](Shape shape) {
    return node.graph().addInput({ElementType::f32, std::move(shape)},
                                 "x" + std::to_string(node.graph().inputs.size()));
  };
  const auto gates = [&](Value* stored, std::int64_t begin, std::int64_t count) {
    Shape sizes = stored->type().shape;
    std::vector<std::int64_t> starts(sizes.size(), 0);
    starts[0] = begin * 2, sizes[0] = count * 2;
    return b.value("slice", {stored}, {{"starts", starts}, {"sizes", sizes}, {"steps", Shape(sizes.size(), 1)}});
  };
  const auto together = [&](std::vector<Value*> parts) {
    return b.value("concat", parts, {{"axis", std::int64_t{0}}});
  };
  const auto reordered = [&](Value* stored) {
    return together({gates(stored, 0, 1), gates(stored, 3, 1), gates(stored, 1, 2)});
  };
  const auto first = [&](Value* x) {
    Shape shape = x->type().shape;
    shape.insert(shape.begin(), 1);
    return b.value("reshape", {x}, {{"shape", shape}});
  };
  Value *w = input({8, 2}), *r = input({8, 2}), *wb = input({8}), *rb = input({8});
  node.value(first(reordered(w))).value(first(reordered(r))).value(first(together({reordered(wb), reordered(rb)})));
  ASSERT_TRUE(node.convert()) << node.error();
  const Operation* lstm = nullptr;
  for (const auto& operation : node.graph().operations())
    if (operation->def().name == "lstm") lstm = operation.get();
  ASSERT_TRUE(lstm);
  EXPECT_EQ(lstm->attributes.get<std::string>("order"), "ifco");
  EXPECT_EQ(lstm->operand(1), r) << "the weight as it is stored";

  // The same values in ONNX's order.
  auto values = Inputs(4).of(node.graph());
  const auto inOnnxOrder = [](const Tensor& stored) {
    Tensor result(stored.type());
    const std::int64_t block = stored.elements() / 4;
    constexpr std::int64_t from[] = {0, 3, 1, 2};
    for (std::int64_t i = 0; i < stored.elements(); ++i)
      result.set(i, stored.asDouble(from[i / block] * block + i % block));
    return result;
  };
  Tensor bias({ElementType::f32, {1, 16}});
  for (int half : {0, 1})
    for (std::int64_t i = 0; i < 8; ++i) bias.set(half * 8 + i, inOnnxOrder(values[half ? "x4" : "x3"]).asDouble(i));
  plain.constant(inOnnxOrder(values["x1"]).reshaped({1, 8, 2})).constant(inOnnxOrder(values["x2"]).reshaped({1, 8, 2}));
  plain.constant(bias);
  ASSERT_TRUE(plain.convert()) << plain.error();
  EXPECT_LT(errorOf(node.run(), plain.run()), 1e-6) << "the sum of constant biases is folded in f32";
}

// ONNX's Y is 0 behind the end of a row; Y_h is the state at its end.
TEST(OpsRecurrent, RowsAreZeroBehindTheirEnd) {
  const Recurrent form{"x", "GRU", {{"linear_before_reset", std::int64_t{1}}}, {1, 3}};
  const auto node = form.make();
  ASSERT_TRUE(node->convert(2)) << node->error();
  const Tensor y = node->run("0"), last = node->run("1");
  const auto at = [&](std::int64_t step, std::int64_t row, std::int64_t unit) {
    return y.asDouble((step * 2 + row) * 2 + unit);
  };
  for (std::int64_t unit : {0, 1}) {
    EXPECT_EQ(at(1, 0, unit), 0);
    EXPECT_EQ(at(2, 0, unit), 0);
    EXPECT_NE(at(2, 1, unit), 0);
    EXPECT_EQ(last.asDouble(unit), at(0, 0, unit));
    EXPECT_EQ(last.asDouble(2 + unit), at(2, 1, unit));
  }
}

TEST(OpsRecurrent, ZeroStatesAreNoOperands) {
  Node node("RNN", 14);
  node.floats({3, 2, 2}).floats({1, 2, 2}).floats({1, 2, 2}).absent().absent();
  Value* zero = node.builder().constant(0);
  node.value(node.builder().value("broadcast", {zero}, {{"shape", Shape{1, 2, 2}}}));
  ASSERT_TRUE(node.convert()) << node.error();
  for (const auto& operation : node.graph().operations())
    EXPECT_TRUE(operation->def().name != "rnn" || !operation->operand(2));
}

TEST(OpsRecurrent, WhatDoesNotFitIsRefused) {
  const auto error = [](const std::function<void(Recurrent&)>& change) {
    Recurrent form{"x", "LSTM"};
    change(form);
    const auto node = form.make();
    EXPECT_FALSE(node->convert(3));
    return node->error();
  };
  EXPECT_NE(error([](Recurrent& f) {
              f.attributes.set("hidden_size", std::int64_t{3});
            }).find("'LSTM' operator has hidden_size 3, R has 2 columns"),
            std::string::npos);
  EXPECT_NE(error([](Recurrent& f) { f.attributes.set("direction", "backward"); }).find("has direction 'backward'"),
            std::string::npos);
  EXPECT_NE(error([](Recurrent& f) {
              f.attributes.set("activations", std::vector<std::string>{"Tanh"});
            }).find("names 1 activations, it needs 3"),
            std::string::npos);
  EXPECT_NE(error([](Recurrent& f) {
              f.attributes.set("activations", std::vector<std::string>{"Tanh", "Tanh", "Sin"});
            }).find("has activation 'Sin', which pdc does not know"),
            std::string::npos);
  EXPECT_NE(error([](Recurrent& f) {
              f.lengths = {2, 4};
            }).find("has a sequence of 4 steps, the input has 3"),
            std::string::npos);
  EXPECT_NE(error([](Recurrent& f) { f.attributes.set("clip", -1.0); }).find("has clip -1"), std::string::npos);
}

TEST(OpsRecurrent, InputsOfTheWrongShapeAreRefused) {
  Node node("GRU", 14);
  node.floats({3, 2, 2}).floats({1, 6, 3}).floats({1, 6, 2});
  EXPECT_FALSE(node.convert(2));
  EXPECT_NE(node.error().find("has input W of f32[1, 6, 3], its shape should be [1, 6, 2]"), std::string::npos)
      << node.error();
}

TEST(OpsRecurrent, LongSequencesAreNotUnrolled) {
  Node node("GRU", 14);
  node.floats({513, 1, 1}).floats({1, 3, 1}).floats({1, 3, 1});
  EXPECT_FALSE(node.convert(2));
  EXPECT_EQ(node.exitCode(), ExitCode::unsupported);
  EXPECT_NE(node.error().find("has to be unrolled over 513 steps, at most 512 are supported"), std::string::npos)
      << node.error();
}
