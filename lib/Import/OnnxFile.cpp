// The protobuf parser of the onnx package copies every byte. Weights can be gigabytes, so the file is walked once in
// its wire format: all but the initializers' elements goes into a skeleton, which the parser reads.
#include "OnnxFile.h"

#include "OnnxFields.h"
#include "Wire.h"

#include <climits>

using namespace pdc;
using namespace pdc::fields;

namespace {

void append(std::string& out, std::span<const std::byte> bytes) {
  out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

class Skeleton {
public:
  std::string text;
  std::vector<ElementRange> ranges;
  std::string problem;
  bool sawIrVersion = false;

  bool readModel(std::span<const std::byte> bytes) {
    WireReader reader(bytes);
    WireField field;
    while (reader.next(field)) {
      sawIrVersion |= field.number == modelIrVersion;
      if (field.number != modelGraph || field.type != WireType::bytes)
        append(text, field.whole);
      else if (!appendRewritten(text, field, reader.position(), &Skeleton::readGraph))
        return false;
    }
    return finish(reader);
  }

private:
  using Rewrite = bool (Skeleton::*)(std::string& out, std::span<const std::byte> message, std::size_t offset);

  /// Appends the message `field`, which ends at byte `end` of the file, as `rewrite` makes it.
  bool appendRewritten(std::string& out, const WireField& field, std::size_t end, Rewrite rewrite) {
    std::string body;
    if (!(this->*rewrite)(body, field.payload, end - field.payload.size())) return false;
    appendLengthPrefix(out, field.number, body.size());
    out += body;
    return true;
  }

  bool readGraph(std::string& out, std::span<const std::byte> message, std::size_t offset) {
    WireReader reader(message, offset);
    WireField field;
    while (reader.next(field)) {
      if (field.number != graphInitializer || field.type != WireType::bytes)
        append(out, field.whole);
      else if (ranges.emplace_back(); !appendRewritten(out, field, reader.position(), &Skeleton::readTensor))
        return false;
    }
    return finish(reader);
  }

  bool readTensor(std::string& out, std::span<const std::byte> message, std::size_t offset) {
    WireReader reader(message, offset);
    WireField field;
    ElementRange& range = ranges.back();
    while (reader.next(field)) {
      bool elements =
          field.number == tensorRawData || field.number == tensorFloatData || field.number == tensorDoubleData;
      if (!elements) {
        append(out, field.whole);
        continue;
      }
      // A parser would let a later raw_data replace an earlier one, and join pieces of the others; no writer does this.
      range.scattered |= range.field != 0 || field.type != WireType::bytes;
      range.field = field.number;
      range.offset = reader.position() - field.payload.size();
      range.length = field.payload.size();
    }
    return finish(reader);
  }

  bool finish(const WireReader& reader) {
    if (reader.failed()) problem = reader.problem();
    return !reader.failed();
  }
};

} // namespace

bool pdc::isDefaultDomain(const std::string& domain) {
  return domain.empty() || domain == "ai.onnx";
}

Expected<OnnxFile> OnnxFile::open(const std::string& path, Diagnostics& diags) {
  OnnxFile file;
  file.path_ = path;
  if (pdcrt::Status status = file.mapped_.open(path); !status) {
    std::string message = status.message(); // which starts with the path, as the location does
    if (message.starts_with(path + ": ")) message.erase(0, path.size() + 2);
    return diags.error({.file = path}) << message;
  }

  Skeleton skeleton;
  bool complete = skeleton.readModel(file.bytes());
  if (!skeleton.sawIrVersion || file.bytes().empty())
    return diags.error({.file = path})
               .note(complete ? "it has no ir_version" : skeleton.problem)
               .help("export the module with torch.onnx.export(…); docs/FromPyTorch.md shows it")
           << "is not an ONNX model";
  if (!complete)
    return diags.error({.file = path}).note(skeleton.problem).help("copy or download it again")
           << "is cut off or damaged: " << file.bytes().size() << " bytes do not hold the whole model";
  if (skeleton.text.size() > INT_MAX ||
      !file.model_.ParseFromArray(skeleton.text.data(), static_cast<int>(skeleton.text.size())))
    return diags.error({.file = path}).help("copy or download it again")
           << "is cut off or damaged: not a valid protobuf";
  if (!file.model_.has_graph()) return diags.error({.file = path}) << "is not an ONNX model: it has no graph";
  // A repeated `graph` field is merged by the parser as by the walk; anything else would be a bug here.
  assert(static_cast<std::size_t>(file.model_.graph().initializer_size()) == skeleton.ranges.size());
  file.ranges_ = std::move(skeleton.ranges);
  return file;
}

void OnnxFile::addInitializer(onnx::TensorProto tensor, const ElementRange& range) {
  constexpr int initializersApartFromInputs = 4; // IR version
  if (model_.ir_version() < initializersApartFromInputs) {
    onnx::ValueInfoProto& input = *mutableGraph().add_input();
    input.set_name(tensor.name());
    input.mutable_type()->mutable_tensor_type()->set_elem_type(tensor.data_type());
    for (std::int64_t dim : tensor.dims())
      input.mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(dim);
  }
  *mutableGraph().add_initializer() = std::move(tensor);
  ranges_.push_back(range);
}

void OnnxFile::addInitializerLike(int i, const std::string& name) {
  onnx::TensorProto copy = graph().initializer(i);
  copy.set_name(name);
  addInitializer(std::move(copy), ElementRange(elements(i)));
}

void OnnxFile::makeInitializer(int i) {
  const onnx::ValueInfoProto& input = graph().input(i);
  onnx::TensorProto& tensor = *mutableGraph().add_initializer();
  tensor.set_name(input.name());
  tensor.set_data_type(input.type().tensor_type().elem_type());
  for (const auto& dim : input.type().tensor_type().shape().dim()) tensor.add_dims(dim.dim_value());
  ranges_.push_back({});
  mutableGraph().mutable_input()->DeleteSubrange(i, 1);
}

std::int64_t OnnxFile::opset() const {
  for (const onnx::OperatorSetIdProto& import : model_.opset_import())
    if (isDefaultDomain(import.domain())) return import.version();
  return 0;
}

std::int64_t OnnxFile::opsetOf(const onnx::NodeProto& node) const {
  const auto found = opsets_.find(&node);
  return found == opsets_.end() ? opset() : found->second;
}

void OnnxFile::replaceNodes(google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes,
                            const std::vector<std::int64_t>& opsets) {
  model_.mutable_graph()->mutable_node()->Swap(&nodes);
  opsets_.clear();
  for (std::size_t i = 0; i < opsets.size(); ++i)
    if (opsets[i] != opset()) opsets_[&graph().node(static_cast<int>(i))] = opsets[i];
}
