// An ONNX file, mapped: its protobuf without the elements of the initializers, and where in the file those lie.
#pragma once

#include "OnnxProto.h"
#include "pdc/Support/Diagnostics.h"
#include "pdcrt/MappedFile.h"

#include <unordered_map>
#include <vector>

namespace pdc {

/// Where an initializer's elements lie, little-endian and in one piece (raw_data, or a packed float_data or
/// double_data). Initializers that store integers one by one have none: their values are in the protobuf.
struct ElementRange {
  std::size_t offset = 0;
  std::size_t length = 0;
  std::uint32_t field = 0; ///< number of the field in TensorProto; 0: there is none
  bool scattered = false;  ///< the elements are spread over several fields
};

class OnnxFile {
public:
  /// Reads `path`. Errors: it is no readable file, no ONNX model, or cut off.
  static Expected<OnnxFile> open(const std::string& path, Diagnostics& diags);

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return mapped_.bytes(); }
  const onnx::ModelProto& model() const { return model_; }
  const onnx::GraphProto& graph() const { return model_.graph(); }
  /// Of initializer i of the graph.
  const ElementRange& elements(int i) const { return ranges_[static_cast<std::size_t>(i)]; }
  /// Appends an initializer, whose elements lie at `range`.
  void addInitializer(onnx::TensorProto tensor, const ElementRange& range);
  /// Appends an initializer `name` with the type and the elements of initializer i.
  void addInitializerLike(int i, const std::string& name);
  /// Makes input i of the graph an initializer without elements.
  void makeInitializer(int i);
  /// To change nodes; initializers go with `elements`.
  onnx::GraphProto& mutableGraph() { return *model_.mutable_graph(); }
  /// Version of the default domain's opset; 0 when the model does not say.
  std::int64_t opset() const;
  /// The version that `node` of the graph means: the model's, or that of the function which the node comes from.
  std::int64_t opsetOf(const onnx::NodeProto& node) const;

  /// Gives the graph other nodes; `opsets[i]` is the version that node i means.
  void replaceNodes(google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes, const std::vector<std::int64_t>& opsets);

  /// The message without the initializers' elements, to be changed and written again.
  onnx::ModelProto takeModel() && { return std::move(model_); }

private:
  std::string path_;
  pdcrt::MappedFile mapped_;
  onnx::ModelProto model_;
  std::vector<ElementRange> ranges_;
  std::unordered_map<const onnx::NodeProto*, std::int64_t> opsets_; ///< of nodes that mean another than the model's
};

/// Whether `domain` is ONNX's own.
bool isDefaultDomain(const std::string& domain);

} // namespace pdc
