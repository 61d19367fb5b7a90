// LINK: pdcImport pdcOps
// Trained weights go back into the model; everything else stays.
#include "ImportModels.h"
#include "pdc/Import/TrainedOnnx.h"

#include <deque>

using namespace pdc;
using namespace pdc::test;

namespace {

using Trained = std::map<std::string, pdcrt::TensorRecord>;

struct Written {
  bool ok = false;
  onnx::ModelProto model;
  std::string messages;
};

/// Tensors that live as long as this object.
class Checkpoint {
public:
  void add(const std::string& name, std::vector<std::int64_t> shape, std::vector<float> values) {
    const std::vector<float>& kept = values_.emplace_back(std::move(values));
    trained[name] = {name, ElementType::f32, std::move(shape), std::as_bytes(std::span(kept))};
  }
  Trained trained;

private:
  std::deque<std::vector<float>> values_;
};

Written writeTrained(const TemporaryFolder& folder, const Trained& trained) {
  Diagnostics diags(nullptr);
  Written written;
  written.ok = static_cast<bool>(writeTrainedOnnx(folder / "m.onnx", trained, folder / "trained.onnx", diags));
  for (const Diagnostic& diagnostic : diags.all())
    written.messages += diagnostic.location.node + ": " + diagnostic.message;
  if (written.ok) written.ok = written.model.ParseFromString(readFile(folder / "trained.onnx"));
  return written;
}

std::vector<float> floatsOf(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  // A tensor whose elements lie in float_data has no bytes, and memcpy takes no null pointer.
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(values.data()));
  return values;
}

/// smallModel with a bias in float_data, an unused initializer, metadata and a field that the messages do not know.
ModelMaker decoratedModel() {
  ModelMaker maker = smallModel();
  maker.graph().mutable_node(1)->set_output(0, "r");
  onnx::TensorProto& bias = maker.tensor("b", {3});
  for (float value : {7.f, 8.f, 9.f}) bias.add_float_data(value);
  maker.weight("unused", {2});
  maker.node("Add", {"r", "b"}, {"y"}, "add");
  onnx::StringStringEntryProto& entry = *maker.model.add_metadata_props();
  entry.set_key("author");
  entry.set_value("someone");
  maker.model.mutable_unknown_fields()->AddVarint(1000, 42);
  return maker;
}

TEST(ImportTrained, ChangesNothingButTheWeights) {
  TemporaryFolder folder;
  ModelMaker maker = decoratedModel();
  maker.write(folder / "m.onnx");
  Checkpoint checkpoint;
  checkpoint.add("w", {2, 3}, {6, 5, 4, 3, 2, 1});
  checkpoint.add("b", {3}, {-1, -2, -3});
  Written written = writeTrained(folder, checkpoint.trained);
  ASSERT_TRUE(written.ok) << written.messages;

  std::vector<float> weight = {6, 5, 4, 3, 2, 1};
  maker.graph().mutable_initializer(0)->set_raw_data(weight.data(), 24);
  for (int i = 0; i < 3; ++i) maker.graph().mutable_initializer(1)->set_float_data(i, static_cast<float>(-1 - i));
  EXPECT_EQ(written.model.SerializeAsString(), maker.model.SerializeAsString());
}

TEST(ImportTrained, WithoutWeightsCopiesTheModel) {
  TemporaryFolder folder;
  decoratedModel().write(folder / "m.onnx");
  ASSERT_TRUE(writeTrained(folder, {}).ok);
  EXPECT_EQ(readFile(folder / "trained.onnx"), readFile(folder / "m.onnx"));
}

TEST(ImportTrained, WritesExternalDataToAFileOfItsOwn) {
  TemporaryFolder folder;
  std::vector<float> old = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  writeFile(folder / "old.bin", {reinterpret_cast<const char*>(old.data()), 36});
  ModelMaker maker = decoratedModel();
  for (int i = 0; i < 2; ++i) {
    onnx::TensorProto& tensor = *maker.graph().mutable_initializer(i);
    tensor.clear_raw_data();
    tensor.clear_float_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    onnx::StringStringEntryProto& location = *tensor.add_external_data();
    location.set_key("location");
    location.set_value("old.bin");
    onnx::StringStringEntryProto& offset = *tensor.add_external_data();
    offset.set_key("offset");
    offset.set_value(i == 0 ? "0" : "24");
  }
  maker.write(folder / "m.onnx");
  Checkpoint checkpoint;
  checkpoint.add("b", {3}, {-1, -2, -3});
  Written written = writeTrained(folder, checkpoint.trained);
  ASSERT_TRUE(written.ok) << written.messages;
  std::string data = readFile(folder / "trained.onnx.data");
  Imported imported = importFile(folder / "trained.onnx", {.batch = 1});
  ASSERT_TRUE(imported.module) << imported.messages;
  ASSERT_EQ(imported.module->parameters.size(), 2u);
  for (const auto& parameter : imported.module->parameters) {
    EXPECT_EQ(parameter->reference.file, folder / "trained.onnx.data");
    std::vector<float> values = floatsOf(data.substr(static_cast<std::size_t>(parameter->reference.offset),
                                                     static_cast<std::size_t>(parameter->reference.length)));
    EXPECT_EQ(values,
              parameter->name == "b" ? (std::vector<float>{-1, -2, -3}) : (std::vector<float>{1, 2, 3, 4, 5, 6}));
  }
}

/// Names and elements of the f32 initializers of `model`.
std::map<std::string, std::vector<float>> weightsOf(const onnx::ModelProto& model) {
  std::map<std::string, std::vector<float>> weights;
  for (const onnx::TensorProto& tensor : model.graph().initializer())
    weights[tensor.name()] = floatsOf(tensor.raw_data());
  return weights;
}

TEST(ImportTrained, WritesBothCopiesOfAMatrixThatWasTrainedAsOne) {
  TemporaryFolder folder;
  ModelMaker maker;
  maker.input("tokens", {"N"}, onnx::TensorProto::INT64);
  maker.node("Gather", {"words", "tokens"}, {"e"});
  maker.node("MatMul", {"e", "onnx::MatMul_7"}, {"y"});
  maker.raw<float>("words", {3, 2}, {1, 2, 3, 4, 5, 6});
  maker.raw<float>("onnx::MatMul_7", {2, 3}, {1, 3, 5, 2, 4, 6});
  maker.output("y");
  maker.write(folder / "m.onnx");
  Checkpoint checkpoint;
  checkpoint.add("words", {3, 2}, {10, 20, 30, 40, 50, 60});
  Written written = writeTrained(folder, checkpoint.trained);
  ASSERT_TRUE(written.ok) << written.messages;
  std::map<std::string, std::vector<float>> weights = weightsOf(written.model);
  EXPECT_EQ(weights["words"], (std::vector<float>{10, 20, 30, 40, 50, 60}));
  EXPECT_EQ(weights["onnx::MatMul_7"], (std::vector<float>{10, 30, 50, 20, 40, 60}));
  // --tie=off trains both.
  checkpoint.add("onnx::MatMul_7", {2, 3}, {7, 7, 7, 7, 7, 8});
  written = writeTrained(folder, checkpoint.trained);
  EXPECT_EQ(weightsOf(written.model)["onnx::MatMul_7"], (std::vector<float>{7, 7, 7, 7, 7, 8}));
}

// Rows of w are columns of the integers' matrix, of which input 1 keeps its own values.
TEST(ImportTrained, MatricesOf8BitsAreThoseThatTheyStandFor) {
  TemporaryFolder folder;
  ModelMaker maker = decoratedModel();
  maker.write(folder / "m.onnx");
  const std::vector<std::int8_t> integers = {1, -2, 127, 4, 5, -6};
  const std::vector<std::int32_t> places = {1};
  Checkpoint checkpoint;
  checkpoint.trained["w.T.int8"] = {"w.T.int8", ElementType::i8, {3, 2}, std::as_bytes(std::span(integers))};
  checkpoint.add("w.T.scale", {3}, {1, 0.5, 2});
  checkpoint.add("w.T.kept", {1, 3}, {0.25, 0.75, 1.25});
  checkpoint.trained["w.T.kept_inputs"] = {"w.T.kept_inputs", ElementType::i32, {1}, std::as_bytes(std::span(places))};
  Written written = writeTrained(folder, checkpoint.trained);
  ASSERT_TRUE(written.ok) << written.messages;
  EXPECT_EQ(weightsOf(written.model)["w"], (std::vector<float>{1, 63.5, 10, 0.25, 0.75, 1.25}));
  // As they lie there.
  Checkpoint straight;
  straight.trained["w.int8"] = {"w.int8", ElementType::i8, {2, 3}, std::as_bytes(std::span(integers))};
  straight.add("w.scale", {2}, {2, 1});
  written = writeTrained(folder, straight.trained);
  ASSERT_TRUE(written.ok) << written.messages;
  EXPECT_EQ(weightsOf(written.model)["w"], (std::vector<float>{2, -4, 254, 4, 5, -6}));
  // A matrix that the model lacks is one that was not trained here.
  straight.trained["v.int8"] = straight.trained["w.int8"];
  straight.add("v.scale", {2}, {2, 1});
  written = writeTrained(folder, straight.trained);
  EXPECT_FALSE(written.ok);
  EXPECT_EQ(written.messages, "v: was trained, but is no initializer of the model");
}

TEST(ImportTrained, GivesMergedParametersInitializersOfTheirOwn) {
  TemporaryFolder folder;
  ModelMaker maker = smallModel();
  maker.model.set_producer_name("pytorch");
  const std::string weight = maker.graph().initializer(0).name();
  const auto elements = static_cast<std::size_t>(maker.graph().initializer(0).raw_data().size()) / sizeof(float);
  std::vector<std::int64_t> dims(maker.graph().initializer(0).dims().begin(),
                                 maker.graph().initializer(0).dims().end());
  maker.node("Identity", {weight}, {"copy"});
  maker.node("Identity", {weight}, {"kept"});
  const int nodes = maker.graph().node_size();
  maker.write(folder / "m.onnx");
  Checkpoint checkpoint;
  checkpoint.add(weight, dims, std::vector<float>(elements, 5));
  checkpoint.add("copy", dims, std::vector<float>(elements, 6));
  Written written = writeTrained(folder, checkpoint.trained);
  ASSERT_TRUE(written.ok) << written.messages;
  std::map<std::string, std::vector<float>> weights = weightsOf(written.model);
  EXPECT_EQ(weights[weight], std::vector<float>(elements, 5));
  EXPECT_EQ(weights["copy"], std::vector<float>(elements, 6));
  EXPECT_EQ(written.model.graph().node_size(), nodes - 1) << "what was not trained apart stays an Identity";
}

TEST(ImportTrained, PutsTrainingOperatorsIntoInferenceMode) {
  TemporaryFolder folder;
  ModelMaker maker;
  maker.input("x", {"batch", "2"});
  for (const char* name : {"scale", "bias", "mean", "var"}) maker.weight(name, {2});
  maker.raw("ratio", {}, std::vector<float>{0.5});
  maker.raw("on", {}, std::vector<char>{1}, onnx::TensorProto::BOOL);
  attribute(maker.node("BatchNormalization", {"x", "scale", "bias", "mean", "var"}, {"n", "m2", "v2"}), "training_mode",
            1);
  maker.node("Dropout", {"n", "ratio", "on"}, {"y", "mask"});
  maker.output("y");
  maker.write(folder / "m.onnx");
  Checkpoint checkpoint;
  checkpoint.add("mean", {2}, {0.25, 0.5});
  Written written = writeTrained(folder, checkpoint.trained);
  ASSERT_TRUE(written.ok) << written.messages;

  EXPECT_EQ(floatsOf(written.model.graph().initializer(2).raw_data()), (std::vector<float>{0.25, 0.5}));
  const onnx::NodeProto& normalization = written.model.graph().node(0);
  EXPECT_EQ(normalization.attribute(0).i(), 0);
  EXPECT_EQ(normalization.output_size(), 1);
  EXPECT_EQ(written.model.graph().node(1).input_size(), 2);
}

TEST(ImportTrained, RefusesAModelThatReadsItsNewStatistics) {
  TemporaryFolder folder;
  ModelMaker maker;
  maker.input("x", {"batch", "2"});
  for (const char* name : {"scale", "bias", "mean", "var"}) maker.weight(name, {2});
  onnx::NodeProto& node =
      maker.node("BatchNormalization", {"x", "scale", "bias", "mean", "var"}, {"y", "m2", "v2"}, "bn");
  attribute(node, "training_mode", 1);
  maker.output("y");
  maker.output("m2");
  maker.write(folder / "m.onnx");
  EXPECT_EQ(writeTrained(folder, {}).messages, "bn: its new running statistics, 'm2', are read in the model, which "
                                               "inference mode does not compute");
}

TEST(ImportTrained, RefusesWeightsThatDoNotFit) {
  TemporaryFolder folder;
  smallModel().write(folder / "m.onnx");
  Checkpoint shape, name;
  shape.add("w", {3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(writeTrained(folder, shape.trained).messages, "w: is f32[2, 3] in the model, but was trained as f32[3, 2]");
  name.add("v", {1}, {1});
  EXPECT_EQ(writeTrained(folder, name.trained).messages, "v: was trained, but is no initializer of the model");
  EXPECT_FALSE(std::filesystem::exists(folder / "trained.onnx"));
}

} // namespace

TEST(ImportTrained, WhatAFunctionTrainsGoesBackToTheModel) {
  TemporaryFolder folder;
  ModelMaker maker;
  maker.input("x", {"2", "3"});
  maker.output("y", {"2", "3"});
  maker.weight("layer.weight", {3, 3});
  for (const char* name : {"scale", "bias", "mean", "variance"}) maker.weight(name, {3});
  onnx::FunctionProto& block = *maker.model.add_functions();
  block.set_domain("mine");
  block.set_name("Block");
  block.add_opset_import()->set_version(14);
  for (const char* input : {"a", "w", "s", "b", "m", "v"}) block.add_input(input);
  block.add_output("o");
  onnx::NodeProto &product = *block.add_node(), &norm = *block.add_node();
  product.set_op_type("MatMul");
  product.add_input("a");
  product.add_input("w");
  product.add_output("p");
  norm.set_op_type("BatchNormalization");
  for (const char* input : {"p", "s", "b", "m", "v"}) norm.add_input(input);
  for (const char* output : {"o", "new_m", "new_v"}) norm.add_output(output);
  attribute(norm, "training_mode", 1);
  maker.node("Block", {"x", "layer.weight", "scale", "bias", "mean", "variance"}, {"y"}, "block").set_domain("mine");
  maker.write(folder / "m.onnx");

  Imported imported = importFile(folder / "m.onnx");
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(imported.module->findParameter("mean")->role, ParameterRole::state);
  Checkpoint checkpoint;
  checkpoint.add("layer.weight", {3, 3}, {9, 8, 7, 6, 5, 4, 3, 2, 1});
  checkpoint.add("mean", {3}, {-1, -2, -3});
  const Written written = writeTrained(folder, checkpoint.trained);
  ASSERT_TRUE(written.ok) << written.messages;
  EXPECT_EQ(weightsOf(written.model).at("layer.weight").front(), 9);
  EXPECT_EQ(weightsOf(written.model).at("mean").front(), -1);
  const onnx::NodeProto& evaluated = written.model.functions(0).node(1);
  EXPECT_EQ(evaluated.attribute(0).i(), 0) << "the function is in inference mode";
  EXPECT_EQ(evaluated.output_size(), 1);
}
