// Fields of ONNX's messages that the installed onnx package may be too old to know.
#pragma once

#include "OnnxProto.h"

#include <google/protobuf/unknown_field_set.h>

#include <map>
#include <string>
#include <vector>

namespace pdc {

/// The payloads of field `number` of `message`, which its class does not know.
template <class Message>
std::vector<std::string> unknownTexts(const Message& message, int number) {
  std::vector<std::string> texts;
  const auto& fields = message.unknown_fields();
  for (int i = 0; i < fields.field_count(); ++i)
    if (fields.field(i).number() == number &&
        fields.field(i).type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
      texts.push_back(fields.field(i).length_delimited());
  return texts;
}

using Metadata = std::map<std::string, std::string>; ///< by key

/// `metadata_props` (IR version 10). Entries that are no valid messages are left out.
Metadata metadataOf(const onnx::ValueInfoProto& value);
Metadata metadataOf(const onnx::NodeProto& node);
Metadata metadataOf(const onnx::GraphProto& graph);

/// Replaces all of `value`'s by one entry.
void setMetadata(onnx::ValueInfoProto& value, const std::string& key, const std::string& text);

} // namespace pdc
