// LINK: pdcImport pdcOps
// Functions of a model: what their calls become, and which are refused.
#include "ImportModels.h"

#include "pdc/IR/Text.h"

#include <google/protobuf/unknown_field_set.h>

using namespace pdc;
using namespace pdc::test;

namespace {

onnx::FunctionProto& function(ModelMaker& maker, const std::string& name, const std::vector<std::string>& inputs,
                              const std::vector<std::string>& outputs, std::int64_t opset = 14) {
  onnx::FunctionProto& made = *maker.model.add_functions();
  made.set_domain("mine");
  made.set_name(name);
  for (const std::string& input : inputs) made.add_input(input);
  for (const std::string& output : outputs) made.add_output(output);
  made.add_opset_import()->set_version(opset);
  return made;
}

onnx::NodeProto& node(onnx::FunctionProto& function, const std::string& opType, const std::vector<std::string>& inputs,
                      const std::vector<std::string>& outputs, const std::string& domain = "") {
  onnx::NodeProto& made = *function.add_node();
  made.set_op_type(opType);
  made.set_domain(domain);
  made.set_name("n_" + outputs.front());
  for (const std::string& input : inputs) made.add_input(input);
  for (const std::string& output : outputs) made.add_output(output);
  return made;
}

onnx::NodeProto& call(ModelMaker& maker, const std::string& name, const std::vector<std::string>& inputs,
                      const std::vector<std::string>& outputs) {
  onnx::NodeProto& made = maker.node(name, inputs, outputs, "call_" + outputs.front());
  made.set_domain("mine");
  return made;
}

/// A model of input x: f32[2, 3, 4] and output y.
ModelMaker modelOfX() {
  ModelMaker maker;
  maker.input("x", {"2", "3", "4"});
  maker.output("y", {"2", "3", "4"});
  return maker;
}

/// "relu tanh": the ops in order.
std::string opsOf(Imported& imported) {
  if (!imported.module) return imported.messages;
  std::string names;
  for (const auto& operation : imported.graph().operations())
    names += (names.empty() ? "" : " ") + operation->def().name;
  return names;
}

/// The operation named by the ONNX node `name`, or null.
const Operation* at(Imported& imported, const std::string& name) {
  for (const auto& operation : imported.graph().operations())
    if (operation->location.node == name) return operation.get();
  return nullptr;
}

void refer(onnx::NodeProto& node, const std::string& name, const std::string& to) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_ref_attr_name(to);
  attribute.set_type(onnx::AttributeProto::FLOAT);
}

onnx::AttributeProto number(const std::string& name, float value) {
  onnx::AttributeProto attribute;
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::FLOAT);
  attribute.set_f(value);
  return attribute;
}

} // namespace

TEST(ImportFunctions, EveryCallIsExpandedWithNamesOfItsOwn) {
  ModelMaker maker = modelOfX();
  onnx::FunctionProto& block = function(maker, "Block", {"a"}, {"b"});
  node(block, "Relu", {"a"}, {"h"});
  node(block, "Tanh", {"h"}, {"b"});
  call(maker, "Block", {"x"}, {"m"});
  call(maker, "Block", {"m"}, {"y"});
  Imported imported = importModel(maker);
  ASSERT_EQ(opsOf(imported), "relu tanh relu tanh") << imported.messages;
  const Operation *first = at(imported, "call_m/n_h"), *last = at(imported, "call_y/n_b");
  ASSERT_TRUE(first && last) << print(*imported.module);
  EXPECT_EQ(last->operand(0), at(imported, "call_y/n_h")->result());
  EXPECT_EQ(first->operand(0), imported.graph().inputs.front().value);
  EXPECT_EQ(imported.graph().outputs.front().value, last->result());
}

TEST(ImportFunctions, FunctionsMayCallFunctions) {
  ModelMaker maker = modelOfX();
  onnx::FunctionProto& outer = function(maker, "Outer", {"a"}, {"b"});
  node(outer, "Inner", {"a"}, {"h"}, "mine");
  node(outer, "Inner", {"h"}, {"b"}, "mine");
  node(function(maker, "Inner", {"a"}, {"b"}), "Relu", {"a"}, {"b"});
  call(maker, "Outer", {"x"}, {"y"});
  Imported imported = importModel(maker);
  EXPECT_EQ(opsOf(imported), "relu relu");
  EXPECT_TRUE(at(imported, "call_y/n_h/n_b")) << print(*imported.module);
}

TEST(ImportFunctions, WeightsOfTheModelArePassedIn) {
  ModelMaker maker;
  maker.input("x", {"2", "3"});
  maker.output("y", {"2", "4"});
  maker.weight("layer.weight", {3, 4});
  node(function(maker, "Linear", {"a", "w"}, {"b"}), "MatMul", {"a", "w"}, {"b"});
  call(maker, "Linear", {"x", "layer.weight"}, {"y"});
  Imported imported = importModel(maker);
  ASSERT_EQ(opsOf(imported), "matmul");
  EXPECT_EQ(imported.module->parameters.front()->name, "layer.weight");
  EXPECT_EQ(imported.module->parameters.front()->role, ParameterRole::trained);
}

TEST(ImportFunctions, AttributesComeFromTheCallElseFromTheFunctionElseFromTheOperator) {
  for (const auto& [called, standard, expected] :
       {std::tuple(true, true, 0.5f), {false, true, 0.25f}, {false, false, 0.01f}}) {
    ModelMaker maker = modelOfX();
    onnx::FunctionProto& leaky = function(maker, "Leaky", {"a"}, {"b"});
    refer(node(leaky, "LeakyRelu", {"a"}, {"b"}), "alpha", "slope");
    // Field attribute_proto, which the installed messages lack.
    constexpr int attributeProto = 11;
    if (standard)
      leaky.mutable_unknown_fields()->AddLengthDelimited(attributeProto, number("slope", 0.25f).SerializeAsString());
    onnx::NodeProto& caller = call(maker, "Leaky", {"x"}, {"y"});
    if (called) *caller.add_attribute() = number("slope", 0.5f);
    Imported imported = importModel(maker);
    ASSERT_EQ(opsOf(imported), "leaky_relu");
    EXPECT_FLOAT_EQ(static_cast<float>(imported.graph().operations().front()->attributes.getFloat("alpha")), expected);
  }
}

TEST(ImportFunctions, AFunctionHasAnOpsetOfItsOwn) {
  ModelMaker maker = modelOfX(); // of opset 14, where Softmax is over the last axis
  node(function(maker, "Old", {"a"}, {"b"}, 12), "Softmax", {"a"}, {"b"});
  node(function(maker, "New", {"a"}, {"b"}, 13), "Softmax", {"a"}, {"b"});
  call(maker, "Old", {"x"}, {"m"});
  call(maker, "New", {"m"}, {"y"});
  Imported imported = importModel(maker);
  EXPECT_EQ(opsOf(imported), "reshape softmax reshape softmax");
}

TEST(ImportFunctions, AnOperatorThatPdcKnowsIsNotTakenFromTheModel) {
  ModelMaker maker = modelOfX();
  onnx::FunctionProto& relu = function(maker, "Relu", {"a"}, {"b"});
  relu.set_domain("");
  node(relu, "Tanh", {"a"}, {"b"});
  maker.node("Relu", {"x"}, {"y"});
  Imported imported = importModel(maker);
  EXPECT_EQ(opsOf(imported), "relu");
}

TEST(ImportFunctions, AnOperatorThatPdcLacksIsTakenFromTheModel) {
  ModelMaker maker = modelOfX();
  onnx::FunctionProto& gizmo = function(maker, "Gizmo", {"a"}, {"b"});
  gizmo.set_domain("");
  node(gizmo, "Tanh", {"a"}, {"b"});
  maker.node("Gizmo", {"x"}, {"y"});
  Imported imported = importModel(maker);
  EXPECT_EQ(opsOf(imported), "tanh");
}

TEST(ImportFunctions, OverloadsAreToldApart) {
  constexpr int ofNode = 8, ofFunction = 13; // fields that the installed messages lack
  ModelMaker maker = modelOfX();
  for (const auto& [overload, opType] : {std::pair("", "Relu"), std::pair("2", "Tanh")}) {
    onnx::FunctionProto& made = function(maker, "F", {"a"}, {"b"});
    node(made, opType, {"a"}, {"b"});
    made.mutable_unknown_fields()->AddLengthDelimited(ofFunction, overload);
  }
  call(maker, "F", {"x"}, {"m"}).mutable_unknown_fields()->AddLengthDelimited(ofNode, "2");
  call(maker, "F", {"m"}, {"y"});
  Imported imported = importModel(maker);
  EXPECT_EQ(opsOf(imported), "tanh relu");
}

TEST(ImportFunctions, InputsAndOutputsMayBeAbsent) {
  ModelMaker maker = modelOfX();
  onnx::FunctionProto& clip = function(maker, "Limit", {"a", "low", "high"}, {"b", "unused"});
  node(clip, "Clip", {"a", "low", "high"}, {"b"});
  node(clip, "Tanh", {"a"}, {"unused"});
  onnx::TensorProto& high = maker.raw<float>("one", {}, {1.0f});
  call(maker, "Limit", {"x", "", high.name()}, {"y"});
  Imported imported = importModel(maker);
  EXPECT_EQ(opsOf(imported), "constant elementwise tanh");
}

TEST(ImportFunctions, AnOutputMayBeAnInput) {
  ModelMaker maker = modelOfX();
  onnx::FunctionProto& pass = function(maker, "Pass", {"a"}, {"a", "b", "b"});
  node(pass, "Relu", {"a"}, {"b"});
  call(maker, "Pass", {"x"}, {"m", "n", "o"});
  maker.node("Sum", {"m", "n", "o"}, {"y"});
  Imported imported = importModel(maker);
  ASSERT_EQ(opsOf(imported), "relu add add");
  Value *x = imported.graph().inputs.front().value, *relu = imported.graph().operations()[0]->result();
  EXPECT_EQ(imported.graph().operations()[1]->operands(), (std::vector<Value*>{x, relu}));
  EXPECT_EQ(imported.graph().operations()[2]->operand(1), relu);
}

TEST(ImportFunctions, NamesThatAreTakenGetANumber) {
  ModelMaker maker = modelOfX();
  onnx::FunctionProto& block = function(maker, "Block", {"a"}, {"b"});
  node(block, "Relu", {"a"}, {"h"});
  node(block, "Tanh", {"h"}, {"b"});
  maker.node("Neg", {"x"}, {"call_y/h"}, "neg");
  call(maker, "Block", {"call_y/h"}, {"y"});
  Imported imported = importModel(maker);
  EXPECT_EQ(opsOf(imported), "neg relu tanh");
}

TEST(ImportFunctions, RecursionIsRefused) {
  ModelMaker maker = modelOfX();
  node(function(maker, "A", {"a"}, {"b"}), "B", {"a"}, {"b"}, "mine");
  node(function(maker, "B", {"a"}, {"b"}), "A", {"a"}, {"b"}, "mine");
  call(maker, "A", {"x"}, {"y"});
  const Imported imported = importModel(maker);
  EXPECT_EQ(imported.messages, "m.onnx:call_y/n_b/n_b: error: calls function 'A', which calls itself; ONNX allows no "
                               "recursion\nnote: 'A' calls 'B' calls 'A'\n");
}

TEST(ImportFunctions, ExplosionIsRefused) {
  ModelMaker maker = modelOfX();
  const int depth = 40;
  for (int i = 0; i < depth; ++i) {
    onnx::FunctionProto& twice = function(maker, "F" + std::to_string(i), {"a"}, {"b"});
    const std::string next = "F" + std::to_string(i + 1);
    node(twice, i + 1 < depth ? next : "Relu", {"a"}, {"h"}, i + 1 < depth ? "mine" : "");
    node(twice, i + 1 < depth ? next : "Relu", {"h"}, {"b"}, i + 1 < depth ? "mine" : "");
  }
  call(maker, "F0", {"x"}, {"y"});
  const Imported imported = importModel(maker);
  EXPECT_NE(imported.messages.find("expand to more than 200000 nodes"), std::string::npos) << imported.messages;
  EXPECT_EQ(imported.exitCode, ExitCode::unsupported);
}

TEST(ImportFunctions, ACallWithTooManyInputsIsRefused) {
  ModelMaker maker = modelOfX();
  node(function(maker, "F", {"a"}, {"b"}), "Relu", {"a"}, {"b"});
  call(maker, "F", {"x", "x"}, {"y"});
  EXPECT_EQ(importModel(maker).messages,
            "m.onnx:call_y: error: calls function 'F' with 2 inputs and 1 outputs, it has 1 and 1\n");
}
