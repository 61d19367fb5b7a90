// LINK: pdcImport pdcOps
// Models that are right: what they become.
#include "ImportModels.h"
#include "pdc/IR/Text.h"
#include "pdc/IR/Verifier.h"
#include "pdcrt/MappedFile.h"

#include <sys/stat.h>

using namespace pdc;
using namespace pdc::test;

namespace {

std::vector<float> elementsOf(const Parameter& parameter) {
  pdcrt::MappedFile file;
  EXPECT_TRUE(file.open(parameter.reference.file));
  std::vector<float> values(static_cast<std::size_t>(parameter.type.elements()));
  EXPECT_EQ(parameter.reference.length, parameter.type.bytes());
  std::memcpy(values.data(), file.bytes().data() + parameter.reference.offset, values.size() * sizeof(float));
  return values;
}

std::string nodesOf(Graph& graph) {
  std::string names;
  for (const auto& operation : graph.operations()) names += operation->location.node + " ";
  return names;
}

TEST(Import, MakesOneGraphWithInputsParametersAndResults) {
  Imported imported = importModel(smallModel(), {.batch = 4});
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(imported.messages, "");
  EXPECT_EQ(imported.module->name, "m");
  Graph& graph = imported.graph();
  ASSERT_EQ(graph.inputs.size(), 1u);
  EXPECT_EQ(graph.inputs[0].kind, InputKind::data);
  EXPECT_EQ(graph.inputs[0].value->name(), "x");
  EXPECT_EQ(toString(graph.inputs[0].value->type()), "f32[4, 2]");
  ASSERT_EQ(imported.module->parameters.size(), 1u);
  EXPECT_EQ(imported.module->parameters[0]->name, "w");
  EXPECT_EQ(imported.module->parameters[0]->role, ParameterRole::trained);
  EXPECT_EQ(nodesOf(graph), "matmul relu ");
  ASSERT_EQ(graph.outputs.size(), 1u);
  EXPECT_EQ(graph.outputs[0].kind, OutputKind::result);
  EXPECT_EQ(graph.outputs[0].name, "y");
  EXPECT_EQ(toString(graph.outputs[0].value->type()), "f32[4, 3]");
  Diagnostics diags(nullptr);
  EXPECT_TRUE(verify(*imported.module, diags));
}

TEST(Import, NamesANodeWithoutNameAfterItsOutput) {
  ModelMaker maker = smallModel();
  maker.graph().mutable_node(1)->clear_name();
  Imported imported = importModel(maker, {.batch = 4});
  ASSERT_TRUE(imported.module);
  EXPECT_EQ(nodesOf(imported.graph()), "matmul y ");
}

// Weights are found where they lie, in each of the forms that ONNX has for bytes.

TEST(Import, RefersToRawData) {
  TemporaryFolder folder;
  smallModel().write(folder / "m.onnx");
  Imported imported = importFile(folder / "m.onnx", {.batch = 1});
  ASSERT_TRUE(imported.module);
  EXPECT_EQ(elementsOf(*imported.module->parameters[0]), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(imported.module->parameters[0]->reference.file, folder / "m.onnx");
}

TEST(Import, RefersToPackedFloats) {
  TemporaryFolder folder;
  ModelMaker maker = smallModel();
  onnx::TensorProto& weight = *maker.graph().mutable_initializer(0);
  weight.clear_raw_data();
  for (int i = 0; i < 6; ++i) weight.add_float_data(static_cast<float>(10 + i));
  maker.write(folder / "m.onnx");
  Imported imported = importFile(folder / "m.onnx", {.batch = 1});
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(elementsOf(*imported.module->parameters[0]), (std::vector<float>{10, 11, 12, 13, 14, 15}));
}

void makeExternal(onnx::TensorProto& tensor, const std::string& location, const std::string& offset = "",
                  const std::string& length = "") {
  tensor.clear_raw_data();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  for (const auto& [key, value] :
       {std::pair<std::string, std::string>{"location", location}, {"offset", offset}, {"length", length}}) {
    if (value.empty()) continue;
    onnx::StringStringEntryProto& entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  }
}

std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST(Import, RefersToExternalData) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "data");
  writeFile(folder / "data/w.bin", floats({9, 9, 1, 2, 3, 4, 5, 6, 9}));
  ModelMaker maker = smallModel();
  makeExternal(*maker.graph().mutable_initializer(0), "data/w.bin", "8", "24");
  maker.write(folder / "m.onnx");
  Imported imported = importFile(folder / "m.onnx", {.batch = 1});
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(elementsOf(*imported.module->parameters[0]), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(imported.module->parameters[0]->reference.file, folder / "data/w.bin");
}

TEST(Import, ReadsIntegersInEveryForm) {
  std::vector<std::int64_t> shape = {3, 2};
  ModelMaker maker = smallModel();
  maker.graph().mutable_node(1)->set_output(0, "r");
  maker.node("Reshape", {"r", "shape"}, {"y"}, "reshape");
  maker.raw("shape", {2}, shape, onnx::TensorProto::INT64);
  Imported raw = importModel(maker, {.batch = 2});
  ASSERT_TRUE(raw.module) << raw.messages;
  EXPECT_EQ(toString(raw.graph().outputs[0].value->type()), "f32[3, 2]");

  onnx::TensorProto& tensor = *maker.graph().mutable_initializer(1);
  tensor.clear_raw_data();
  tensor.add_int64_data(6);
  tensor.add_int64_data(1);
  Imported typed = importModel(maker, {.batch = 2});
  ASSERT_TRUE(typed.module) << typed.messages;
  EXPECT_EQ(toString(typed.graph().outputs[0].value->type()), "f32[6, 1]");

  TemporaryFolder folder;
  shape = {1, 6};
  writeFile(folder / "shape", {reinterpret_cast<const char*>(shape.data()), 16});
  makeExternal(tensor, "shape");
  tensor.clear_int64_data();
  maker.write(folder / "m.onnx");
  Imported external = importFile(folder / "m.onnx", {.batch = 2});
  ASSERT_TRUE(external.module) << external.messages;
  EXPECT_EQ(toString(external.graph().outputs[0].value->type()), "f32[1, 6]");
}

TEST(Import, TakesInitializersThatAreInputsTooAsParameters) {
  ModelMaker maker = smallModel();
  maker.model.set_ir_version(3);
  maker.input("w", {"2", "3"});
  Imported imported = importModel(maker, {.batch = 2});
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(imported.graph().inputs.size(), 1u);
  EXPECT_EQ(imported.module->parameters.size(), 1u);
}

// Which initializers are trained.

/// y = relu(x · w) + b · s with s of rank 0.
ModelMaker modelWithScale() {
  ModelMaker maker = smallModel();
  maker.graph().mutable_node(1)->set_output(0, "r");
  maker.weight("b", {3});
  maker.weight("s", {});
  maker.weight("unused", {7});
  maker.node("Mul", {"b", "s"}, {"bs"}, "mul");
  maker.node("Add", {"r", "bs"}, {"y"}, "add");
  return maker;
}

std::string rolesOf(const Imported& imported) {
  std::string text;
  for (const auto& parameter : imported.module->parameters)
    text += parameter->name + (parameter->role == ParameterRole::trained  ? " trained "
                               : parameter->role == ParameterRole::frozen ? " frozen "
                                                                          : " state ");
  return text;
}

TEST(Import, TrainsFloatsButNotScalars) {
  Imported imported = importModel(modelWithScale(), {.batch = 2});
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(rolesOf(imported), "w trained b trained ");
}

TEST(Import, ScalesOfResizeAreNumbers) {
  ModelMaker maker;
  maker.input("x", {"1", "1", "2"});
  maker.output("y", {"1", "1", "4"});
  maker.raw<float>("scales", {3}, {1, 1, 2});
  maker.node("Resize", {"x", "", "scales"}, {"y"});
  Imported imported = importModel(maker);
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(rolesOf(imported), "");
  EXPECT_EQ(toString(imported.graph().outputs.front().value->type()), "f32[1, 1, 4]");
}

TEST(Import, FreezesAndTrainsByName) {
  EXPECT_EQ(rolesOf(importModel(modelWithScale(), {.batch = 2, .freeze = "^b$"})), "w trained b frozen ");
  EXPECT_EQ(rolesOf(importModel(modelWithScale(), {.batch = 2, .train = "s"})), "w trained b trained s trained ");
  EXPECT_EQ(rolesOf(importModel(modelWithScale(), {.batch = 2, .freeze = ".", .train = "w"})),
            "w trained b frozen s frozen ");
}

TEST(Import, WarnsOfAPatternThatMatchesNothing) {
  EXPECT_EQ(importModel(modelWithScale(), {.batch = 2, .freeze = "encoder"}).messages,
            "m.onnx: warning: --freeze='encoder' matches no floating-point initializer\n"
            "help: 'pdc m.onnx --emit=ir' lists their names\n"
            "m.onnx: remark: 1 float without dimensions is a constant, 's' first\n"
            "help: --train='(^|[./:])(s)$' trains it\n");
}

TEST(Import, RefusesABrokenPattern) {
  Imported imported = importModel(modelWithScale(), {.batch = 2, .train = "("});
  EXPECT_EQ(imported.messages, "error: --train='(' is not a regular expression\n");
  EXPECT_EQ(imported.exitCode, ExitCode::usage);
}

// Dimensions.

TEST(Import, BindsTheBatchAndOtherDimensions) {
  ModelMaker maker;
  maker.input("x", {"n", "rows", "2"});
  maker.input("z", {"n", "", "2"});
  maker.node("Add", {"x", "z"}, {"y"});
  maker.output("y");
  Imported imported = importModel(maker, {.batch = 5, .dims = {{"rows", 3}, {"z.1", 1}}});
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(toString(imported.graph().inputs[1].value->type()), "f32[5, 1, 2]");
  EXPECT_EQ(toString(imported.graph().outputs[0].value->type()), "f32[5, 3, 2]");
}

TEST(Import, TakesTheExportedBatch) {
  ModelMaker maker = smallModel();
  maker.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_value(
      7);
  EXPECT_EQ(toString(importModel(maker).graph().outputs[0].value->type()), "f32[7, 3]");
  EXPECT_EQ(toString(importModel(maker, {.batch = 7}).graph().outputs[0].value->type()), "f32[7, 3]");
}

// Order.

TEST(Import, KeepsAnOrderThatIsTopological) {
  ModelMaker maker;
  maker.input("x", {"2"});
  maker.node("Relu", {"x"}, {"a"}, "second-branch");
  maker.node("Neg", {"x"}, {"b"}, "first-branch");
  maker.node("Add", {"b", "a"}, {"y"}, "join");
  maker.output("y");
  EXPECT_EQ(nodesOf(importModel(maker).graph()), "second-branch first-branch join ");
}

TEST(Import, SortsANodeBehindWhatItNeedsAndNothingElse) {
  ModelMaker maker;
  maker.input("x", {"2"});
  maker.node("Add", {"a", "x"}, {"y"}, "late");
  maker.node("Relu", {"x"}, {"a"}, "early");
  maker.node("Neg", {"x"}, {"z"}, "other");
  maker.output("y");
  maker.output("z");
  EXPECT_EQ(nodesOf(importModel(maker).graph()), "early late other ");
}

TEST(Import, FoldsShapeArithmetic) {
  // y = reshape(x, concat(shape(x)[0:1], [-1])), as exporters write `x.flatten(1)`.
  ModelMaker maker;
  maker.input("x", {"batch", "2", "3"});
  maker.raw("zero", {1}, std::vector<std::int64_t>{0}, onnx::TensorProto::INT64);
  maker.raw("one", {1}, std::vector<std::int64_t>{1}, onnx::TensorProto::INT64);
  maker.raw("rest", {1}, std::vector<std::int64_t>{-1}, onnx::TensorProto::INT64);
  maker.node("Shape", {"x"}, {"shape"});
  maker.node("Slice", {"shape", "zero", "one"}, {"rows"});
  attribute(maker.node("Concat", {"rows", "rest"}, {"target"}), "axis", 0);
  maker.node("Reshape", {"x", "target"}, {"y"}, "flatten");
  maker.output("y");
  Imported imported = importModel(maker, {.batch = 4});
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(toString(imported.graph().outputs[0].value->type()), "f32[4, 6]");
  for (const auto& operation : imported.graph().operations())
    EXPECT_TRUE(operation->def().kind == OpKind::constant || operation->location.node == "flatten")
        << operation->def().name;
}

} // namespace
