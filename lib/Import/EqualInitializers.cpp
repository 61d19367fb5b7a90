#include "EqualInitializers.h"

#include "pdc/IR/OpDef.h"
#include "pdc/Import/OnnxImport.h"
#include "pdcrt/MappedFile.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

using namespace pdc;

namespace {

using Bytes = std::span<const std::byte>;

/// PyTorch names what a node computes "/module/Identity_output_0", or by a number; parameters by their path.
bool namesParameter(const std::string& name) {
  return !name.empty() && name[0] != '/' && name.find_first_not_of("0123456789") != std::string::npos;
}

/// The elements of a tensor that lies in one piece; `mapped` keeps external data.
Bytes bytesOf(const OnnxFile& file, const Reference& reference, pdcrt::MappedFile& mapped) {
  Bytes all = file.bytes();
  if (reference.origin == ReferenceOrigin::externalData) {
    if (!mapExternalData(reference.model, reference.file, mapped)) return {};
    all = mapped.bytes();
  }
  const auto offset = static_cast<std::size_t>(reference.offset), length = static_cast<std::size_t>(reference.length);
  return offset <= all.size() && length <= all.size() - offset ? all.subspan(offset, length) : Bytes{};
}

bool allTheSame(Bytes bytes, std::size_t size) {
  // Each element equals the next.
  return bytes.size() <= size || std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) == 0;
}

/// Whether b[j, i] = a[i, j]. Other matrices differ within the first rows; equal ones are compared in blocks that fit
/// into a cache.
bool isTransposed(Bytes a, Bytes b, std::size_t rows, std::size_t columns, std::size_t size) {
  constexpr std::size_t block = 32;
  for (std::size_t i0 = 0; i0 < rows; i0 += block)
    for (std::size_t j0 = 0; j0 < columns; j0 += block)
      for (std::size_t i = i0; i < std::min(i0 + block, rows); ++i)
        for (std::size_t j = j0; j < std::min(j0 + block, columns); ++j)
          if (std::memcmp(&a[(i * columns + j) * size], &b[(j * rows + i) * size], size) != 0) return false;
  return true;
}

/// Where PyTorch's older exporter has called modules: "/encoder/layer.1/query_1" of a node
/// "/encoder/layer.1/query_1/MatMul". A module that is called again has a number behind its name, which is left out
/// here.
std::string moduleOfNode(const std::string& node) {
  std::string path;
  std::size_t begin = 0;
  for (std::size_t slash; (slash = node.find('/', begin)) != std::string::npos; begin = slash + 1) {
    std::string part = node.substr(begin, slash - begin);
    const std::size_t number = part.rfind('_');
    if (number != std::string::npos && number + 1 < part.size() &&
        part.find_first_not_of("0123456789", number + 1) == std::string::npos)
      part.erase(number);
    path += part + "/";
  }
  return path;
}

/// The modules in which nodes read each value.
std::map<std::string, std::set<std::string>> readersOf(const OnnxFile& file) {
  std::map<std::string, std::set<std::string>> modules;
  for (const onnx::NodeProto& node : file.graph().node())
    if (node.op_type() != "Identity")
      for (const std::string& input : node.input()) modules[input].insert(moduleOfNode(node.name()));
  return modules;
}

/// Names that are the table of a Gather.
std::set<std::string> tablesOf(const OnnxFile& file) {
  std::set<std::string> tables;
  for (const onnx::NodeProto& node : file.graph().node())
    if (node.op_type() == "Gather" && node.input_size() > 0) tables.insert(node.input(0));
  return tables;
}

} // namespace

bool pdc::holdsOneNumber(const OnnxFile& file, const StoredTensor& tensor) {
  if (tensor.value) return allTheSame(tensor.value->bytes(), pdcrt::bytesOf(tensor.type.element));
  if (!tensor.reference) return false;
  pdcrt::MappedFile mapped;
  const Bytes bytes = bytesOf(file, *tensor.reference, mapped);
  return !bytes.empty() && allTheSame(bytes, pdcrt::bytesOf(tensor.type.element));
}

bool pdc::haveEqualElements(const OnnxFile& file, const StoredTensor& a, const StoredTensor& b) {
  if (!a.reference || !b.reference || a.type != b.type) return false;
  pdcrt::MappedFile first, second;
  const Bytes left = bytesOf(file, *a.reference, first), right = bytesOf(file, *b.reference, second);
  return !left.empty() && left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size()) == 0;
}

Equality pdc::compareMatrices(const OnnxFile& file, const StoredTensor& a, const StoredTensor& b) {
  if (!a.reference || !b.reference || a.type.rank() != 2 || a.type.element != b.type.element) return Equality::none;
  const Shape turned = {a.type.shape[1], a.type.shape[0]};
  if (b.type.shape != a.type.shape && b.type.shape != turned) return Equality::none;
  pdcrt::MappedFile first, second;
  const Bytes left = bytesOf(file, *a.reference, first), right = bytesOf(file, *b.reference, second);
  const std::size_t size = pdcrt::bytesOf(a.type.element);
  if (left.empty() || left.size() != right.size()) return Equality::none;
  if (left.data() != right.data() && b.type.shape == turned &&
      isTransposed(left, right, static_cast<std::size_t>(turned[1]), static_cast<std::size_t>(turned[0]), size))
    return allTheSame(left, size) ? Equality::none : Equality::transposed;
  if (b.type.shape == a.type.shape && std::memcmp(left.data(), right.data(), left.size()) == 0)
    return allTheSame(left, size) ? Equality::none : Equality::same;
  return Equality::none;
}

static bool isFloatMatrix(const onnx::TensorProto& proto) {
  const std::optional<ElementType> element = elementTypeFromOnnx(proto.data_type());
  return proto.dims_size() == 2 && element && isFloat(*element);
}

std::optional<MatrixCopy> pdc::copiedMatrix(const OnnxFile& file, TensorReader& reader, int i,
                                            const std::function<bool(const std::string&)>& isOriginal) {
  if (!isFloatMatrix(file.graph().initializer(i))) return {};
  Expected<StoredTensor> stored = reader.initializer(i);
  if (!stored) return {};
  for (int j = 0; j < file.graph().initializer_size(); ++j) {
    const onnx::TensorProto& proto = file.graph().initializer(j);
    if (j == i || !isFloatMatrix(proto) || !isOriginal(proto.name())) continue;
    Expected<StoredTensor> original = reader.initializer(j);
    if (!original) return {};
    const Equality equality = compareMatrices(file, *original, *stored);
    if (equality != Equality::none) return MatrixCopy{proto.name(), equality == Equality::transposed};
  }
  return {};
}

std::vector<std::byte> pdc::transposed(std::span<const std::byte> elements, std::int64_t rows, std::int64_t columns,
                                       std::size_t size) {
  std::vector<std::byte> result(elements.size());
  const auto height = static_cast<std::size_t>(rows), width = static_cast<std::size_t>(columns);
  for (std::size_t i = 0; i < height; ++i)
    for (std::size_t j = 0; j < width; ++j)
      std::memcpy(&result[(j * height + i) * size], &elements[(i * width + j) * size], size);
  return result;
}

std::vector<MergedParameter> pdc::mergedParameters(const OnnxFile& file, TensorReader& reader, bool tie) {
  std::vector<MergedParameter> merged;
  if (file.model().producer_name() != "pytorch") return merged;
  std::map<std::string, int> initializers;
  for (int i = 0; i < file.graph().initializer_size(); ++i) initializers[file.graph().initializer(i).name()] = i;
  std::set<std::string> outputs;
  for (const onnx::ValueInfoProto& output : file.graph().output()) outputs.insert(output.name());
  const std::set<std::string> tables = tablesOf(file);
  const auto modules = readersOf(file);
  const auto isOneModule = [&](const std::string& a, const std::string& b) {
    const auto first = modules.find(a), second = modules.find(b);
    return first != modules.end() && second != modules.end() && first->second == second->second &&
           *first->second.begin() != "";
  };
  for (int n = 0; n < file.graph().node_size(); ++n) {
    const onnx::NodeProto& node = file.graph().node(n);
    if (node.op_type() != "Identity" || node.input_size() != 1 || node.output_size() != 1) continue;
    const auto source = initializers.find(node.input(0));
    const std::string& name = node.output(0);
    if (source == initializers.end() || outputs.contains(name) || !namesParameter(name)) continue;
    const onnx::TensorProto& proto = file.graph().initializer(source->second);
    const std::optional<ElementType> element = elementTypeFromOnnx(proto.data_type());
    if (!element || !isFloat(*element) || proto.dims_size() == 0) continue;
    // One module that is called again: what folding has made of its weight has a number for a name each time.
    if (name.starts_with("onnx::") && isOneModule(name, node.input(0))) {
      Expected<StoredTensor> tensor = reader.initializer(source->second);
      if (tensor && !holdsOneNumber(file, *tensor)) continue;
    }
    if (tie && tables.contains(name) != tables.contains(node.input(0))) {
      Expected<StoredTensor> tensor = reader.initializer(source->second);
      if (!tensor || compareMatrices(file, *tensor, *tensor) != Equality::none) continue;
    }
    merged.push_back({n, source->second, name});
  }
  return merged;
}

void pdc::separate(OnnxFile& file, const std::vector<MergedParameter>& merged) {
  if (merged.empty()) return;
  std::set<int> nodes;
  for (const MergedParameter& parameter : merged) {
    file.addInitializerLike(parameter.initializer, parameter.name);
    nodes.insert(parameter.node);
  }
  google::protobuf::RepeatedPtrField<onnx::NodeProto> kept;
  for (int n = 0; n < file.graph().node_size(); ++n)
    if (!nodes.contains(n)) *kept.Add() = file.graph().node(n);
  file.mutableGraph().mutable_node()->Swap(&kept);
}
