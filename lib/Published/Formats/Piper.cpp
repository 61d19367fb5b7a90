// The reader of Piper's problems.
#include "pdc/Published/Piper.h"

#include "Formats/Edges.h"
#include "pdc/Plan/PlanJson.h"

#include <charconv>

using namespace pdc;

/// A key that is a number, such as the tensor-parallel degree "4".
static std::int64_t keyNumber(const std::string& key, const JsonNode& member, std::int64_t least, std::int64_t most) {
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), number);
  if (problem == std::errc{} && end == key.data() + key.size() && number >= least && number <= most) return number;
  member.error() << "expected a key that is an integer from " << least << " to " << most << ", got '"
                 << key.substr(0, 60) << "'";
  return least;
}

static std::map<std::int64_t, double> readSync(const JsonNode& json, std::string_view key) {
  std::map<std::int64_t, double> bytes;
  if (std::optional<JsonNode> object = json.find(key))
    for (const auto& [id, member] : object->members())
      bytes[keyNumber(id, member, 0, INT64_MAX)] = member.nonNegative();
  return bytes;
}

static PiperChoice readChoice(const JsonNode& json) {
  json.allowOthers(
      {"id", "timePerSample", "parameterSize", "memoryUsageA", "memoryUsageB", "syncTimeFw", "syncTimeBw"});
  PiperChoice choice;
  choice.id = json["id"].text();
  choice.time = json["timePerSample"].nonNegative();
  choice.parameterBytes = json["parameterSize"].nonNegative();
  choice.memoryA = json["memoryUsageA"].nonNegative();
  choice.memoryB = json["memoryUsageB"].nonNegative();
  choice.syncForward = readSync(json, "syncTimeFw");
  choice.syncBackward = readSync(json, "syncTimeBw");
  return choice;
}

static PiperNode readNode(const JsonNode& json) {
  json.allowOthers({"id", "name", "TMPCs"});
  PiperNode node;
  node.id = json["id"].integer(0, INT64_MAX);
  node.name = optionalText(json, "name", std::to_string(node.id));
  constexpr std::int64_t largestDegree = 1 << 20;
  JsonNode degrees = json["TMPCs"];
  for (const auto& [degree, list] : degrees.members()) {
    std::vector<PiperChoice>& choices = node.choices[keyNumber(degree, list, 1, largestDegree)];
    for (const JsonNode& element : list.elements()) choices.push_back(readChoice(element));
    if (choices.empty()) list.error() << "expected at least one choice, got none";
  }
  if (node.choices.empty())
    degrees.error().help("give the choices without tensor parallelism under \"1\"")
        << "expected at least one tensor-parallel degree, got none";
  return node;
}

/// Of all choices and edges. What memory a plan takes is bounded by the limit, which counts, too.
static void refuseHugeSums(const PiperProblem& problem, const JsonNode& nodes) {
  double bytes = problem.memoryBytes, time = 0;
  auto add = [&](const std::map<std::int64_t, double>& sync) {
    for (const auto& [id, size] : sync) bytes += 2 * size;
  };
  for (const PiperNode& node : problem.nodes)
    for (const auto& [degree, choices] : node.choices)
      for (const PiperChoice& choice : choices) {
        time += choice.time;
        bytes += choice.parameterBytes + choice.memoryA + choice.memoryB;
        add(choice.syncForward);
        add(choice.syncBackward);
      }
  for (const PiperEdge& edge : problem.edges) bytes += 2 * edge.bytes;
  refuseOverflow(bytes, time + bytes / problem.bandwidth, nodes);
}

static PiperEdge readEdge(const JsonNode& json, const NodeIds& ids) {
  json.allowOthers({"sourceId", "destId", "communicationCost"});
  PiperEdge edge;
  edge.from = ids.index(json["sourceId"]);
  edge.to = ids.index(json["destId"]);
  edge.bytes = json["communicationCost"].nonNegative();
  return edge;
}

Expected<PiperProblem> pdc::piperFromJson(const std::string& text, const std::string& file, Diagnostics& diags) {
  Expected<JsonDocument> document = JsonDocument::parse(text, file, diags);
  if (!document) return failure;
  JsonNode root = document->root();
  root.allowOthers({"maxDevices", "maxMemoryPerDevice", "bandwidth", "mbsInBatch", "nodes", "edges"});
  PiperProblem problem;
  problem.name = file;
  problem.devices = root["maxDevices"].integer(1, 1 << 20);
  problem.memoryBytes = root["maxMemoryPerDevice"].nonNegative();
  problem.bandwidth = root["bandwidth"].nonNegative();
  if (problem.bandwidth == 0) root["bandwidth"].error() << "expected a bandwidth above 0, got 0";
  problem.microbatches = root["mbsInBatch"].integer(1, std::int64_t{1} << 31);
  NodeIds ids;
  JsonNode nodes = root["nodes"];
  for (const JsonNode& element : nodes.elements()) {
    problem.nodes.push_back(readNode(element));
    ids.add(problem.nodes.back().id, element);
  }
  if (document->ok() && problem.nodes.empty()) nodes.error() << "expected at least one node, got none";
  Edges edges;
  for (const JsonNode& element : root["edges"].elements()) {
    problem.edges.push_back(readEdge(element, ids));
    if (!document->ok()) return failure;
    edges.push_back({problem.edges.back().from, problem.edges.back().to});
  }
  if (document->ok()) refuseHugeSums(problem, nodes);
  if (!document->ok()) return failure;
  auto nameOf = [&](std::int64_t v) { return std::to_string(problem.nodes[static_cast<std::size_t>(v)].id); };
  if (!refuseCycles(static_cast<std::int64_t>(problem.nodes.size()), edges, nameOf, file, diags)) return failure;
  return problem;
}
