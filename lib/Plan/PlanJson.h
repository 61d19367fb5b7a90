// What the JSON of cost graph, cluster and plan share.
#pragma once

#include "pdc/Plan/Cluster.h"
#include "pdc/Support/JsonReader.h"

#include <nlohmann/json.hpp>

namespace pdc {

/// Text for people to read and edit: whatever fits stands on one line. Ends with a newline.
std::string pretty(const nlohmann::ordered_json& value);

nlohmann::ordered_json clusterToJson(const Cluster& cluster);
Cluster readCluster(const JsonNode& node);

/// Members that may be missing.
inline double optionalNumber(const JsonNode& node, std::string_view key, double otherwise = 0) {
  std::optional<JsonNode> member = node.find(key);
  return member ? member->nonNegative() : otherwise;
}
inline std::int64_t optionalBytes(const JsonNode& node, std::string_view key, std::int64_t otherwise = 0) {
  std::optional<JsonNode> member = node.find(key);
  return member ? member->bytes() : otherwise;
}
inline std::string optionalText(const JsonNode& node, std::string_view key, std::string otherwise = {}) {
  std::optional<JsonNode> member = node.find(key);
  return member ? member->text() : otherwise;
}

} // namespace pdc
