// LINK: pdcImport pdcOps
// Which values of a model are parameters: what metadata say, and weights that are no initializers.
#include "ImportModels.h"

using namespace pdc;
using namespace pdc::test;

namespace {

constexpr int valueMetadata = 4, graphMetadata = 16;

/// An entry of metadata_props, which the installed ONNX package may not know.
template <class Message>
void add(Message& message, int field, const std::string& key, const std::string& value) {
  onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(value);
  message.mutable_unknown_fields()->AddLengthDelimited(field, entry.SerializeAsString());
}

void addSignature(ModelMaker& maker, const std::string& text) {
  add(maker.graph(), graphMetadata, "pkg.torch.export.ExportedProgram.graph_signature", text);
}

std::string rolesOf(const Imported& imported) {
  if (!imported.module) return imported.messages;
  std::string text;
  for (const auto& parameter : imported.module->parameters)
    text += parameter->name + (parameter->role == ParameterRole::trained  ? " trained "
                               : parameter->role == ParameterRole::frozen ? " frozen "
                                                                          : " state ");
  return text;
}

/// y = relu(x · w) + v.
ModelMaker modelWithVector() {
  ModelMaker maker = smallModel();
  maker.weight("v", {3});
  maker.node("Add", {"y", "v"}, {"z"}, "add");
  maker.output("z", {"batch", "3"});
  return maker;
}

onnx::NodeProto& addConstant(ModelMaker& maker, const std::string& name) {
  onnx::NodeProto& node = maker.node("Constant", {}, {name});
  onnx::AttributeProto& value = *node.add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  value.mutable_t()->set_data_type(onnx::TensorProto::FLOAT);
  value.mutable_t()->add_dims(3);
  return node;
}

TEST(ImportWeights, ASignatureSaysWhatIsAParameter) {
  ModelMaker parameter = modelWithVector(), buffer = modelWithVector(), constant = modelWithVector();
  addSignature(parameter, "p_w: PARAMETER target='w'\np_v: PARAMETER target=\"v\"\n");
  addSignature(buffer, "p_w: PARAMETER target='w'\nb_v: BUFFER target='v' persistent=False\n");
  addSignature(constant, "p_w: PARAMETER target='w'\n");
  EXPECT_EQ(rolesOf(importModel(parameter, {.batch = 2})), "w trained v trained ");
  EXPECT_EQ(rolesOf(importModel(buffer, {.batch = 2})), "w trained v frozen ");
  EXPECT_EQ(rolesOf(importModel(constant, {.batch = 2})), "w trained ");
  EXPECT_EQ(rolesOf(importModel(constant, {.batch = 2, .freeze = "w", .train = "v"})), "w frozen v trained ");
}

TEST(ImportWeights, MetadataThatAreNoneSayNothing) {
  for (const std::string bytes : {"", "\x0a", "\xff\xff\xff\xff", "\x0a\x7f key", "\x12\x03 va"}) {
    ModelMaker maker = modelWithVector();
    maker.graph().mutable_unknown_fields()->AddLengthDelimited(graphMetadata, bytes);
    onnx::ValueInfoProto& value = *maker.graph().add_value_info();
    value.set_name("v");
    value.mutable_unknown_fields()->AddLengthDelimited(valueMetadata, bytes);
    value.mutable_unknown_fields()->AddVarint(valueMetadata, 7);
    EXPECT_EQ(rolesOf(importModel(maker, {.batch = 2})), "w trained v trained ");
  }
  for (const std::string text :
       {": PARAMETER target=", "PARAMETER target='v", ": PARAMETER target='", ": PARAMETER target=''"}) {
    ModelMaker maker = modelWithVector();
    addSignature(maker, text);
    EXPECT_TRUE(importModel(maker, {.batch = 2}).module) << text;
  }
}

TEST(ImportWeights, AConstantNodeIsAWeight) {
  for (bool raw : {true, false}) {
    ModelMaker maker = smallModel();
    onnx::TensorProto& tensor = *addConstant(maker, "v").mutable_attribute(0)->mutable_t();
    const float numbers[] = {1, 2, 3};
    if (raw)
      tensor.set_raw_data(numbers, sizeof(numbers));
    else
      tensor.mutable_float_data()->Add(std::begin(numbers), std::end(numbers));
    maker.node("Add", {"y", "v"}, {"z"}, "add");
    maker.output("z", {"batch", "3"});
    const Imported imported = importModel(maker, {.batch = 2});
    EXPECT_EQ(rolesOf(imported), "w trained v trained ") << imported.messages;
  }
}

TEST(ImportWeights, AConstantThatASizeIsMultipliedByIsNoWeight) {
  ModelMaker maker(14);
  maker.input("x", {"1", "1", "2"});
  maker.node("Shape", {"x"}, {"shape"});
  attribute(maker.node("Cast", {"shape"}, {"size"}), "to", onnx::TensorProto::FLOAT);
  const float factors[] = {1, 1, 2};
  addConstant(maker, "factors").mutable_attribute(0)->mutable_t()->set_raw_data(factors, sizeof(factors));
  maker.node("Mul", {"size", "factors"}, {"wanted"});
  maker.node("Floor", {"wanted"}, {"whole"});
  attribute(maker.node("Cast", {"whole"}, {"sizes"}), "to", onnx::TensorProto::INT64);
  maker.node("Resize", {"x", "", "", "sizes"}, {"y"});
  maker.output("y", {"1", "1", "4"});
  Imported imported = importModel(maker);
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(rolesOf(imported), "");
  EXPECT_EQ(toString(imported.graph().outputs.front().value->type()), "f32[1, 1, 4]");
}

TEST(ImportWeights, ConstantsOfPyTorchAreNoWeights) {
  ModelMaker maker = smallModel();
  maker.model.set_producer_name("pytorch");
  const float numbers[] = {1, 2, 3};
  addConstant(maker, "v").mutable_attribute(0)->mutable_t()->set_raw_data(numbers, sizeof(numbers));
  maker.node("Add", {"y", "v"}, {"z"}, "add");
  maker.output("z", {"batch", "3"});
  EXPECT_EQ(rolesOf(importModel(maker, {.batch = 2})), "w trained ");
  EXPECT_EQ(rolesOf(importModel(maker, {.batch = 2, .train = "v"})), "w trained v trained ");
}

TEST(ImportWeights, ALayerInTwoModesIsRefused) {
  ModelMaker maker(17);
  maker.input("x", {"batch", "3"});
  for (const char* name : {"s", "b", "m", "v"}) maker.weight(name, {3});
  attribute(maker.node("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y", "m1", "v1"}, "first"), "training_mode",
            1);
  maker.node("BatchNormalization", {"y", "s", "b", "m", "v"}, {"z"}, "second");
  maker.output("z", {"batch", "3"});
  const Imported imported = importModel(maker, {.batch = 2});
  EXPECT_EQ(imported.exitCode, ExitCode::unsupported);
  EXPECT_NE(imported.messages.find("m.onnx:m: error: holds the running statistics of 'second', which is in inference "
                                   "mode, and of 'first', which replaces them in training mode\nhelp: --bn=batch"),
            std::string::npos)
      << imported.messages;
  EXPECT_EQ(rolesOf(importModel(maker, {.batch = 2, .batchNorm = BatchNormMode::batch})),
            "s trained b trained m state v state ");
}

TEST(ImportWeights, AScaleThatIsItsOwnVarianceInABodyIsRefused) {
  ModelMaker maker(17);
  maker.input("x", {"2", "3"});
  maker.raw("c", {}, std::vector<std::uint8_t>{1}, onnx::TensorProto::BOOL);
  for (const char* name : {"ones", "zeros"}) maker.weight(name, {3});
  onnx::NodeProto& choice = maker.node("If", {"c"}, {"y"}, "choice");
  for (const char* branch : {"then_branch", "else_branch"}) {
    onnx::AttributeProto& attribute = *choice.add_attribute();
    attribute.set_name(branch);
    attribute.set_type(onnx::AttributeProto::GRAPH);
    ModelMaker inner;
    inner.node("BatchNormalization", {"x", "ones", "zeros", "zeros", "ones"}, {"inside"}, "norm");
    inner.output("inside", {"2", "3"});
    *attribute.mutable_g() = inner.graph();
  }
  maker.output("y", {"2", "3"});
  const Imported imported = importModel(maker);
  EXPECT_EQ(imported.exitCode, ExitCode::unsupported);
  EXPECT_NE(imported.messages.find("m.onnx:ones: error: is a running statistic of BatchNormalization 'norm', and a "
                                   "scale or shift, too\nhelp: export it with initializers of their own"),
            std::string::npos)
      << imported.messages;
}

} // namespace
