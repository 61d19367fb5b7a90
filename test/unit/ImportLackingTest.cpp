// LINK: pdcImport pdcOps
// Models without weights: as inputs, as initializers without elements, as external data that was not copied.
#include "ImportModels.h"
#include "pdc/Import/TrainedOnnx.h"

using namespace pdc;
using namespace pdc::test;

namespace {

const ImportOptions lacking = {.batch = 1, .weightsMayLack = true};

/// y = relu(x · layer.weight) + shift, with both as inputs.
ModelMaker modelWithInputs() {
  ModelMaker maker;
  maker.input("x", {"batch", "2"});
  maker.input("layer.weight", {"2", "3"});
  maker.input("shift", {"3"});
  maker.node("MatMul", {"x", "layer.weight"}, {"h"}, "matmul");
  maker.node("Relu", {"h"}, {"r"}, "relu");
  maker.node("Add", {"r", "shift"}, {"y"}, "add");
  maker.output("y", {"batch", "3"});
  return maker;
}

std::string parametersOf(const Imported& imported) {
  std::string text;
  for (const auto& parameter : imported.module->parameters)
    text += parameter->name + " " + toString(parameter->type) +
            (parameter->reference == Reference{} ? " without values\n" : "\n");
  return text;
}

TEST(ImportLacking, InputsCalledByAPathAreWeights) {
  Imported imported = importModel(modelWithInputs(), lacking);
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(parametersOf(imported), "layer.weight f32[2, 3] without values\n");
  ASSERT_EQ(imported.graph().inputs.size(), 2u);
  EXPECT_EQ(imported.graph().inputs[1].value->name(), "shift");
  EXPECT_EQ(imported.messages, "m.onnx: remark: 1 input is taken for weights that the model was exported without, "
                               "'layer.weight' first\n");
}

TEST(ImportLacking, TrainSaysWhichOthersAre) {
  ImportOptions options = lacking;
  options.train = "^shift$";
  Imported imported = importModel(modelWithInputs(), options);
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(parametersOf(imported), "layer.weight f32[2, 3] without values\nshift f32[3] without values\n");
  EXPECT_EQ(imported.graph().inputs.size(), 1u);
}

TEST(ImportLacking, SymbolicAndIntegerInputsAreData) {
  ModelMaker maker = smallModel();
  maker.input("cache.0.key", {"batch", "3"});
  maker.input("token.ids", {"4"}, onnx::TensorProto::INT64);
  ImportOptions options = lacking;
  options.train = "cache|token";
  Imported imported = importModel(maker, options);
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(imported.graph().inputs.size(), 3u);
}

TEST(ImportLacking, InitializersWithoutElements) {
  ModelMaker maker = smallModel();
  maker.graph().mutable_initializer(0)->clear_raw_data();
  Imported imported = importModel(maker, lacking);
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(parametersOf(imported), "w f32[2, 3] without values\n");
  EXPECT_FALSE(importModel(maker, {.batch = 1}).module);
}

ModelMaker withoutData(const std::string& location) {
  ModelMaker maker = smallModel();
  onnx::TensorProto& tensor = *maker.graph().mutable_initializer(0);
  tensor.clear_raw_data();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  onnx::StringStringEntryProto& entry = *tensor.add_external_data();
  entry.set_key("location");
  entry.set_value(location);
  return maker;
}

TEST(ImportLacking, ExternalDataThatIsNotThere) {
  Imported imported = importModel(withoutData("w.bin"), lacking);
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(parametersOf(imported), "w f32[2, 3] without values\n");
  // A file that is there and wrong is no lack.
  const Imported outside = importModel(withoutData("../w.bin"), lacking);
  EXPECT_FALSE(outside.module);
  EXPECT_NE(outside.messages.find("leaves the folder"), std::string::npos) << outside.messages;
}

TEST(ImportLacking, ConstantsAreNotDrawn) {
  ModelMaker maker = smallModel();
  maker.graph().mutable_node(1)->set_output(0, "r");
  maker.tensor("shape", {2}, onnx::TensorProto::INT64);
  maker.node("Reshape", {"r", "shape"}, {"y"}, "reshape");
  Imported imported = importModel(maker, lacking);
  EXPECT_FALSE(imported.module);
  EXPECT_EQ(imported.messages, "m.onnx:shape: error: is a constant of i64[2] of which the model has no elements\n"
                               "help: export the model with its constants; --init draws weights\n");
}

TEST(ImportLacking, TrainedWeightsBecomeInitializers) {
  TemporaryFolder folder;
  modelWithInputs().write(folder / "m.onnx");
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::map<std::string, pdcrt::TensorRecord> trained = {
      {"layer.weight", {"layer.weight", ElementType::f32, {2, 3}, std::as_bytes(std::span(values))}}};
  Diagnostics diags(nullptr);
  ASSERT_TRUE(writeTrainedOnnx(folder / "m.onnx", trained, folder / "out.onnx", diags));
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(readFile(folder / "out.onnx")));
  ASSERT_EQ(model.graph().input_size(), 2);
  EXPECT_EQ(model.graph().input(1).name(), "shift");
  ASSERT_EQ(model.graph().initializer_size(), 1);
  EXPECT_EQ(model.graph().initializer(0).raw_data(),
            std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  EXPECT_TRUE(importFile(folder / "out.onnx", {.batch = 1}).module);
}

} // namespace
