// LINK: pdcImport pdcOps
// What `pdc inspect` prints.
#include "ImportModels.h"

#include <sstream>

using namespace pdc;
using namespace pdc::test;

namespace {

std::string inspect(const ModelMaker& maker) {
  TemporaryFolder folder;
  maker.write(folder / "m.onnx");
  std::ostringstream out;
  Diagnostics diags(nullptr);
  EXPECT_TRUE(inspectOnnx(folder / "m.onnx", registry(), out, diags));
  EXPECT_TRUE(diags.all().empty());
  std::string text = out.str(), path = folder / "";
  return text.erase(text.find(path), path.size());
}

TEST(ImportInspect, TellsWhatIsThereAndWhatIsMissing) {
  ModelMaker maker = smallModel();
  maker.weight("scale", {});
  maker.node("Mul", {"y", "scale"}, {"z"}, "mul");
  maker.node("TopK", {"z"}, {"t"}, "topk").set_domain("com.example");
  maker.node("Add", {"t", "nowhere"}, {"u"}, "add");
  EXPECT_EQ(inspect(maker),
            "model       m.onnx: test, IR 7, opset 14\n"
            "inputs      x: f32[batch, 2]\n"
            "outputs     y: f32[batch, 3]\n"
            "parameters  1 trained, 6 elements, 24 bytes\n"
            "            1 constant, 1 elements, 4 bytes\n"
            "              single numbers: scale\n"
            "operators   1 Add\n"
            "            1 MatMul\n"
            "            1 Mul\n"
            "            1 Relu\n"
            "            1 com.example::TopK\n"
            "missing     dimension 'batch' has no size: give --batch=B\n"
            "            operator 'com.example::TopK' is an operator of another domain than ONNX's\n"
            "            no output is a loss: give --loss=softmax-cross-entropy, mse or bce-with-logits\n"
            "            add: uses 'nowhere', which nothing defines\n");
}

TEST(ImportInspect, SaysWhenNothingIsMissing) {
  ModelMaker maker;
  maker.input("x", {"2"});
  maker.weight("w", {2});
  maker.node("Mul", {"x", "w"}, {"p"});
  attribute(maker.node("ReduceSum", {"p"}, {"loss"}), "keepdims", 0);
  maker.output("loss");
  std::string text = inspect(maker);
  EXPECT_NE(text.find("missing     none\n"), std::string::npos) << text;
}

TEST(ImportInspect, RefusesAFileThatIsNoModel) {
  std::ostringstream out;
  Diagnostics diags(nullptr);
  EXPECT_FALSE(inspectOnnx("/nowhere.onnx", registry(), out, diags));
  EXPECT_EQ(out.str(), "");
  EXPECT_EQ(diags.exitCode(), ExitCode::invalidInput);
}

TEST(ImportInspect, TellsOfWeightsWithoutValues) {
  ModelMaker inputs;
  inputs.input("x", {"2", "2"});
  inputs.input("fc.weight", {"2", "3"});
  inputs.node("MatMul", {"x", "fc.weight"}, {"y"}, "matmul");
  inputs.output("y", {});
  std::string text = inspect(inputs);
  EXPECT_NE(text.find("missing     1 inputs are called like weights, which have no values: give --init=SEED\n"),
            std::string::npos)
      << text;

  ModelMaker external = smallModel();
  onnx::TensorProto& tensor = *external.graph().mutable_initializer(0);
  tensor.clear_raw_data();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  onnx::StringStringEntryProto& entry = *tensor.add_external_data();
  entry.set_key("location");
  entry.set_value("w.bin");
  text = inspect(external);
  EXPECT_NE(text.find("external data 'w.bin' is not there, with 1 initializers: give --init=SEED\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("parameters  1 trained, 6 elements, 24 bytes\n"), std::string::npos) << text;
}

} // namespace
