// LINK: pdcImport pdcOps
// If, Loop and Scan: what they expand to, what it computes, and which are refused.
#include "ImportModels.h"

#include "pdc/IR/Interpreter.h"

#include <bit>

using namespace pdc;
using namespace pdc::test;

namespace {

using Names = std::vector<std::string>;

onnx::NodeProto& node(onnx::GraphProto& graph, const std::string& opType, const Names& inputs, const Names& outputs) {
  onnx::NodeProto& made = *graph.add_node();
  made.set_op_type(opType);
  made.set_name("n_" + outputs.front());
  for (const std::string& input : inputs) made.add_input(input);
  for (const std::string& output : outputs) made.add_output(output);
  return made;
}

/// The graph attribute `name` of `owner`, with these inputs and outputs.
onnx::GraphProto& body(onnx::NodeProto& owner, const std::string& name, const Names& inputs, const Names& outputs) {
  onnx::AttributeProto& attribute = *owner.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::GRAPH);
  onnx::GraphProto& graph = *attribute.mutable_g();
  graph.set_name(name);
  for (const std::string& input : inputs) ModelMaker::describe(*graph.add_input(), input, {}, onnx::TensorProto::FLOAT);
  for (const std::string& output : outputs)
    ModelMaker::describe(*graph.add_output(), output, {}, onnx::TensorProto::FLOAT);
  return graph;
}

ModelMaker modelOfX(const Names& dims = {"2"}) {
  ModelMaker maker;
  maker.input("x", dims);
  maker.output("y");
  return maker;
}

/// y = relu(x) if c, else tanh(x)
void addIf(ModelMaker& maker) {
  onnx::NodeProto& choice = maker.node("If", {"c"}, {"y"}, "choice");
  node(body(choice, "then_branch", {}, {"t"}), "Relu", {"x"}, {"t"});
  node(body(choice, "else_branch", {}, {"t"}), "Tanh", {"x"}, {"t"});
}

/// y = ((x · w) · w) … , as often as m and c say; w is of the outer scope. The body's condition is the one that it
/// gets.
onnx::GraphProto& addLoop(ModelMaker& maker) {
  onnx::NodeProto& loop = maker.node("Loop", {"m", "c", "x"}, {"y"}, "loop");
  onnx::GraphProto& graph = body(loop, "body", {"i", "c_in", "v"}, {"c_out", "v_out"});
  node(graph, "Identity", {"c_in"}, {"c_out"});
  node(graph, "Mul", {"v", "w"}, {"v_out"});
  return graph;
}
void addCount(ModelMaker& maker, std::int64_t count) {
  maker.raw("m", {}, std::vector<std::int64_t>{count}, onnx::TensorProto::INT64);
}
void addCondition(ModelMaker& maker, bool holds) {
  maker.raw("c", {}, std::vector<std::uint8_t>{holds}, onnx::TensorProto::BOOL);
}

std::string opsOf(Imported& imported) {
  if (!imported.module) return imported.messages;
  std::string names;
  for (const auto& operation : imported.graph().operations())
    if (operation->def().kind != OpKind::constant)
      names += (names.empty() ? "" : " ") + operation->def().name + "@" + operation->location.node;
  return names;
}

/// Output `name` for x = 1, 2, … and weights 1, 2, ….
std::vector<double> computed(Imported& imported, const std::string& name = "y") {
  auto counted = [](const Type& type) {
    Tensor tensor(type);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, static_cast<double>(i + 1));
    return tensor;
  };
  std::map<std::string, Tensor> inputs, parameters;
  for (const GraphInput& input : imported.graph().inputs) inputs[input.value->name()] = counted(input.value->type());
  for (const auto& parameter : imported.module->parameters) parameters[parameter->name] = counted(parameter->type);
  Diagnostics diags(nullptr);
  const auto result = interpret(imported.graph(), inputs, parameters, Precision::f64, diags);
  std::vector<double> values;
  for (std::int64_t i = 0; result && i < result->outputs.at(name).elements(); ++i)
    values.push_back(result->outputs.at(name).asDouble(i));
  return values;
}

bool has(const Imported& imported, const std::string& text) {
  return imported.messages.find(text) != std::string::npos;
}

} // namespace

TEST(ImportControlFlow, AnIfTakesTheBranchOfItsCondition) {
  for (bool holds : {true, false}) {
    ModelMaker maker = modelOfX();
    addCondition(maker, holds);
    addIf(maker);
    Imported imported = importModel(maker);
    EXPECT_EQ(opsOf(imported), holds ? "relu@choice/then/n_t" : "tanh@choice/else/n_t");
  }
}

TEST(ImportControlFlow, AConditionMayComeFromShapes) {
  ModelMaker maker = modelOfX({"2", "1"});
  maker.node("Shape", {"x"}, {"shape"});
  maker.raw("two", {2}, std::vector<std::int64_t>{2, 1}, onnx::TensorProto::INT64);
  maker.node("Equal", {"shape", "two"}, {"same"});
  maker.raw("at", {}, std::vector<std::int64_t>{0}, onnx::TensorProto::INT64);
  maker.node("Gather", {"same", "at"}, {"c"});
  addIf(maker);
  Imported imported = importModel(maker);
  EXPECT_EQ(opsOf(imported), "relu@choice/then/n_t");
}

TEST(ImportControlFlow, AConditionFromDataIsRefused) {
  ModelMaker maker = modelOfX();
  maker.input("c", {}, onnx::TensorProto::BOOL);
  addIf(maker);
  Imported imported = importModel(maker);
  EXPECT_FALSE(imported.module);
  EXPECT_EQ(imported.exitCode, ExitCode::unsupported);
  EXPECT_TRUE(has(imported, "m.onnx:choice: error: 'If' operator needs a constant input 0 (cond), it is computed from "
                            "the model's data"))
      << imported.messages;
}

TEST(ImportControlFlow, OnlyTheBranchTakenMustBeSupported) {
  for (bool holds : {true, false}) {
    ModelMaker maker = modelOfX();
    addCondition(maker, holds);
    onnx::NodeProto& choice = maker.node("If", {"c"}, {"y"}, "choice");
    node(body(choice, "then_branch", {}, {"t"}), "Relu", {"x"}, {"t"});
    node(body(choice, "else_branch", {}, {"t"}), "Imagined", {"x"}, {"t"});
    Imported imported = importModel(maker);
    EXPECT_EQ(imported.module != nullptr, holds);
    EXPECT_EQ(has(imported, "choice/else/n_t: error: 'Imagined' is not an operator that pdc knows in opset 14"), !holds)
        << imported.messages;
  }
}

TEST(ImportControlFlow, ALoopIsUnrolledAndItsCapturedWeightTrained) {
  ModelMaker maker = modelOfX();
  addCount(maker, 3);
  addCondition(maker, true);
  maker.weight("w", {2});
  addLoop(maker);
  Imported imported = importModel(maker);
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(opsOf(imported), "mul@loop/0/n_v_out mul@loop/1/n_v_out mul@loop/2/n_v_out");
  EXPECT_EQ(imported.module->parameters.at(0)->role, ParameterRole::trained);
  EXPECT_EQ(computed(imported), (std::vector<double>{1, 16}));
}

TEST(ImportControlFlow, ALoopWhoseConditionDoesNotHoldDoesNothing) {
  ModelMaker maker = modelOfX();
  addCount(maker, 3);
  addCondition(maker, false);
  maker.weight("w", {2});
  addLoop(maker);
  Imported imported = importModel(maker);
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(computed(imported), (std::vector<double>{1, 2}));
}

/// i + 1 < 4 is known in every iteration.
TEST(ImportControlFlow, ALoopEndsWhenItsConditionSaysSo) {
  ModelMaker maker = modelOfX();
  maker.raw("one", {}, std::vector<std::int64_t>{1}, onnx::TensorProto::INT64);
  maker.raw("four", {}, std::vector<std::int64_t>{4}, onnx::TensorProto::INT64);
  onnx::NodeProto& loop = maker.node("Loop", {"", "", "x"}, {"", "y"}, "loop");
  onnx::GraphProto& graph = body(loop, "body", {"i", "c_in", "v"}, {"c_out", "v_out", "i"});
  node(graph, "Add", {"i", "one"}, {"next"});
  node(graph, "Less", {"next", "four"}, {"c_out"});
  node(graph, "Add", {"v", "v"}, {"v_out"});
  Imported imported = importModel(maker);
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(computed(imported), (std::vector<double>{0, 1, 2, 3})); // the iterations, stacked
}

TEST(ImportControlFlow, ANumberOfIterationsFromDataIsRefused) {
  ModelMaker maker = modelOfX();
  maker.input("m", {}, onnx::TensorProto::INT64);
  addCondition(maker, true);
  maker.weight("w", {2});
  addLoop(maker);
  Imported imported = importModel(maker);
  EXPECT_EQ(imported.exitCode, ExitCode::unsupported);
  EXPECT_TRUE(has(imported, "'Loop' operator needs a constant input 0 (M), it is computed from the model's data"))
      << imported.messages;
}

TEST(ImportControlFlow, AConditionThatTheBodyComputesFromDataIsRefused) {
  ModelMaker maker = modelOfX({});
  addCount(maker, 3);
  addCondition(maker, true);
  maker.raw("limit", {}, std::vector<float>{9});
  onnx::NodeProto& loop = maker.node("Loop", {"m", "c", "x"}, {"y"}, "loop");
  onnx::GraphProto& graph = body(loop, "body", {"i", "c_in", "v"}, {"c_out", "v_out"});
  node(graph, "Add", {"v", "v"}, {"v_out"});
  node(graph, "Less", {"v_out", "limit"}, {"c_out"});
  Imported imported = importModel(maker);
  EXPECT_TRUE(has(imported, "'Loop' operator needs a constant condition in the body's output 0")) << imported.messages;
}

TEST(ImportControlFlow, AnEndlessLoopIsRefused) {
  ModelMaker maker = modelOfX();
  maker.node("Loop", {"", "", "x"}, {"y"}, "loop");
  onnx::GraphProto& graph = body(*maker.graph().mutable_node(0), "body", {"i", "c_in", "v"}, {"c_in", "v"});
  static_cast<void>(graph);
  Imported imported = importModel(maker);
  EXPECT_EQ(imported.exitCode, ExitCode::unsupported);
  EXPECT_TRUE(has(imported, "loop: error: control flow expands to more than 10000 nodes")) << imported.messages;
}

TEST(ImportControlFlow, ALoopWithoutIterationsStacksNothing) {
  ModelMaker maker = modelOfX();
  addCount(maker, 0);
  onnx::NodeProto& loop = maker.node("Loop", {"m", ""}, {"y"}, "loop");
  onnx::GraphProto& graph = body(loop, "body", {"i", "c_in"}, {"c_in", "r"});
  node(graph, "Relu", {"x"}, {"r"});
  Imported imported = importModel(maker);
  EXPECT_TRUE(has(imported, "loop: error: output 0 of 'Loop' is used, but not supported")) << imported.messages;
}

/// Running sums of the columns of [[1, 2], [3, 4], [5, 6]].
TEST(ImportControlFlow, AScanSlicesAndStacks) {
  for (bool backwards : {false, true}) {
    ModelMaker maker = modelOfX({"3", "2"});
    maker.output("last");
    maker.raw("start", {2}, std::vector<float>{1, 2});
    onnx::NodeProto& scan = maker.node("Scan", {"start", "x"}, {"last", "y"}, "scan");
    attribute(scan, "num_scan_inputs", 1);
    if (backwards)
      for (const char* name : {"scan_input_directions", "scan_output_directions"}) {
        onnx::AttributeProto& directions = *scan.add_attribute();
        directions.set_name(name);
        directions.set_type(onnx::AttributeProto::INTS);
        directions.add_ints(1);
      }
    onnx::GraphProto& graph = body(scan, "body", {"sum", "row"}, {"sum_out", "row_out"});
    node(graph, "Add", {"sum", "row"}, {"sum_out"});
    node(graph, "Identity", {"sum_out"}, {"row_out"});
    Imported imported = importModel(maker);
    ASSERT_TRUE(imported.module) << imported.messages;
    EXPECT_EQ(computed(imported, "last"), (std::vector<double>{10, 14}));
    EXPECT_EQ(computed(imported),
              backwards ? (std::vector<double>{10, 14, 9, 12, 6, 8}) : (std::vector<double>{2, 4, 5, 8, 10, 14}));
  }
}

TEST(ImportControlFlow, ScannedInputsMustHaveAsManySlices) {
  ModelMaker maker = modelOfX({"3"});
  maker.input("z", {"4"});
  onnx::NodeProto& scan = maker.node("Scan", {"x", "z"}, {"y"}, "scan");
  attribute(scan, "num_scan_inputs", 2);
  node(body(scan, "body", {"a", "b"}, {"s"}), "Add", {"a", "b"}, {"s"});
  Imported imported = importModel(maker);
  EXPECT_TRUE(has(imported, "'Scan' operator scans 3 slices of one input and 4 of another")) << imported.messages;
}

/// The names of a body hide those outside, and no longer than the body.
TEST(ImportControlFlow, NamesOfABodyAreItsOwn) {
  ModelMaker maker = modelOfX();
  addCount(maker, 2);
  maker.node("Neg", {"x"}, {"h"}, "neg");
  onnx::NodeProto& loop = maker.node("Loop", {"m", "", "x"}, {"r"}, "loop");
  onnx::GraphProto& graph = body(loop, "body", {"i", "c_in", "h"}, {"c_in", "h_out"});
  node(graph, "Add", {"h", "h"}, {"h_out"});
  maker.node("Add", {"r", "h"}, {"y"}, "sum");
  Imported imported = importModel(maker);
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(computed(imported), (std::vector<double>{3, 6}));
}

TEST(ImportControlFlow, ANodeComesAfterWhatItsBodiesTake) {
  ModelMaker maker = modelOfX();
  addCount(maker, 1);
  addCondition(maker, true);
  addLoop(maker);
  maker.node("Neg", {"x"}, {"w"}, "later");
  Imported imported = importModel(maker);
  EXPECT_EQ(opsOf(imported), "neg@later mul@loop/0/n_v_out");
}

TEST(ImportControlFlow, AValueThatNobodyDefinesIsTold) {
  ModelMaker maker = modelOfX();
  addCount(maker, 1);
  addCondition(maker, true);
  addLoop(maker);
  Imported imported = importModel(maker);
  EXPECT_TRUE(has(imported, "loop: error: uses 'w', which nothing defines")) << imported.messages;
}

TEST(ImportControlFlow, IterationsShareAWeightInTheirBody) {
  ModelMaker maker = modelOfX({"2", "2"});
  addCount(maker, 2);
  addCondition(maker, true);
  onnx::GraphProto& graph = addLoop(maker);
  ModelMaker inner;
  inner.weight("w", {2, 2});
  *graph.add_initializer() = inner.graph().initializer(0);
  Imported imported = importModel(maker);
  ASSERT_TRUE(imported.module) << imported.messages;
  ASSERT_EQ(imported.module->parameters.size(), 1U);
  EXPECT_EQ(imported.module->parameters[0]->name, "w");
  EXPECT_EQ(imported.graph().parameterValue(*imported.module->parameters[0])->users().size(), 2U);
  EXPECT_TRUE(has(imported, "remark: 1 weight in bodies of control flow, 'w' first: all iterations share them"))
      << imported.messages;
}

TEST(ImportControlFlow, AWeightInABodyThatLiesInPiecesIsNotTrainedWhichIsTold) {
  ModelMaker maker = modelOfX({"2", "2"});
  addCount(maker, 2);
  addCondition(maker, true);
  onnx::GraphProto& graph = addLoop(maker);
  onnx::TensorProto& tensor = *graph.add_initializer();
  tensor.set_name("w");
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  for (int dim : {2, 2}) tensor.add_dims(dim);
  // Every number in a field of its own, as writers do that do not pack.
  for (float number : {1.0F, 2.0F, 3.0F, 4.0F})
    tensor.mutable_unknown_fields()->AddFixed32(4, std::bit_cast<std::uint32_t>(number));
  Imported imported = importModel(maker);
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_TRUE(imported.module->parameters.empty());
  EXPECT_TRUE(has(imported, "loop/0/w: warning: is a weight in the body of control flow: such weights are constants"))
      << imported.messages;
}

TEST(ImportControlFlow, ABodyOfOtherInputsIsRefused) {
  ModelMaker maker = modelOfX();
  addCount(maker, 2);
  onnx::NodeProto& loop = maker.node("Loop", {"m", "", "x"}, {"y"}, "loop");
  body(loop, "body", {"i", "c_in"}, {"c_in", "x"});
  Imported imported = importModel(maker);
  EXPECT_TRUE(has(imported, "loop: error: gives its body 3 inputs, that has 2")) << imported.messages;
}
