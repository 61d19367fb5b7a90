#include "Metadata.h"

using namespace pdc;

namespace {

// Field numbers of onnx.proto.
constexpr int valueMetadata = 4, nodeMetadata = 9, graphMetadata = 16;

template <class Message>
Metadata read(const Message& message, int number) {
  Metadata metadata;
  if constexpr (requires { message.metadata_props(); }) {
    for (const auto& entry : message.metadata_props()) metadata[entry.key()] = entry.value();
  } else {
    onnx::StringStringEntryProto entry;
    for (const std::string& bytes : unknownTexts(message, number))
      if (entry.ParseFromString(bytes)) metadata[entry.key()] = entry.value();
  }
  return metadata;
}

template <class Message>
void write(Message& message, int number, const std::string& key, const std::string& text) {
  onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(text);
  if constexpr (requires { message.clear_metadata_props(); }) {
    message.clear_metadata_props();
    *message.add_metadata_props() = entry;
  } else {
    message.mutable_unknown_fields()->DeleteByNumber(number);
    message.mutable_unknown_fields()->AddLengthDelimited(number, entry.SerializeAsString());
  }
}

} // namespace

Metadata pdc::metadataOf(const onnx::ValueInfoProto& value) {
  return read(value, valueMetadata);
}

Metadata pdc::metadataOf(const onnx::NodeProto& node) {
  return read(node, nodeMetadata);
}

Metadata pdc::metadataOf(const onnx::GraphProto& graph) {
  return read(graph, graphMetadata);
}

void pdc::setMetadata(onnx::ValueInfoProto& value, const std::string& key, const std::string& text) {
  write(value, valueMetadata, key, text);
}
