// LINK: pdcImport pdcOps
// Models that PyTorch exported, whole: the one of the quickstart, and networks of the shared data folder.
#include "ImportModels.h"
#include "pdc/IR/Verifier.h"

#include <map>

using namespace pdc;
using namespace pdc::test;

namespace {

std::map<ParameterRole, std::int64_t> elementsByRole(const Module& module) {
  std::map<ParameterRole, std::int64_t> elements;
  for (const auto& parameter : module.parameters) elements[parameter->role] += parameter->type.elements();
  return elements;
}

void expectVerified(const Imported& imported) {
  Diagnostics diags(nullptr);
  EXPECT_TRUE(verify(*imported.module, diags));
  for (const Diagnostic& diagnostic : diags.all()) ADD_FAILURE() << toString(diagnostic);
}

/// Every parameter's bytes must be those that the protobuf parser of the onnx package, which copies, sees.
void expectReferencesHoldTheWeights(const std::string& path, const Module& module) {
  std::string bytes = readFile(path);
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(bytes));
  std::map<std::string, std::string> raw;
  for (const onnx::TensorProto& tensor : model.graph().initializer()) raw[tensor.name()] = tensor.raw_data();
  for (const auto& parameter : module.parameters) {
    const Reference& reference = parameter->reference;
    EXPECT_EQ(reference.file, path);
    EXPECT_TRUE(bytes.substr(static_cast<std::size_t>(reference.offset), static_cast<std::size_t>(reference.length)) ==
                raw.at(parameter->name))
        << parameter->name;
  }
}

TEST(ImportReal, Digits) {
  std::string path = PDC_SOURCE_DIR "/examples/digits/digits.onnx";
  Imported imported = importFile(path, {.batch = 32});
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(imported.messages, "");
  expectVerified(imported);
  expectReferencesHoldTheWeights(path, *imported.module);
  std::map<ParameterRole, std::int64_t> elements = elementsByRole(*imported.module);
  EXPECT_EQ(elements[ParameterRole::trained], 151274);              // as make_model.py prints
  EXPECT_EQ(elements[ParameterRole::state], 2 * (3 * 32 + 5 * 64)); // mean and variance of eight BatchNorms
  EXPECT_EQ(elements[ParameterRole::frozen], 0);
  const std::vector<GraphOutput>& outputs = imported.graph().outputs;
  ASSERT_EQ(outputs.size(), 1u + 16u);
  EXPECT_EQ(outputs[0].name, "logits");
  EXPECT_EQ(toString(outputs[0].value->type()), "f32[32, 10]");
  for (std::size_t i = 1; i < outputs.size(); ++i) {
    EXPECT_EQ(outputs[i].kind, OutputKind::state);
    EXPECT_EQ(outputs[i].parameter->name.ends_with("running_mean"), i % 2 == 1) << outputs[i].parameter->name;
    // The new value of a statistic comes from the operation that reads the old one.
    bool reads = false;
    for (const Value* operand : outputs[i].value->definer()->operands())
      reads |= operand && operand->parameter() == outputs[i].parameter;
    EXPECT_TRUE(reads) << outputs[i].parameter->name;
  }
}

TEST(ImportReal, FrozenBatchNormKeepsItsStatistics) {
  Imported imported =
      importFile(PDC_SOURCE_DIR "/examples/digits/digits.onnx", {.batch = 32, .batchNorm = BatchNormMode::frozen});
  ASSERT_TRUE(imported.module) << imported.messages;
  expectVerified(imported);
  std::map<ParameterRole, std::int64_t> elements = elementsByRole(*imported.module);
  EXPECT_EQ(elements[ParameterRole::state], 0);
  EXPECT_EQ(elements[ParameterRole::frozen], 832);
  EXPECT_EQ(imported.graph().outputs.size(), 1u);
}

/// A network of ../shared/data/onnx, or a skipped test.
void expectImports(const std::string& name, std::size_t trained, std::size_t states) {
  std::string path = PDC_SOURCE_DIR "/../shared/data/onnx/" + name;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  Imported imported = importFile(path);
  ASSERT_TRUE(imported.module) << imported.messages;
  EXPECT_EQ(imported.messages, "");
  expectVerified(imported);
  expectReferencesHoldTheWeights(path, *imported.module);
  std::map<ParameterRole, std::size_t> count;
  for (const auto& parameter : imported.module->parameters) ++count[parameter->role];
  EXPECT_EQ(count[ParameterRole::trained], trained);
  EXPECT_EQ(count[ParameterRole::state], states);
  EXPECT_EQ(toString(imported.graph().outputs[0].value->type()), "f32[]");
  ASSERT_EQ(imported.graph().inputs.size(), 2u);
}

TEST(ImportReal, ResNet18) {
  expectImports("tiny_resnet18.trainloss.op14.onnx", 62, 40);
}
TEST(ImportReal, Vgg16) {
  expectImports("tiny_vgg16.trainloss.op14.onnx", 32, 0);
}

TEST(ImportReal, ModelsWithOtherOperatorsSayWhichOnes) {
  std::string path = PDC_SOURCE_DIR "/../shared/data/onnx/tiny_moe.trainloss.op14.onnx";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  Imported imported = importFile(path);
  if (imported.module) GTEST_SKIP() << "every operator of it is known";
  EXPECT_EQ(imported.exitCode, ExitCode::unsupported);
  EXPECT_NE(imported.messages.find("'TopK' is not an operator that pdc knows: 2 nodes"), std::string::npos)
      << imported.messages;
}

} // namespace
