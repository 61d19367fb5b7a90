// LINK: pdcImport pdcOps
// Mutated and truncated models never crash the importer: a model or an error, and nothing else. Run under asan+ubsan.
//
//   onnx_import [ITERATIONS] [SEED] [MODEL.onnx …]
//
// Each iteration takes one of the models, changes a few bytes or cuts it off, inspects it and imports it. Without
// models: a small one that has every kind of thing in it. The bytes under test stay behind in onnx_import.last when the
// program dies.
#include "../unit/ModelMaker.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <random>
#include <sstream>

using namespace pdc;
using namespace pdc::test;

/// Large enough for the interesting fields, small enough that most mutations hit one.
static std::string seedModel() {
  ModelMaker maker(17);
  maker.input("x", {"batch", "4"});
  maker.weight("w", {4, 6});
  onnx::TensorProto& bias = maker.tensor("b", {6});
  for (int i = 0; i < 6; ++i) bias.add_float_data(1);
  onnx::TensorProto& shape = maker.tensor("shape", {2}, onnx::TensorProto::INT64);
  shape.add_int64_data(-1);
  shape.add_int64_data(3);
  onnx::TensorProto& external = maker.tensor("e", {6});
  external.set_data_location(onnx::TensorProto::EXTERNAL);
  onnx::StringStringEntryProto& location = *external.add_external_data();
  location.set_key("location");
  location.set_value("onnx_import.data");
  maker.node("MatMul", {"x", "w"}, {"h"}, "matmul");
  maker.node("Add", {"h", "b"}, {"i"}, "add");
  maker.node("Add", {"i", "e"}, {"j"}, "add2");
  maker.node("Relu", {"j"}, {"k"}, "relu");
  maker.node("Reshape", {"k", "shape"}, {"r"}, "reshape");
  attribute(maker.node("Softmax", {"r"}, {"y"}, "softmax"), "axis", 1);
  maker.output("y", {"rows", "3"});
  return maker.model.SerializeAsString();
}

static std::string mutate(std::string bytes, std::mt19937& generator) {
  auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(generator); };
  for (std::size_t changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) {
    std::size_t at = below(bytes.size());
    switch (below(6)) {
    case 0: bytes[at] = static_cast<char>(below(256)); break;
    case 1: bytes[at] ^= static_cast<char>(1 << below(8)); break;
    case 2: bytes.resize(at); break;
    case 3: bytes.erase(at, 1 + below(8)); break;
    case 4: bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(32))); break;
    case 5: bytes[at] = "\x00\x7f\x80\xff"[below(4)]; break;
    }
  }
  return bytes;
}

int main(int argc, char** argv) {
  long iterations = argc > 1 ? std::atol(argv[1]) : 20000;
  std::mt19937 generator(argc > 2 ? static_cast<unsigned>(std::atol(argv[2])) : 1);
  std::vector<std::string> seeds;
  for (int i = 3; i < argc; ++i) seeds.push_back(readFile(argv[i]));
  if (seeds.empty()) seeds.push_back(seedModel());
  writeFile("onnx_import.data", std::string(24, 'e'));

  const char* path = "onnx_import.last";
  long models = 0;
  for (long i = 0; i < iterations; ++i) {
    writeFile(path, mutate(seeds[static_cast<std::size_t>(i) % seeds.size()], generator));
    Diagnostics quiet(nullptr);
    std::ostringstream text;
    bool readable = static_cast<bool>(inspectOnnx(path, registry(), text, quiet));
    Expected<std::unique_ptr<Module>> module = importOnnx(path, {.batch = 2}, registry(), quiet);
    if (!module && !quiet.hasErrors()) {
      std::cerr << "iteration " << i << ": failed without an error\n";
      return 1;
    }
    if (quiet.exitCode() == ExitCode::internal) {
      std::cerr << "iteration " << i << ": " << toString(quiet.all().front());
      return 1;
    }
    models += module && readable;
  }
  std::remove(path);
  std::remove("onnx_import.data");
  std::cout << iterations << " files, " << models << " of them models\n";
}
