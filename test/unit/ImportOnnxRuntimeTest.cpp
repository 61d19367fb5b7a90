// LINK: pdcImport pdcOps
// ONNX Runtime as an oracle: what it makes of a model that pdc has written is what pdc's interpreter makes of it.
#include "ImportModels.h"
#include "pdc/IR/Interpreter.h"
#include "pdc/Import/TrainedOnnx.h"

#include <cmath>
#include <cstdlib>
#include <deque>
#include <random>
#include <sys/wait.h>

using namespace pdc;
using namespace pdc::test;

namespace {

int run(const std::string& command) {
  int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string shellWord(const std::string& text) {
  return "'" + text + "'";
}

/// The parameters of a module, read from where they lie.
std::map<std::string, Tensor> load(const Module& module) {
  std::map<std::string, Tensor> tensors;
  for (const auto& parameter : module.parameters) {
    std::string bytes = readFile(parameter->reference.file);
    tensors[parameter->name] =
        Tensor(parameter->type, std::as_bytes(std::span(bytes))
                                    .subspan(static_cast<std::size_t>(parameter->reference.offset),
                                             static_cast<std::size_t>(parameter->reference.length)));
  }
  return tensors;
}

/// Random values for every parameter of `module`; variances are positive.
std::map<std::string, Tensor> randomWeights(const Module& module) {
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> uniform(-0.3f, 0.3f);
  std::map<std::string, Tensor> tensors;
  for (const auto& parameter : module.parameters) {
    Tensor& tensor = tensors[parameter->name] = Tensor(parameter->type);
    bool positive = parameter->name.ends_with("running_var");
    for (float& value : tensor.mutableData<float>()) value = positive ? 1 + uniform(generator) : uniform(generator);
  }
  return tensors;
}

TEST(ImportOnnxRuntime, RunsATrainedModelAsEvaluationDoes) {
  int made = run(shellWord(PDC_SOURCE_DIR "/utils/venv") + " onnxruntime >/dev/null");
  if (made == 77) GTEST_SKIP() << "ONNX Runtime cannot be installed";
  ASSERT_EQ(made, 0);

  // Other weights and running statistics than the exporter's, as training leaves them.
  TemporaryFolder folder;
  std::string digits = PDC_SOURCE_DIR "/examples/digits/digits.onnx", trained = folder / "trained.onnx";
  constexpr std::int64_t batch = 5;
  Imported before = importFile(digits, {.batch = batch});
  ASSERT_TRUE(before.module) << before.messages;
  std::map<std::string, Tensor> weights = randomWeights(*before.module);
  std::map<std::string, pdcrt::TensorRecord> records;
  for (const auto& [name, tensor] : weights) records[name] = {name, ElementType::f32, tensor.shape(), tensor.bytes()};
  Diagnostics diags(nullptr);
  ASSERT_TRUE(writeTrainedOnnx(digits, records, trained, diags));

  Tensor images(Type{ElementType::f32, {batch, 1, 8, 8}});
  std::mt19937 generator(2);
  for (float& pixel : images.mutableData<float>()) pixel = static_cast<float>(generator() % 17) / 16;
  writeFile(folder / "input", {reinterpret_cast<const char*>(images.bytes().data()), images.bytes().size()});
  ASSERT_EQ(run(shellWord(PDC_SOURCE_DIR "/build/onnxruntime-venv/bin/python") + " " +
                shellWord(PDC_SOURCE_DIR "/test/models/run_onnxruntime.py") + " " + shellWord(trained) + " " +
                shellWord("input=" + folder / "input:f32:5x1x8x8") + " " + shellWord("logits=" + folder / "logits")),
            0);
  std::string bytes = readFile(folder / "logits");
  ASSERT_EQ(bytes.size(), batch * 10 * sizeof(float));

  Imported after = importFile(trained, {.batch = batch, .batchNorm = BatchNormMode::frozen});
  ASSERT_TRUE(after.module) << after.messages;
  std::map<std::string, Tensor> written = load(*after.module);
  for (const auto& [name, tensor] : weights) EXPECT_TRUE(written.at(name) == tensor) << name;
  Expected<InterpreterResult> result = interpret(after.graph(), {{"input", images}}, written, Precision::f64, diags);
  ASSERT_TRUE(result);
  const Tensor& logits = result->outputs.at("logits");
  double difference = 0, norm = 0;
  for (std::int64_t i = 0; i < logits.elements(); ++i) {
    float theirs;
    std::memcpy(&theirs, bytes.data() + static_cast<std::size_t>(i) * sizeof(float), sizeof(float));
    difference += std::pow(logits.asDouble(i) - static_cast<double>(theirs), 2);
    norm += std::pow(logits.asDouble(i), 2);
  }
  EXPECT_GT(norm, 0);
  EXPECT_LT(std::sqrt(difference / norm), 1e-5); // f32 against f64
}

} // namespace
