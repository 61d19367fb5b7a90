// Models, the files that they name, the text of the IR, and profiles: what knows of tensors.
#include "Readers.h"

#include "pdc/Analysis/Profile.h"
#include "pdc/IR/Text.h"
#include "pdc/IR/Verifier.h"
#include "pdc/Import/Adapters.h"
#include "pdc/Import/DeviceAnnotations.h"
#include "pdc/Import/OnnxImport.h"
#include "pdc/Import/OnnxTensor.h"
#include "pdc/Ops/AllOps.h"

#include <filesystem>
#include <fstream>
#include <onnx/onnx_pb.h>
#include <sstream>
#include <unistd.h>

using namespace pdc;
namespace fs = std::filesystem;

namespace {

const OpRegistry& registry() {
  static const OpRegistry* ops = [] {
    auto* made = new OpRegistry;
    registerAllOps(*made);
    return made;
  }();
  return *ops;
}

void model(const std::string& bytes) {
  const std::string path = fuzz::fileOf(bytes);
  Diagnostics diags(nullptr), inspection(nullptr);
  std::ostringstream text;
  (void)inspectOnnx(path, registry(), text, inspection);
  const auto module = importOnnx(path, {.batch = 2}, registry(), diags);
  if (static_cast<bool>(module) == diags.hasErrors()) fuzz::fail("success and errors disagree");
  if (diags.exitCode() == ExitCode::internal) fuzz::fail(toString(diags.all().front()).c_str());
}

void annotations(const std::string& bytes) {
  const std::string path = fuzz::fileOf(bytes);
  Diagnostics diags(nullptr), others(nullptr);
  const auto read = readDeviceAnnotations(path, diags);
  if (static_cast<bool>(read) == diags.hasErrors()) fuzz::fail("success and errors disagree");
  if (!read) return;
  static const std::string copy = fs::temp_directory_path() / ("pdc-fuzz-" + std::to_string(::getpid()) + ".onnx");
  if (!writeDeviceAnnotations(path, *read, copy, others)) return; // external data, which is nowhere
  const auto again = readDeviceAnnotations(copy, diags);
  fs::remove(copy);
  if (!again || again->metadata != read->metadata || again->nodes != read->nodes ||
      again->configurations != read->configurations)
    fuzz::fail("does not read back");
}

void tensor(const std::string& bytes) {
  Diagnostics diags(nullptr);
  const auto read = readOnnxTensor(fuzz::fileOf(bytes), diags);
  if (static_cast<bool>(read) == diags.hasErrors()) fuzz::fail("success and errors disagree");
}

void ir(const std::string& text) {
  Diagnostics diags(nullptr);
  const auto module = parseModule(text, "fuzz", registry(), diags);
  if (static_cast<bool>(module) == diags.hasErrors()) fuzz::fail("success and errors disagree");
  if (!module || !verify(**module, diags)) return;
  const std::string printed = print(**module);
  const auto again = parseModule(printed, "printed", registry(), diags);
  if (!again || print(**again) != printed) fuzz::fail("does not read back");
}

/// A folder with a model's data and with everything that leads out of it.
class Folder {
public:
  Folder() : outer_("/dev/shm/pdc-fuzz-" + std::to_string(::getpid())), path_(outer_ + "/model") {
    fs::remove_all(outer_);
    fs::create_directories(path_ + "/sub");
    for (const char* name : {"/secret", "/model/w.bin", "/model/sub/w.bin", "/model/two"})
      std::ofstream(outer_ + name) << std::string(64, 'w');
    fs::create_hard_link(path_ + "/two", path_ + "/links");
    fs::create_symlink("/etc/hostname", path_ + "/link");
    fs::create_symlink("..", path_ + "/up");
    fs::create_symlink("w.bin", path_ + "/alias");
  }
  ~Folder() { fs::remove_all(outer_); }
  const std::string& path() const { return path_; }

private:
  std::string outer_, path_;
};

/// Lines: location, offset and length of the data of an initializer f32[2, 3].
void externalData(const std::string& bytes) {
  static const Folder folder;
  std::istringstream lines(bytes);
  onnx::ModelProto proto;
  proto.set_ir_version(7);
  proto.add_opset_import()->set_version(14);
  onnx::GraphProto& graph = *proto.mutable_graph();
  onnx::TensorProto& weight = *graph.add_initializer();
  weight.set_name("w");
  weight.set_data_type(onnx::TensorProto::FLOAT);
  weight.add_dims(2);
  weight.add_dims(3);
  weight.set_data_location(onnx::TensorProto::EXTERNAL);
  for (const char* key : {"location", "offset", "length"}) {
    std::string value;
    if (!std::getline(lines, value) || value.empty()) continue;
    onnx::StringStringEntryProto& entry = *weight.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  }
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type("Relu");
  node.add_input("w");
  node.add_output("y");
  graph.add_output()->set_name("y");
  std::ofstream(folder.path() + "/m.onnx", std::ios::binary) << proto.SerializeAsString();

  Diagnostics diags(nullptr);
  const auto module = importOnnx(folder.path() + "/m.onnx", {}, registry(), diags);
  if (static_cast<bool>(module) == diags.hasErrors()) fuzz::fail("success and errors disagree");
  if (!module) return;
  for (const auto& parameter : (*module)->parameters) {
    const std::string file = fs::canonical(parameter->reference.file);
    if (file != folder.path() + "/w.bin" && file != folder.path() + "/sub/w.bin")
      fuzz::fail("external data outside the folder, or with several links, was taken");
    if (fs::path(parameter->reference.file).lexically_normal() != file) fuzz::fail("a symbolic link was followed");
    const Reference& reference = parameter->reference;
    if (reference.offset < 0 || reference.length != 24 || reference.offset > 64 - 24) fuzz::fail("reads past the end");
  }
}

void profile(const std::string& text) {
  Diagnostics diags(nullptr);
  const auto read = profileFromJson(text, "fuzz", diags);
  if (static_cast<bool>(read) == diags.hasErrors()) fuzz::fail("success and errors disagree");
  if (!read) return;
  const std::string written = toJson(*read);
  const auto again = profileFromJson(written, "written", diags);
  if (!again || toJson(*again) != written) fuzz::fail("does not read back");
}

void adapters(const std::string& text) {
  Diagnostics diags(nullptr);
  const auto read = adaptersFromJson(text, "fuzz", diags);
  if (static_cast<bool>(read) == diags.hasErrors()) fuzz::fail("success and errors disagree");
  if (!read) return;
  const std::string written = toJson(*read);
  const auto again = adaptersFromJson(written, "written", diags);
  if (!again || toJson(*again) != written) fuzz::fail("does not read back");
}

void peftConfig(const std::string& text) {
  Diagnostics diags(nullptr);
  const auto read = peftConfigFromJson(text, "fuzz", diags);
  if (static_cast<bool>(read) == diags.hasErrors()) fuzz::fail("success and errors disagree");
  if (read) static_cast<void>(read->scaleOf("h.0.attn.c_attn", 8));
}

} // namespace

std::span<const fuzz::Reader> fuzz::onnxReaders() {
  static const Reader readers[] = {
      {"onnx", model},      {"external-data", externalData}, {"onnx-tensor", tensor},     {"ir", ir},
      {"profile", profile}, {"adapters", adapters},          {"peft-config", peftConfig}, {"annotations", annotations}};
  return readers;
}
