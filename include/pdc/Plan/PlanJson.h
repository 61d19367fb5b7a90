// What the JSON of cost graph, cluster and plan share.
#pragma once

#include "pdc/Plan/Cluster.h"
#include "pdc/Support/JsonReader.h"
#include "pdc/Support/JsonText.h"

#include <unordered_map>

namespace pdc {

nlohmann::ordered_json clusterToJson(const Cluster& cluster);
Cluster readCluster(const JsonNode& node);

/// The ids that a file gives its nodes, and the indices that pdc gives them.
class NodeIds {
public:
  /// Gives `id` the next index; an error at `node` if another node has it.
  void add(std::int64_t id, const JsonNode& node) {
    auto next = static_cast<std::int64_t>(indices_.size());
    auto [first, isNew] = indices_.emplace(id, next);
    if (!isNew)
      node.error().help("give every node an id of its own")
          << "id " << id << " is already that of node number " << first->second;
  }
  /// The index of the id that stands here; an error if no node has it.
  std::int64_t index(const JsonNode& json) const {
    std::int64_t id = json.integer(0, INT64_MAX);
    auto found = indices_.find(id);
    if (found != indices_.end()) return found->second;
    json.error() << "no node has the id " << id;
    return 0;
  }

private:
  std::unordered_map<std::int64_t, std::int64_t> indices_;
};

/// Sums of what planners add up must stay exact: reports sizes of more than 2^53 bytes and times without a finite sum.
void refuseOverflow(double bytes, double time, const JsonNode& node);

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
