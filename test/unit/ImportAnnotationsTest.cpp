// LINK: pdcImport pdcOps
// Annotations for devices are written into a copy and read back; everything else of the model stays.
#include "ImportModels.h"
#include "pdc/Import/DeviceAnnotations.h"

#include <google/protobuf/unknown_field_set.h>

using namespace pdc;
using namespace pdc::test;

namespace {

/// y = relu(x · w) · v, with a field that no version of ONNX has.
ModelMaker model() {
  ModelMaker maker;
  maker.input("x", {"2", "4"});
  maker.output("y", {"2", "3"});
  maker.weight("w", {4, 6});
  maker.weight("v", {6, 3});
  maker.node("MatMul", {"x", "w"}, {"h"}, "first");
  maker.node("Relu", {"h"}, {"r"}, "relu");
  maker.node("MatMul", {"r", "v"}, {"y"});
  maker.model.mutable_unknown_fields()->AddVarint(1000, 7);
  return maker;
}

/// What a test writes.
DeviceAnnotations annotated(const std::string& path) {
  Diagnostics diags(nullptr);
  DeviceAnnotations made = *readDeviceAnnotations(path, diags);
  made.configurations = {{.name = "four", .devices = 4, .deviceNames = {"a", "b", "c", "d"}}};
  made.metadata = {{"pdc.replicas", "1,2"}};
  const ShardingSpec blocks{.tensor = "w",
                            .devices = {-1, -2},
                            .groups = {{-1, {0, 2}}, {-2, {1, 3}}},
                            .axes = {{.axis = -1, .factors = {{.size = 3, .shards = 1}, {.size = 2, .shards = 2}}}}};
  const ShardingSpec symbolic{
      .tensor = "h", .devices = {0, 1}, .axes = {{.axis = 0, .factors = {{.size = {}, .shards = 2}}}}};
  made.nodes[0].configurations = {{.configuration = "four", .shardings = {blocks, symbolic}, .stage = 0}};
  made.nodes[2].configurations = {{.configuration = "four", .shardings = {}, .stage = 1}};
  return made;
}

/// The messages of reading the model after `change`.
template <class Change>
std::string refusal(const Change& change) {
  const TemporaryFolder folder;
  model().write(folder / "m.onnx");
  DeviceAnnotations annotations = annotated(folder / "m.onnx");
  change(annotations);
  Diagnostics diags(nullptr);
  EXPECT_TRUE(writeDeviceAnnotations(folder / "m.onnx", annotations, folder / "bad.onnx", diags));
  EXPECT_FALSE(readDeviceAnnotations(folder / "bad.onnx", diags));
  std::string text;
  for (const Diagnostic& each : diags.all()) {
    text += each.location.node + ": " + each.message;
    for (const std::string& help : each.helps) text += "; " + help;
  }
  return text;
}

} // namespace

TEST(ImportAnnotations, AreReadBack) {
  const TemporaryFolder folder;
  model().write(folder / "m.onnx");
  const DeviceAnnotations made = annotated(folder / "m.onnx");
  Diagnostics diags(nullptr);
  ASSERT_TRUE(writeDeviceAnnotations(folder / "m.onnx", made, folder / "copy.onnx", diags));
  const Expected<DeviceAnnotations> read = readDeviceAnnotations(folder / "copy.onnx", diags);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->configurations, made.configurations);
  EXPECT_EQ(read->nodes, made.nodes);
  EXPECT_EQ(read->metadata, made.metadata);
  EXPECT_EQ(read->nodes[2].name, "y");
  EXPECT_EQ(read->ranks.at("w"), 2);
}

TEST(ImportAnnotations, LeaveTheRestOfTheModel) {
  const TemporaryFolder folder;
  ModelMaker maker = model();
  maker.write(folder / "m.onnx");
  const DeviceAnnotations made = annotated(folder / "m.onnx");
  Diagnostics diags(nullptr);
  ASSERT_TRUE(writeDeviceAnnotations(folder / "m.onnx", made, folder / "copy.onnx", diags));
  onnx::ModelProto copy;
  ASSERT_TRUE(copy.ParseFromString(readFile(folder / "copy.onnx")));
  EXPECT_EQ(copy.ir_version(), 11);
  // Without what was added it is the model, to the byte.
  copy.set_ir_version(maker.model.ir_version());
  copy.clear_metadata_props();
  copy.mutable_unknown_fields()->DeleteByNumber(26);
  for (onnx::NodeProto& node : *copy.mutable_graph()->mutable_node()) node.mutable_unknown_fields()->DeleteByNumber(10);
  EXPECT_EQ(copy.SerializeAsString(), maker.model.SerializeAsString());
}

TEST(ImportAnnotations, ReplaceThoseThatWereThere) {
  const TemporaryFolder folder;
  model().write(folder / "m.onnx");
  DeviceAnnotations made = annotated(folder / "m.onnx");
  Diagnostics diags(nullptr);
  ASSERT_TRUE(writeDeviceAnnotations(folder / "m.onnx", made, folder / "first.onnx", diags));
  made.metadata = {{"pdc.split", "tp:2"}};
  made.nodes[0].configurations.clear();
  ASSERT_TRUE(writeDeviceAnnotations(folder / "first.onnx", made, folder / "second.onnx", diags));
  const Expected<DeviceAnnotations> read = readDeviceAnnotations(folder / "second.onnx", diags);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->configurations, made.configurations);
  EXPECT_EQ(read->nodes, made.nodes);
  EXPECT_EQ(read->metadata, made.metadata);
}

TEST(ImportAnnotations, TakeExternalDataAlongToAnotherFolder) {
  const TemporaryFolder folder;
  ModelMaker maker = model();
  onnx::TensorProto& v = *maker.graph().mutable_initializer(1);
  const std::string elements = v.raw_data();
  writeFile(folder / "v.bin", "padding" + elements);
  v.clear_raw_data();
  v.set_data_location(onnx::TensorProto::EXTERNAL);
  for (const auto& [key, value] : {std::pair{"location", "v.bin"}, {"offset", "7"}}) {
    v.add_external_data()->set_key(key);
    v.mutable_external_data()->rbegin()->set_value(value);
  }
  maker.write(folder / "m.onnx");
  std::filesystem::create_directory(folder / "other");
  const DeviceAnnotations made = annotated(folder / "m.onnx");
  Diagnostics diags(nullptr);
  ASSERT_TRUE(writeDeviceAnnotations(folder / "m.onnx", made, folder / "beside.onnx", diags));
  ASSERT_TRUE(writeDeviceAnnotations(folder / "m.onnx", made, folder / "other/copy.onnx", diags));
  EXPECT_FALSE(std::filesystem::exists(folder / "beside.onnx.data"));
  EXPECT_EQ(readFile(folder / "other/copy.onnx.data"), elements);
  for (const char* name : {"beside.onnx", "other/copy.onnx"}) EXPECT_EQ(importFile(folder / name).messages, "");
}

TEST(ImportAnnotations, AreNotWrittenIntoTheModelItself) {
  const TemporaryFolder folder;
  model().write(folder / "m.onnx");
  Diagnostics diags(nullptr);
  EXPECT_FALSE(writeDeviceAnnotations(folder / "m.onnx", annotated(folder / "m.onnx"), folder / "./m.onnx", diags));
  EXPECT_EQ(diags.all().front().message, "is the model itself");
}

TEST(ImportAnnotations, OfAConfigurationThatIsNotThere) {
  EXPECT_EQ(refusal([](DeviceAnnotations& made) { made.nodes[0].configurations[0].configuration = "foor"; }),
            "first: names the configuration of devices 'foor', which the model has not; did you mean 'four'?");
  EXPECT_EQ(refusal([](DeviceAnnotations& made) { made.configurations.clear(); }),
            "first: names the configuration of devices 'four', which the model has not; add it to "
            "ModelProto.configuration");
}

TEST(ImportAnnotations, WithNumbersOutOfRange) {
  EXPECT_EQ(refusal([](DeviceAnnotations& made) { made.nodes[2].configurations[0].stage = -1; }),
            "y: its pipeline_stage is -1, expected a number from 0 to 2147483647; write the annotations again");
  EXPECT_EQ(refusal([](DeviceAnnotations& made) { made.nodes[0].configurations[0].shardings[1].devices[1] = 4; }),
            "first: its sharding_spec of 'h' names device 4, configuration 'four' has 4 devices; write the annotations "
            "again");
  EXPECT_EQ(refusal([](DeviceAnnotations& made) { made.nodes[0].configurations[0].shardings[0].groups.erase(-2); }),
            "first: its sharding_spec of 'w' names device -2, configuration 'four' has 4 devices; write the "
            "annotations again");
  EXPECT_EQ(refusal([](DeviceAnnotations& made) {
              made.nodes[0].configurations[0].shardings[0].axes[0].factors[1].shards = 0;
            }),
            "first: a number of shards is 0, expected a number from 1 to 1048576; write the annotations again");
  EXPECT_EQ(refusal([](DeviceAnnotations& made) { made.configurations[0].devices = 3; }),
            ": configuration 'four' has 3 devices and names for 4; write the annotations again");
}

TEST(ImportAnnotations, OfATensorThatTheNodeHasNot) {
  EXPECT_EQ(refusal([](DeviceAnnotations& made) { made.nodes[0].configurations[0].shardings[0].tensor = "v"; }),
            "first: has a sharding_spec of 'v', which is none of its inputs and outputs; write the annotations again");
}

TEST(ImportAnnotations, ThatAreCutOff) {
  const TemporaryFolder folder;
  ModelMaker maker = model();
  maker.model.mutable_unknown_fields()->AddLengthDelimited(26, std::string("\x0a\x7f", 2)); // a name of 127 bytes
  maker.write(folder / "m.onnx");
  Diagnostics diags(nullptr);
  EXPECT_FALSE(readDeviceAnnotations(folder / "m.onnx", diags));
  EXPECT_EQ(diags.all().front().message,
            "its annotations for devices are cut off or damaged: the field at byte 0 needs 127 bytes, 0 are left");
}
