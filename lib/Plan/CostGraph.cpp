// The JSON of cost graphs.
#include "pdc/Plan/CostGraph.h"

#include "pdc/Plan/PlanJson.h"

#include <algorithm>
#include <cmath>

using namespace pdc;
using nlohmann::ordered_json;

static ordered_json parametersOf(const CostGraph& graph, ordered_json object) {
  for (const CostSharedParameter& shared : graph.sharedParameters) {
    object["shared_parameters"].push_back({{"name", shared.name}, {"nodes", shared.nodes}, {"bytes", shared.bytes}});
    if (shared.isPart) object["shared_parameters"].back()["part"] = true;
  }
  for (const CostFrozenParameter& frozen : graph.frozenParameters)
    object["frozen_parameters"].push_back({{"name", frozen.name}, {"nodes", frozen.nodes}, {"bytes", frozen.bytes}});
  return object;
}

static ordered_json jsonOf(const CostGraph& graph) {
  ordered_json nodes = ordered_json::array(), tensors = ordered_json::array();
  for (const CostNode& node : graph.nodes) {
    ordered_json object = {{"name", node.name},
                           {"forward_ms", node.forwardMs},
                           {"input_gradient_ms", node.inputGradientMs},
                           {"weight_gradient_ms", node.weightGradientMs},
                           {"update_ms", node.updateMs},
                           {"parameter_bytes", node.parameterBytes},
                           {"gradient_bytes", node.gradientBytes},
                           {"saved_bytes", node.savedBytes},
                           {"scratch_bytes", node.scratchBytes},
                           {"workspace_bytes", node.workspaceBytes}};
    if (node.lateUpdateMs > 0) object["late_update_ms"] = node.lateUpdateMs;
    if (node.handoverBytes > 0) object["handover_bytes"] = node.handoverBytes;
    if (node.frozenBytes > 0) object["frozen_bytes"] = node.frozenBytes;
    if (node.forwardTeamMs > 0) object["forward_team_ms"] = node.forwardTeamMs;
    if (node.backwardTeamMs > 0) object["backward_team_ms"] = node.backwardTeamMs;
    if (node.forwardHiddenTeamMs > 0) object["forward_hidden_team_ms"] = node.forwardHiddenTeamMs;
    if (node.backwardHiddenTeamMs > 0) object["backward_hidden_team_ms"] = node.backwardHiddenTeamMs;
    if (node.teamBytes > 0) object["team_bytes"] = node.teamBytes;
    if (node.colour >= 0) object["colour"] = node.colour;
    nodes.push_back(std::move(object));
  }
  for (const CostTensor& tensor : graph.tensors) {
    ordered_json object = {{"name", tensor.name},
                           {"from", tensor.from},
                           {"to", tensor.to},
                           {"bytes", tensor.bytes},
                           {"has_gradient", tensor.hasGradient}};
    if (tensor.hasGradient && !tensor.gradientFrom.empty()) object["gradient_from"] = tensor.gradientFrom;
    if (tensor.codec)
      object["codec"] = {
          {"bytes", tensor.codec->bytes}, {"encode_ms", tensor.codec->encodeMs}, {"decode_ms", tensor.codec->decodeMs}};
    if (tensor.isPart) object["part"] = true;
    if (tensor.hasTerms) object["terms"] = true;
    if (tensor.isOwn) object["own"] = true;
    tensors.push_back(std::move(object));
  }
  ordered_json object = {{"model", graph.model}, {"cost_source", graph.costSource}};
  if (graph.split != TeamSplit{}) object["split"] = toText(graph.split);
  object["nodes"] = std::move(nodes);
  object["tensors"] = std::move(tensors);
  object = parametersOf(graph, std::move(object));
  for (const CostGraph& divided : graph.divided) object["divided"].push_back(jsonOf(divided));
  return object;
}

std::string pdc::toJson(const CostGraph& graph) {
  return pretty(jsonOf(graph));
}

std::int64_t pdc::wholeBytes(const CostGraph& graph, std::size_t tensor) {
  for (int split = 0; split < graph.splits(); ++split)
    if (const CostTensor& own = graph.in(split).tensors[tensor]; !own.isPart && own.bytes > 0) return own.bytes;
  return graph.tensors[tensor].bytes * graph.split.members;
}

std::string pdc::differenceOf(const CostGraph& graph, const CostGraph& divided) {
  const auto count = [](const auto& a, const auto& b, const std::string& what) {
    return std::to_string(a.size()) + " " + what + " and " + std::to_string(b.size());
  };
  if (graph.nodes.size() != divided.nodes.size()) return count(graph.nodes, divided.nodes, "nodes");
  for (std::size_t v = 0; v < graph.nodes.size(); ++v)
    if (graph.nodes[v].colour != divided.nodes[v].colour) return "two colours of node " + std::to_string(v);
  if (graph.tensors.size() != divided.tensors.size()) return count(graph.tensors, divided.tensors, "tensors");
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    const CostTensor &a = graph.tensors[t], &b = divided.tensors[t];
    if (a.name != b.name || a.from != b.from || a.to != b.to || a.hasGradient != b.hasGradient ||
        a.gradientFrom != b.gradientFrom)
      return "tensor " + std::to_string(t) + ", '" + a.name + "' and '" + b.name + "'";
  }
  const auto differs = [&](const auto& own, const auto& others) -> std::string {
    if (own.size() != others.size()) return count(own, others, "shared parameters");
    for (std::size_t p = 0; p < own.size(); ++p)
      if (own[p].nodes != others[p].nodes) return "the users of parameter '" + own[p].name + "'";
    return {};
  };
  if (std::string what = differs(graph.sharedParameters, divided.sharedParameters); !what.empty()) return what;
  return differs(graph.frozenParameters, divided.frozenParameters);
}

static CostNode readNode(const JsonNode& json) {
  json.allow({"name", "forward_ms", "input_gradient_ms", "weight_gradient_ms", "update_ms", "parameter_bytes",
              "gradient_bytes", "saved_bytes", "scratch_bytes", "workspace_bytes", "handover_bytes", "colour",
              "late_update_ms", "frozen_bytes", "forward_team_ms", "backward_team_ms", "forward_hidden_team_ms",
              "backward_hidden_team_ms", "team_bytes"});
  CostNode node;
  node.name = json["name"].text();
  node.forwardMs = json["forward_ms"].nonNegative();
  node.inputGradientMs = optionalNumber(json, "input_gradient_ms");
  node.weightGradientMs = optionalNumber(json, "weight_gradient_ms");
  node.updateMs = optionalNumber(json, "update_ms");
  node.lateUpdateMs = optionalNumber(json, "late_update_ms");
  node.forwardTeamMs = optionalNumber(json, "forward_team_ms");
  node.backwardTeamMs = optionalNumber(json, "backward_team_ms");
  node.forwardHiddenTeamMs = optionalNumber(json, "forward_hidden_team_ms");
  node.backwardHiddenTeamMs = optionalNumber(json, "backward_hidden_team_ms");
  node.teamBytes = optionalBytes(json, "team_bytes");
  node.parameterBytes = optionalBytes(json, "parameter_bytes");
  node.gradientBytes = optionalBytes(json, "gradient_bytes", node.parameterBytes);
  node.savedBytes = optionalBytes(json, "saved_bytes");
  node.scratchBytes = optionalBytes(json, "scratch_bytes");
  node.workspaceBytes = optionalBytes(json, "workspace_bytes");
  node.handoverBytes = optionalBytes(json, "handover_bytes");
  node.frozenBytes = optionalBytes(json, "frozen_bytes");
  if (std::optional<JsonNode> colour = json.find("colour")) node.colour = colour->integer(0, INT64_MAX);
  return node;
}

static CostTensor readCostTensor(const JsonNode& json, std::int64_t nodes) {
  json.allow({"name", "from", "to", "bytes", "has_gradient", "gradient_from", "codec", "part", "terms", "own"});
  CostTensor tensor;
  tensor.name = optionalText(json, "name");
  tensor.from = json["from"].integer(0, nodes - 1);
  for (const JsonNode& element : json["to"].elements()) {
    std::int64_t to = element.integer(0, nodes - 1);
    if (to <= tensor.from)
      element.error().help("list every node before those that use its tensors; in a cycle no order does that")
          << "node " << to << " uses a tensor of node " << tensor.from << ", which does not come before it";
    if (std::find(tensor.to.begin(), tensor.to.end(), to) != tensor.to.end())
      element.error() << "node " << to << " is listed twice, expected every user once";
    tensor.to.push_back(to);
  }
  tensor.bytes = json["bytes"].bytes();
  if (std::optional<JsonNode> gradient = json.find("has_gradient")) tensor.hasGradient = gradient->boolean();
  if (std::optional<JsonNode> part = json.find("part")) tensor.isPart = part->boolean();
  if (std::optional<JsonNode> terms = json.find("terms")) tensor.hasTerms = terms->boolean();
  if (std::optional<JsonNode> own = json.find("own")) tensor.isOwn = own->boolean();
  if (std::optional<JsonNode> users = json.find("gradient_from"))
    for (const JsonNode& element : users->elements()) {
      std::int64_t user = element.integer(0, nodes - 1);
      if (std::find(tensor.to.begin(), tensor.to.end(), user) == tensor.to.end())
        element.error() << "node " << user << " does not use the tensor, expected one of 'to'";
      if (!tensor.gradientFrom.empty() && user < tensor.gradientFrom.back())
        element.error() << "expected node " << tensor.gradientFrom.back() << " or one after it, got " << user;
      tensor.gradientFrom.push_back(user);
    }
  if (const std::optional<JsonNode> codec = json.find("codec")) {
    codec->allow({"bytes", "encode_ms", "decode_ms"});
    tensor.codec = {.bytes = (*codec)["bytes"].bytes(),
                    .encodeMs = (*codec)["encode_ms"].nonNegative(),
                    .decodeMs = (*codec)["decode_ms"].nonNegative()};
  }
  return tensor;
}

/// A CostSharedParameter or CostFrozenParameter.
template <class Parameter>
static Parameter readParameter(const JsonNode& json, std::int64_t nodes) {
  json.allow({"name", "nodes", "bytes", "part"});
  Parameter shared;
  if constexpr (std::is_same_v<Parameter, CostSharedParameter>)
    if (std::optional<JsonNode> part = json.find("part")) shared.isPart = part->boolean();
  shared.name = json["name"].text();
  JsonNode users = json["nodes"];
  for (const JsonNode& element : users.elements()) {
    std::int64_t node = element.integer(0, nodes - 1);
    if (!shared.nodes.empty() && node <= shared.nodes.back())
      element.error() << "expected a node after node " << shared.nodes.back() << ", got " << node;
    shared.nodes.push_back(node);
  }
  if (shared.nodes.empty()) users.error() << "expected at least one node that uses '" << shared.name << "'";
  shared.bytes = json["bytes"].bytes();
  return shared;
}

void pdc::refuseOverflow(double bytes, double time, const JsonNode& node) {
  constexpr double mostBytes = 0x1p53;
  if (bytes > mostBytes)
    node.error().help("sizes are in bytes, not bits")
        << "expected sizes that add up to at most 2^53 bytes, got " << bytes;
  if (!std::isfinite(time)) node.error() << "expected times with a finite sum, got more than a double holds";
}

static void refuseHugeSums(const CostGraph& graph, const JsonNode& nodes) {
  double bytes = 0, ms = 0;
  for (const CostNode& node : graph.nodes) {
    ms += node.forwardMs + node.inputGradientMs + node.weightGradientMs + node.updateMs + node.lateUpdateMs;
    for (std::int64_t size : {node.parameterBytes, node.gradientBytes, node.savedBytes, node.scratchBytes,
                              node.handoverBytes, node.frozenBytes})
      bytes += static_cast<double>(size);
  }
  for (const CostTensor& tensor : graph.tensors) bytes += static_cast<double>(tensor.bytes);
  for (const CostSharedParameter& shared : graph.sharedParameters) bytes += static_cast<double>(shared.bytes);
  for (const CostFrozenParameter& frozen : graph.frozenParameters) bytes += static_cast<double>(frozen.bytes);
  refuseOverflow(bytes, ms, nodes);
}

/// Reads on while nothing is wrong with `document`.
static CostGraph readGraph(const JsonDocument& document, const JsonNode& root, const std::string& file) {
  CostGraph graph;
  graph.model = optionalText(root, "model");
  graph.costSource = optionalText(root, "cost_source", file);
  if (std::optional<JsonNode> split = root.find("split")) {
    const std::optional<TeamSplit> read = costSplitFromText(split->text());
    if (!read && document.ok())
      split->error() << "expected none, tp:N, tps:N, sp:N or ep:N, got '" << split->text() << "'";
    graph.split = read.value_or(TeamSplit());
  }
  JsonNode nodes = root["nodes"];
  for (const JsonNode& element : nodes.elements()) graph.nodes.push_back(readNode(element));
  if (document.ok() && graph.nodes.empty()) nodes.error() << "expected at least one node";
  const auto count = static_cast<std::int64_t>(graph.nodes.size());
  for (const JsonNode& element : root["tensors"].elements())
    if (document.ok()) graph.tensors.push_back(readCostTensor(element, count));
  if (std::optional<JsonNode> shared = root.find("shared_parameters"))
    for (const JsonNode& element : shared->elements())
      if (document.ok()) graph.sharedParameters.push_back(readParameter<CostSharedParameter>(element, count));
  if (std::optional<JsonNode> frozen = root.find("frozen_parameters"))
    for (const JsonNode& element : frozen->elements())
      if (document.ok()) graph.frozenParameters.push_back(readParameter<CostFrozenParameter>(element, count));
  if (document.ok()) refuseHugeSums(graph, nodes);
  return graph;
}

Expected<CostGraph> pdc::costGraphFromJson(const std::string& text, const std::string& file, Diagnostics& diags) {
  Expected<JsonDocument> document = JsonDocument::parse(text, file, diags);
  if (!document) return failure;
  JsonNode root = document->root();
  root.allow(
      {"model", "cost_source", "split", "nodes", "tensors", "shared_parameters", "frozen_parameters", "divided"});
  CostGraph graph = readGraph(*document, root, file);
  if (std::optional<JsonNode> divided = root.find("divided"))
    for (const JsonNode& element : divided->elements()) {
      if (!document->ok()) break;
      element.allow({"model", "cost_source", "split", "nodes", "tensors", "shared_parameters", "frozen_parameters"});
      CostGraph other = readGraph(*document, element, file);
      if (!document->ok()) break;
      if (const std::string what = differenceOf(graph, other); !what.empty())
        element.error().help("list the same nodes, tensors and parameters for each split")
            << "the graph of split " << toText(other.split) << " differs from that of " << toText(graph.split) << ": "
            << what;
      graph.divided.push_back(std::move(other));
    }
  if (!document->ok()) return failure;
  return graph;
}
