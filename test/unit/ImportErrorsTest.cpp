// LINK: pdcImport pdcOps
// Models that are wrong: what is said, word for word, and with which exit code.
#include "ImportModels.h"

#include <sys/stat.h>

using namespace pdc;
using namespace pdc::test;

namespace {

void expectError(const Imported& imported, const std::string& messages, ExitCode exitCode = ExitCode::invalidInput) {
  EXPECT_FALSE(imported.module);
  EXPECT_EQ(imported.messages, messages);
  EXPECT_EQ(imported.exitCode, exitCode);
}

Imported importBytes(const std::string& bytes) {
  TemporaryFolder folder;
  writeFile(folder / "m.onnx", bytes);
  return importFile(folder / "m.onnx", {.batch = 1});
}

// The file.

TEST(ImportErrors, MissingFile) {
  TemporaryFolder folder;
  expectError(importFile(folder / "m.onnx"), "m.onnx: error: cannot be read: No such file or directory\n");
}

TEST(ImportErrors, Folder) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "m.onnx");
  expectError(importFile(folder / "m.onnx"), "m.onnx: error: is not a regular file\n");
}

TEST(ImportErrors, EmptyFile) {
  expectError(importBytes(""), "m.onnx: error: is not an ONNX model\nnote: it has no ir_version\n"
                               "help: export the module with torch.onnx.export(…); docs/FromPyTorch.md shows it\n");
}

TEST(ImportErrors, OtherFile) {
  expectError(importBytes("{\"model\": 1}"),
              "m.onnx: error: is not an ONNX model\nnote: byte 0 does not start a field\n"
              "help: export the module with torch.onnx.export(…); docs/FromPyTorch.md shows it\n");
}

TEST(ImportErrors, TruncatedFile) {
  std::string bytes = smallModel().model.SerializeAsString();
  std::string size = std::to_string(bytes.size() - 20);
  Imported imported = importBytes(bytes.substr(0, bytes.size() - 20));
  EXPECT_EQ(imported.messages.find("m.onnx: error: is cut off or damaged: " + size +
                                   " bytes do not hold the whole model\nnote: the field at byte "),
            0u)
      << imported.messages;
  EXPECT_NE(imported.messages.find("help: copy or download it again\n"), std::string::npos);
  EXPECT_EQ(imported.exitCode, ExitCode::invalidInput);
}

TEST(ImportErrors, EveryTruncationIsAnErrorOrAModel) {
  std::string bytes = smallModel().model.SerializeAsString();
  for (std::size_t length = 0; length < bytes.size(); ++length) importBytes(bytes.substr(0, length));
}

TEST(ImportErrors, NoGraph) {
  onnx::ModelProto model;
  model.set_ir_version(7);
  expectError(importBytes(model.SerializeAsString()), "m.onnx: error: is not an ONNX model: it has no graph\n");
}

// Versions and operators.

TEST(ImportErrors, Versions) {
  expectError(importModel(smallModel(29)),
              "m.onnx: error: uses opset 29, pdc reads 7 to 28\nhelp: export it with opset_version=28\n",
              ExitCode::unsupported);
  expectError(importModel(smallModel(6)),
              "m.onnx: error: uses opset 6, pdc reads 7 to 28\nhelp: export it with opset_version=28\n",
              ExitCode::unsupported);
  ModelMaker maker = smallModel();
  maker.model.set_ir_version(15);
  expectError(importModel(maker), "m.onnx: error: has IR version 15, pdc reads 3 to 14\n", ExitCode::unsupported);
  maker = smallModel();
  maker.model.clear_opset_import();
  expectError(importModel(maker), "m.onnx: error: does not say which opset of ONNX's operators it uses\n");
}

TEST(ImportErrors, AllUnsupportedOperatorsAtOnce) {
  ModelMaker maker = smallModel();
  maker.node("TfIdfVectorizer", {"y"}, {"z1"}, "nz");
  maker.node("StringNormalizer", {"y"}, {"z2"}, "text");
  maker.node("TfIdfVectorizer", {"y"}, {"z3"});
  maker.node("FusedGelu", {"y"}, {"z4"}, "gelu").set_domain("com.example");
  expectError(
      importModel(maker, {.batch = 1}),
      "m.onnx: error: 3 operators are not supported: StringNormalizer, TfIdfVectorizer, com.example::FusedGelu\n"
      "note: 'StringNormalizer' is not an operator that pdc knows: 1 node, 'text'\n"
      "note: 'TfIdfVectorizer' is not an operator that pdc knows: 2 nodes, the first is 'nz'\n"
      "note: 'com.example::FusedGelu' is an operator of another domain than ONNX's: 1 node, 'gelu'\n"
      "help: docs/Ops.md lists the operators that are\n",
      ExitCode::unsupported);
}

TEST(ImportErrors, NodeWithoutOperator) {
  ModelMaker maker = smallModel();
  maker.graph().mutable_node(1)->clear_op_type();
  expectError(importModel(maker, {.batch = 1}),
              "m.onnx: error: 1 operator is not supported: \n"
              "note: '' is not an operator that pdc knows: 1 node, 'relu'\n"
              "help: docs/Ops.md lists the operators that are\n",
              ExitCode::unsupported);
}

// The graph.

TEST(ImportErrors, Cycle) {
  ModelMaker maker;
  maker.input("x", {"2"});
  maker.node("Relu", {"x"}, {"start"}, "start");
  maker.node("Add", {"start", "c"}, {"a"}, "A");
  maker.node("Relu", {"a"}, {"b"}, "B");
  maker.node("Relu", {"b"}, {"c"}, "C");
  maker.node("Relu", {"c"}, {"y"}, "behind");
  maker.output("y");
  expectError(importModel(maker), "m.onnx:A: error: is on a cycle of 3 nodes, a model has none\n"
                                  "note: 'A' needs 'C' needs 'B' needs 'A'\n");
}

TEST(ImportErrors, NodeThatNeedsItself) {
  ModelMaker maker;
  maker.input("x", {"2"});
  maker.node("Add", {"x", "y"}, {"y"}, "self");
  maker.output("y");
  expectError(importModel(maker), "m.onnx:self: error: is on a cycle of 1 node, a model has none\n"
                                  "note: 'self' needs 'self'\n");
}

TEST(ImportErrors, UndefinedNames) {
  ModelMaker maker = smallModel();
  maker.node("Add", {"y", "nowhere"}, {"z"}, "add");
  maker.output("lost");
  expectError(importModel(maker), "m.onnx:add: error: uses 'nowhere', which nothing defines\n"
                                  "m.onnx:lost: error: is an output of the model, but nothing defines it\n");
}

TEST(ImportErrors, NamesThatAreDefinedTwice) {
  ModelMaker maker = smallModel();
  maker.node("Relu", {"x"}, {"y"}, "again");
  maker.node("Relu", {"x"}, {"w"}, "weight");
  maker.weight("w", {1});
  maker.input("x", {"1"});
  expectError(importModel(maker), "m.onnx:w: error: two initializers have this name\n"
                                  "m.onnx:x: error: two inputs have this name\n"
                                  "m.onnx:again: error: defines 'y', which 'relu' defines too\n"
                                  "m.onnx:weight: error: defines 'w', which an input or initializer defines too\n");
}

// Dimensions.

TEST(ImportErrors, AllSymbolicDimensionsAtOnce) {
  ModelMaker maker;
  maker.input("x", {"batch", "my rows"});
  maker.input("z", {"batch", ""});
  maker.node("Add", {"x", "z"}, {"y"});
  maker.output("y");
  expectError(importModel(maker),
              "m.onnx:x: error: dimensions 'batch', 'my rows', 'z.1' are symbolic and have no value\n"
              "note: 'batch' is axis 0 of input 'x'\n"
              "note: 'my rows' is axis 1 of input 'x'\n"
              "note: 'z.1' is axis 1 of input 'z'\n"
              "help: give the batch: --batch=B\n"
              "help: give its size: --dim 'my rows=V'\n"
              "help: give its size: --dim z.1=V\n");
  expectError(importModel(smallModel()), "m.onnx:x: error: dimension 'batch' is symbolic and has no value\n"
                                         "note: 'batch' is axis 0 of input 'x'\n"
                                         "help: give the batch: --batch=B\n");
}

TEST(ImportErrors, FlagsThatDoNotFit) {
  expectError(importModel(smallModel(), {.batch = 0}), "error: --batch=0 is less than 1\n", ExitCode::usage);
  expectError(importModel(smallModel(), {.batch = 1, .dims = {{"seq", 3}}}),
              "m.onnx: error: has no symbolic dimension 'seq', which --dim gives a value\nnote: it has 'batch'\n");
  expectError(importModel(smallModel(), {.batch = 1, .dims = {{"batch", 3}}}),
              "m.onnx: error: the batch dimension 'batch' gets 3 from --dim and 1 from --batch\n");
  ModelMaker fixed = smallModel();
  fixed.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_value(
      4);
  EXPECT_EQ(importModel(fixed, {.batch = 32}).graph().inputs[0].value->type().shape[0], 32);
  fixed.node("Add", {"x", "four"}, {"z"}, "adds");
  fixed.weight("four", {4, 1});
  expectError(
      importModel(fixed, {.batch = 32}),
      "m.onnx:adds: error: 'add' op cannot broadcast shapes [32, 2] and [4, 1] together\n"
      "m.onnx: error: was exported for a batch of 4, which its nodes depend on: --batch=32 is not possible\n"
      "help: leave out --batch, or export it with a symbolic batch: dynamic_shapes=({0: 'batch'},), for the older "
      "exporter dynamic_axes={'x': {0: 'batch'}}\n");
}

TEST(ImportErrors, Inputs) {
  ModelMaker maker = smallModel();
  maker.input("s", {"1"}, onnx::TensorProto::STRING);
  expectError(importModel(maker, {.batch = 1}), "m.onnx:s: error: inputs of STRING are not supported\n",
              ExitCode::unsupported);
  maker = smallModel();
  maker.input("n", {"2", "-3"});
  expectError(importModel(maker, {.batch = 1}), "m.onnx:n: error: dimension 'n.1' is symbolic and has no value\n"
                                                "note: 'n.1' is axis 1 of input 'n'\n"
                                                "help: give its size: --dim n.1=V\n");
  maker = smallModel();
  maker.graph().add_input()->set_name("shapeless");
  expectError(importModel(maker, {.batch = 1}), "m.onnx:shapeless: error: is an input, but not a tensor\n",
              ExitCode::unsupported);
}

// Initializers.

Imported importWithWeight(const std::function<void(onnx::TensorProto&)>& change) {
  ModelMaker maker = smallModel();
  change(*maker.graph().mutable_initializer(0));
  return importModel(maker, {.batch = 1});
}

TEST(ImportErrors, Weights) {
  expectError(importWithWeight([](auto& w) { w.mutable_raw_data()->resize(20); }),
              "m.onnx:w: error: has 20 bytes of elements, f32[2, 3] needs 24\n");
  expectError(importWithWeight([](auto& w) { w.clear_raw_data(); }),
              "m.onnx:w: error: has 0 elements, f32[2, 3] needs 6\n");
  expectError(importWithWeight([](auto& w) { w.set_dims(0, -2); }),
              "m.onnx:w: error: has the shape [-2, 3], dimensions are at least 0\n");
  expectError(importWithWeight([](auto& w) { w.set_dims(0, INT64_MAX); }),
              "m.onnx:w: error: has the shape [9223372036854775807, 3], which has too many elements\n");
  expectError(importWithWeight([](auto& w) { w.set_data_type(onnx::TensorProto::COMPLEX64); }),
              "m.onnx:w: error: tensors of COMPLEX64 are not supported\n", ExitCode::unsupported);
  expectError(
      importWithWeight([](auto& w) {
        w.clear_raw_data();
        w.set_data_type(onnx::TensorProto::FLOAT16);
        for (int i = 0; i < 6; ++i) w.add_int32_data(i);
      }),
      "m.onnx:w: error: is a parameter of f16[2, 3] that the file stores number by number, pdc needs its bytes\n"
      "help: store it as raw_data: onnx.numpy_helper.from_array does\n");
  expectError(importWithWeight([](auto& w) { w.add_float_data(1); }),
              "m.onnx:w: error: its elements lie in several pieces of the file, pdc needs them in one\n"
              "help: load the model with Python's onnx package and save it again\n");
}

/// The import of the small model with a file of `bytes` bytes, w.bin, as its weight's external data.
Imported importExternal(const std::string& location, const std::string& offset = "", const std::string& length = "",
                        const std::function<void(TemporaryFolder&)>& prepare = {}) {
  TemporaryFolder folder;
  writeFile(folder / "w.bin", std::string(30, 'w'));
  if (prepare) prepare(folder);
  ModelMaker maker = smallModel();
  onnx::TensorProto& tensor = *maker.graph().mutable_initializer(0);
  tensor.clear_raw_data();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  for (const auto& [key, value] :
       {std::pair<std::string, std::string>{"location", location}, {"offset", offset}, {"length", length}}) {
    onnx::StringStringEntryProto& entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
    if (value.empty()) tensor.mutable_external_data()->RemoveLast();
  }
  maker.write(folder / "m.onnx");
  return importFile(folder / "m.onnx", {.batch = 1});
}

TEST(ImportErrors, ExternalData) {
  EXPECT_TRUE(importExternal("w.bin", "6").module); // 6 + 24 = 30: the very end
  expectError(importExternal("w.bin", "7"),
              "m.onnx:w: error: needs 24 bytes from byte 7 of external data 'w.bin', which has 30\n");
  expectError(importExternal("w.bin", "9223372036854775807"),
              "m.onnx:w: error: needs 24 bytes from byte 9223372036854775807 of external data 'w.bin', which has 30\n");
  expectError(importExternal("w.bin", "99999999999999999999"),
              "m.onnx:w: error: the offset '99999999999999999999' of its external data is not a number\n");
  expectError(importExternal("w.bin", "-1"), "m.onnx:w: error: the offset '-1' of its external data is not a number\n");
  expectError(importExternal("w.bin", "0", "20"),
              "m.onnx:w: error: has 20 bytes of external data, f32[2, 3] needs 24\n");
  expectError(importExternal("x.bin"),
              "m.onnx: error: has no weights: external data 'x.bin', with 1 of its 1 initializers, is not there\n"
              "help: put it beside the model\n"
              "help: --init=SEED starts with the usual initialisation of each operator, --init-from=F.safetensors with "
              "stored weights\n");
  expectError(importExternal(""), "m.onnx:w: error: its external data has no location\n");
}

TEST(ImportErrors, ExternalDataOutsideTheModelsFolder) {
  const std::string help = "help: put the data beside the model, as plain files\n";
  expectError(importExternal("../w.bin"),
              "m.onnx:w: error: external data '../w.bin' leaves the folder of the model\n" + help);
  expectError(importExternal("/etc/passwd"),
              "m.onnx:w: error: external data '/etc/passwd' leaves the folder of the model\n" + help);
  expectError(importExternal("link", "", "",
                             [](TemporaryFolder& f) { std::filesystem::create_symlink("/etc/passwd", f / "link"); }),
              "m.onnx:w: error: external data 'link' leaves the folder of the model by a symbolic link\n" + help);
  expectError(importExternal("hard", "", "",
                             [](TemporaryFolder& f) { std::filesystem::create_hard_link(f / "w.bin", f / "hard"); }),
              "m.onnx:w: error: external data 'hard' has 2 hard links, 1 is allowed\nhelp: copy it\n");
  expectError(importExternal("dir", "", "", [](TemporaryFolder& f) { std::filesystem::create_directory(f / "dir"); }),
              "m.onnx:w: error: external data 'dir' is not a regular file\n");
}

/// What the advisories of ONNX and of its users tell of, beyond the above.
TEST(ImportErrors, ExternalDataAttacks) {
  namespace fs = std::filesystem;
  const auto refused = [](const std::string& location, const std::string& offset, const std::string& length,
                          const std::string& why, const std::function<void(TemporaryFolder&)>& prepare = {}) {
    const Imported imported = importExternal(location, offset, length, prepare);
    EXPECT_FALSE(imported.module) << location;
    EXPECT_NE(imported.messages.find(why), std::string::npos) << location << ": " << imported.messages;
  };
  const std::string leaves = "leaves the folder of the model";
  const auto folder = [](TemporaryFolder& f) { fs::create_directory(f / "sub"); };
  refused("sub/../../w.bin", "", "", leaves, folder);
  refused("sub/../../../../../../../../etc/passwd", "", "", leaves, folder);
  refused("/", "", "", leaves);
  refused("/proc/self/environ", "", "", leaves);
  refused("up/w.bin", "", "", leaves + " by a symbolic link", [](TemporaryFolder& f) {
    fs::create_directory_symlink(".", f / "up"); // a parent that is a link, even to the folder itself
  });
  refused("alias", "", "", leaves + " by a symbolic link",
          [](TemporaryFolder& f) { fs::create_symlink("w.bin", f / "alias"); });
  refused("pipe", "", "", "is not a regular file",
          [](TemporaryFolder& f) { ASSERT_EQ(::mkfifo((f / "pipe").c_str(), 0600), 0); });
  refused(std::string("w.bin\0../x", 10), "", "", "cannot be opened");
  refused("w.bin\n", "", "", "is not there"); // another name, not a line of its own
  refused("w.bin", "0", "9223372036854775807", "has 9223372036854775807 bytes of external data, f32[2, 3] needs 24");
  refused("w.bin", "0", "18446744073709551616",
          "the length '18446744073709551616' of its external data is not a number");
  refused("w.bin", "9223372036854775800", "24", "needs 24 bytes from byte 9223372036854775800"); // the sum overflows
  refused("w.bin", "0x10", "", "the offset '0x10' of its external data is not a number");
  refused("w.bin", " 1", "", "the offset ' 1' of its external data is not a number");
}

TEST(ImportErrors, ExternalDataOfMoreElementsThanThereAre) {
  for (const std::vector<std::int64_t>& dims : {std::vector<std::int64_t>{1LL << 32, 1LL << 32, 1LL << 32},
                                                {INT64_MAX, 2},
                                                {1LL << 40, 3},
                                                {-1, 3},
                                                {1LL << 62, 0, 1LL << 62}}) {
    TemporaryFolder folder;
    writeFile(folder / "w.bin", std::string(30, 'w'));
    ModelMaker maker = smallModel();
    onnx::TensorProto& tensor = *maker.graph().mutable_initializer(0);
    tensor.clear_raw_data();
    tensor.clear_dims();
    for (std::int64_t dim : dims) tensor.add_dims(dim);
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    onnx::StringStringEntryProto& entry = *tensor.add_external_data();
    entry.set_key("location");
    entry.set_value("w.bin");
    maker.write(folder / "m.onnx");
    const Imported imported = importFile(folder / "m.onnx", {.batch = 1});
    EXPECT_FALSE(imported.module) << dims[0];
    EXPECT_NE(imported.messages, "") << dims[0];
  }
}

/// Between the check and the use, the file is replaced by a way out.
TEST(ImportErrors, ExternalDataSwappedAfterTheCheck) {
  namespace fs = std::filesystem;
  TemporaryFolder folder;
  fs::create_directory(folder / "model");
  const std::string data = folder / "model/w.bin", model = folder / "model/m.onnx";
  writeFile(folder / "secret", std::string(24, 's'));
  pdcrt::MappedFile mapped;
  const auto restore = [&] {
    fs::remove_all(data);
    writeFile(data, std::string(24, 'w'));
  };
  restore();
  EXPECT_TRUE(mapExternalData(model, data, mapped));
  EXPECT_EQ(mapped.bytes().size(), 24u);
  const auto refused = [&](const char* why) {
    const pdcrt::Status status = mapExternalData(model, data, mapped);
    EXPECT_FALSE(status);
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
    restore();
  };
  fs::remove(data);
  fs::create_symlink(folder / "secret", data);
  refused("leaves the folder of the model by a symbolic link");
  fs::remove(data);
  fs::create_hard_link(folder / "secret", data);
  refused("has 2 hard links");
  fs::remove(data);
  fs::create_directory(data);
  refused("is not a regular file");
  fs::rename(folder / "model", folder / "moved");
  fs::create_directory(folder / "model");
  fs::create_directory_symlink(folder / "moved", folder / "model/sub");
  EXPECT_FALSE(mapExternalData(model, folder / "model/sub/w.bin", mapped));
  EXPECT_FALSE(mapExternalData(model, folder / "secret", mapped));
}

// Attributes.

TEST(ImportErrors, AttributeThatHoldsAGraph) {
  ModelMaker maker = smallModel();
  onnx::AttributeProto& made = attribute(*maker.graph().mutable_node(1), "body", 0);
  made.set_type(onnx::AttributeProto::GRAPH);
  expectError(importModel(maker, {.batch = 1}),
              "m.onnx:relu: error: its attribute 'body' is of a kind that is not supported: GRAPH\n",
              ExitCode::unsupported);
}

// What exporters lose.

TEST(ImportWarnings, RenamedAndMergedParameters) {
  ModelMaker maker = smallModel();
  maker.graph().mutable_initializer(0)->set_name("onnx::MatMul_12");
  maker.graph().mutable_node(0)->set_input(1, "copy");
  maker.node("Identity", {"onnx::MatMul_12"}, {"copy"});
  const std::string help = "help: export with training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False\n";
  Imported imported = importModel(maker, {.batch = 1});
  EXPECT_TRUE(imported.module);
  EXPECT_EQ(imported.messages,
            "m.onnx: warning: the exporter's constant folding has renamed 1 trained parameter, 'onnx::MatMul_12' among "
            "them; Dropout, where the network has it, was left out with them\n" +
                help +
                "m.onnx: warning: 1 use of trained parameters through Identity, 'onnx::MatMul_12' among them: "
                "they are trained as one, as a tied matrix is, or the weight of a module that is called again\n" +
                help);
}

TEST(ImportWarnings, RepairsThatFindNothing) {
  EXPECT_EQ(importModel(smallModel(), {.batch = 1, .dropout = 0.5}).messages,
            "m.onnx: warning: --dropout finds no Dropout node, exporters leave them out in inference mode\n"
            "help: export with training=torch.onnx.TrainingMode.TRAINING\n");
  EXPECT_EQ(importModel(smallModel(), {.batch = 1, .batchNorm = BatchNormMode::batch}).messages,
            "m.onnx: warning: --bn=batch finds no BatchNormalization node, the exporter may have folded them into "
            "convolutions\nhelp: export with training=torch.onnx.TrainingMode.TRAINING\n");
}

} // namespace
