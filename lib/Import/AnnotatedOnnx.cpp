// The model is copied field by field, so that nothing is lost that the installed onnx package does not know.
#include "pdc/Import/DeviceAnnotations.h"

#include "AnnotationFields.h"
#include "ControlFlow.h"
#include "DataFile.h"
#include "OnnxFile.h"
#include "ProgramOrder.h"
#include "TensorReader.h"
#include "Wire.h"
#include "pdcrt/WriteFile.h"

#include <algorithm>
#include <climits>
#include <filesystem>

using namespace pdc;
namespace fs = std::filesystem;

static std::string encode(const ShardedFactor& factor) {
  std::string out;
  if (factor.size) appendNumber(out, 1, *factor.size);
  appendNumber(out, 3, factor.shards);
  return out;
}

static std::string encode(const ShardedAxis& axis) {
  std::string out;
  appendNumber(out, 1, axis.axis);
  for (const ShardedFactor& factor : axis.factors) appendText(out, 2, encode(factor));
  return out;
}

static std::string encode(const ShardingSpec& spec) {
  std::string out;
  appendText(out, 1, spec.tensor);
  for (const std::int64_t device : spec.devices) appendNumber(out, 2, device);
  for (const auto& [index, devices] : spec.groups) {
    std::string group;
    appendNumber(group, 1, index);
    for (const std::int64_t device : devices) appendNumber(group, 2, device);
    appendText(out, 3, group);
  }
  for (const ShardedAxis& axis : spec.axes) appendText(out, 4, encode(axis));
  return out;
}

static std::string encode(const NodeConfiguration& node) {
  std::string out;
  appendText(out, 1, node.configuration);
  for (const ShardingSpec& spec : node.shardings) appendText(out, 2, encode(spec));
  if (node.stage) appendNumber(out, 3, *node.stage);
  return out;
}

static std::string encode(const DeviceConfiguration& configuration) {
  std::string out;
  appendText(out, 1, configuration.name);
  appendNumber(out, 2, configuration.devices);
  for (const std::string& name : configuration.deviceNames) appendText(out, 3, name);
  return out;
}

namespace {

class Copier {
public:
  Copier(const OnnxFile& file, const DeviceAnnotations& annotations, const std::string& out, Diagnostics& diags)
      : file_(file), annotations_(annotations), out_(out), diags_(diags), reader_(file, diags), data_(out) {}

  Status run() {
    std::error_code error;
    if (fs::equivalent(file_.path(), out_, error))
      return diags_.error({.file = out_}).exit(ExitCode::usage).help("give the copy another name")
             << "is the model itself";
    const fs::path from = fs::absolute(file_.path()).parent_path(), to = fs::absolute(out_).parent_path();
    moves_ = !fs::equivalent(from, to, error);
    if (moves_ && !checkAttributes()) return failure;
    const std::string model = copyOfModel();
    if (failed_) return failure;
    if (model.size() > INT_MAX)
      return diags_.error({.file = out_}).help("store the weights of the model as external data")
             << "needs " << model.size() << " bytes, an ONNX file has at most " << INT_MAX;
    pdcrt::Status status = data_.write();
    if (status) status = pdcrt::writeAtomically(out_, model);
    if (!status) return diags_.error({}) << status.message();
    return success;
  }

private:
  /// The fields of `message` as `copy` makes them.
  template <class Copy>
  static std::string copied(std::span<const std::byte> message, const Copy& copy) {
    std::string out;
    WireReader reader(message); // which has read this before
    WireField field;
    while (reader.next(field)) copy(out, field);
    return out;
  }
  static void keep(std::string& out, const WireField& field) {
    out.append(reinterpret_cast<const char*>(field.whole.data()), field.whole.size());
  }

  std::string copyOfModel() {
    std::string model = copied(file_.bytes(), [&](std::string& out, const WireField& field) {
      if (field.number == field::modelIrVersion)
        appendNumber(out, field.number, std::max(annotatedIrVersion, static_cast<std::int64_t>(numberOf(field))));
      else if (field.number == field::modelGraph && field.type == WireType::bytes)
        appendText(out, field.number, copyOfGraph(field.payload));
      else if (field.number != field::modelConfiguration && !isOwnMetadata(field))
        keep(out, field);
    });
    for (const auto& [key, value] : annotations_.metadata) {
      onnx::StringStringEntryProto entry;
      entry.set_key(key);
      entry.set_value(value);
      appendText(model, field::modelMetadata, entry.SerializeAsString());
    }
    for (const DeviceConfiguration& configuration : annotations_.configurations)
      appendText(model, field::modelConfiguration, encode(configuration));
    return model;
  }

  static bool isOwnMetadata(const WireField& field) {
    onnx::StringStringEntryProto entry;
    return field.number == field::modelMetadata && field.type == WireType::bytes &&
           entry.ParseFromArray(field.payload.data(), static_cast<int>(field.payload.size())) &&
           entry.key().starts_with(ownMetadata);
  }

  std::string copyOfGraph(std::span<const std::byte> graph) {
    return copied(graph, [&](std::string& out, const WireField& field) {
      if (field.number == field::graphNode && field.type == WireType::bytes)
        appendText(out, field.number, copyOfNode(field.payload, annotations_.nodes.at(nodes_++)));
      else if (field.number == field::graphInitializer && field.type == WireType::bytes)
        copyInitializer(out, field);
      else
        keep(out, field);
    });
  }

  static std::string copyOfNode(std::span<const std::byte> node, const AnnotatedNode& annotated) {
    std::string out = copied(node, [](std::string& copy, const WireField& field) {
      if (field.number != field::nodeConfigurations) keep(copy, field);
    });
    for (const NodeConfiguration& configuration : annotated.configurations)
      appendText(out, field::nodeConfigurations, encode(configuration));
    return out;
  }

  void copyInitializer(std::string& out, const WireField& field) {
    const int i = initializers_++;
    onnx::TensorProto tensor = file_.graph().initializer(i);
    if (!moves_ || tensor.data_location() != onnx::TensorProto::EXTERNAL) return keep(out, field);
    const Expected<StoredTensor> stored = reader_.initializer(i);
    const Expected<Tensor> value =
        stored ? reader_.load(*stored, {.file = file_.path(), .node = tensor.name()}) : Expected<Tensor>(failure);
    failed_ |= !value;
    if (!value) return;
    data_.add(tensor, value->bytes());
    appendText(out, field.number, tensor.SerializeAsString());
  }

  /// Tensors in attributes keep their place.
  Status checkAttributes() {
    std::string found;
    forEachNode(file_.graph(), [&](const onnx::NodeProto& node) {
      for (const onnx::AttributeProto& attribute : node.attribute())
        if (attribute.t().data_location() == onnx::TensorProto::EXTERNAL) found = nameOfNode(node);
      for (const onnx::GraphProto* body : bodiesOf(node))
        for (const onnx::TensorProto& tensor : body->initializer())
          if (tensor.data_location() == onnx::TensorProto::EXTERNAL) found = nameOfNode(node);
    });
    if (found.empty()) return success;
    return diags_.error({.file = file_.path(), .node = found})
               .exit(ExitCode::unsupported)
               .help("write the copy into the folder of the model")
           << "has a tensor in external data that is no initializer of the model, which another folder does not have";
  }

  const OnnxFile& file_;
  const DeviceAnnotations& annotations_;
  const std::string& out_;
  Diagnostics& diags_;
  TensorReader reader_;
  DataFile data_;
  bool moves_ = false; ///< external data does not lie beside the copy
  bool failed_ = false;
  std::size_t nodes_ = 0; ///< that were copied
  int initializers_ = 0;
};

} // namespace

Status pdc::writeDeviceAnnotations(const std::string& path, const DeviceAnnotations& annotations,
                                   const std::string& out, Diagnostics& diags) {
  const Expected<OnnxFile> file = OnnxFile::open(path, diags);
  return file ? Copier(*file, annotations, out, diags).run() : Status(failure);
}
