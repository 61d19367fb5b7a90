// The reader of operator-placement problems.
#include "pdc/Published/DnnPartitioning.h"

#include "Formats/Edges.h"
#include "pdc/Plan/PlanJson.h"

#include <unordered_map>

using namespace pdc;

namespace {

/// Colour classes are numbers or names; both get numbers from 0 in the order of the file.
class Colours {
public:
  std::int64_t number(const JsonNode& json) {
    std::string label = json.isText() ? "'" + json.text() : std::to_string(json.integer(0, INT64_MAX));
    return numbers_.emplace(std::move(label), static_cast<std::int64_t>(numbers_.size())).first->second;
  }

private:
  std::unordered_map<std::string, std::int64_t> numbers_;
};

} // namespace

static DnnPartitioningNode readNode(const JsonNode& json, Colours& colours) {
  json.allowOthers(
      {"id", "name", "supportedOnFpga", "cpuLatency", "fpgaLatency", "isBackwardNode", "colorClass", "size"});
  DnnPartitioningNode node;
  node.id = json["id"].integer(0, INT64_MAX);
  node.name = optionalText(json, "name", std::to_string(node.id));
  node.onAccelerator = json["supportedOnFpga"].flag();
  node.cpuTime = json["cpuLatency"].nonNegative();
  node.acceleratorTime = node.onAccelerator ? json["fpgaLatency"].nonNegative() : optionalNumber(json, "fpgaLatency");
  if (std::optional<JsonNode> backward = json.find("isBackwardNode")) node.isBackward = backward->flag();
  if (std::optional<JsonNode> colour = json.find("colorClass")) node.colour = colours.number(*colour);
  node.size = json["size"].nonNegative();
  return node;
}

static DnnPartitioningEdge readEdge(const JsonNode& json, const NodeIds& ids) {
  json.allowOthers({"sourceId", "destId", "cost", "size"});
  DnnPartitioningEdge edge;
  edge.from = ids.index(json["sourceId"]);
  edge.to = ids.index(json["destId"]);
  edge.cost = json["cost"].nonNegative();
  return edge;
}

Expected<DnnPartitioningProblem> pdc::dnnPartitioningFromJson(const std::string& text, const std::string& file,
                                                              Diagnostics& diags) {
  Expected<JsonDocument> document = JsonDocument::parse(text, file, diags);
  if (!document) return failure;
  constexpr std::int64_t mostDevices = 1 << 20;
  JsonNode root = document->root();
  root.allowOthers({"maxSizePerFPGA", "maxFPGAs", "maxCPUs", "nodes", "edges"});
  DnnPartitioningProblem problem;
  problem.name = file;
  problem.acceleratorMemory = root["maxSizePerFPGA"].nonNegative();
  problem.accelerators = root["maxFPGAs"].integer(0, mostDevices);
  problem.cpus = root["maxCPUs"].integer(0, mostDevices);
  if (document->ok() && problem.accelerators + problem.cpus == 0)
    root["maxFPGAs"].error().help("allow at least one accelerator or CPU") << "expected a device, got none";
  Colours colours;
  NodeIds ids;
  JsonNode nodes = root["nodes"];
  for (const JsonNode& element : nodes.elements()) {
    problem.nodes.push_back(readNode(element, colours));
    ids.add(problem.nodes.back().id, element);
  }
  if (document->ok() && problem.nodes.empty()) nodes.error() << "expected at least one node, got none";
  Edges edges;
  for (const JsonNode& element : root["edges"].elements()) {
    problem.edges.push_back(readEdge(element, ids));
    if (!document->ok()) return failure;
    edges.push_back({problem.edges.back().from, problem.edges.back().to});
  }
  double size = problem.acceleratorMemory, time = 0;
  for (const DnnPartitioningNode& node : problem.nodes) size += node.size, time += node.cpuTime + node.acceleratorTime;
  for (const DnnPartitioningEdge& edge : problem.edges) time += 2 * edge.cost;
  if (document->ok()) refuseOverflow(size, time, nodes);
  if (!document->ok()) return failure;
  auto nameOf = [&](std::int64_t v) { return problem.nodes[static_cast<std::size_t>(v)].name; };
  if (!refuseCycles(static_cast<std::int64_t>(problem.nodes.size()), edges, nameOf, file, diags)) return failure;
  return problem;
}
