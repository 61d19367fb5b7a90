// Profiles: JSON, validity, the estimate.
#include "pdc/Analysis/Profile.h"

#include "pdc/IR/Text.h"
#include "pdc/Support/JsonReader.h"
#include "pdcrt/Hash.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

using namespace pdc;

std::string pdc::toJson(const Profile& profile) {
  nlohmann::ordered_json json = {
      {"pdc", profile.version},    {"source", profile.source},        {"model_hash", profile.modelHash},
      {"device", profile.device},  {"busy_cores", profile.busyCores}, {"split_backward", profile.splitBackward},
      {"step_ms", profile.stepMs}, {"update_ms", profile.updateMs},   {"data_ms", profile.dataMs}};
  if (profile.accumulateMs > 0) json["accumulate_ms"] = profile.accumulateMs;
  if (profile.clockMhz > 0) json["clock_mhz"] = profile.clockMhz;
  if (profile.reservedBytes > 0) json["reserved_bytes"] = profile.reservedBytes;
  if (profile.link)
    json["link"] = {{"latency_s", profile.link->latencyS},
                    {"bandwidth_bytes_per_s", profile.link->bandwidthBytesPerS},
                    {"core_s_per_byte", profile.link->coreSPerByte}};
  json["groups"] = nlohmann::ordered_json::array();
  for (const GroupTimes& group : profile.groups) {
    json["groups"].push_back({{"id", group.id},
                              {"name", group.name},
                              {"forward_ms", group.forwardMs},
                              {"input_gradient_ms", group.inputGradientMs},
                              {"weight_gradient_ms", group.weightGradientMs},
                              {"update_ms", group.updateMs},
                              {"spread", group.spread}});
    if (group.earlyUpdateMs) json["groups"].back()["early_update_ms"] = *group.earlyUpdateMs;
  }
  if (!profile.kernels.empty()) json["kernels"] = nlohmann::ordered_json::array();
  for (const KernelTime& time : profile.kernels) {
    json["kernels"].push_back(
        {{"kernel", time.kernel}, {"method", time.method}, {"algorithm", time.algorithm}, {"ms", time.ms}});
    if (time.workspaceBytes > 0) json["kernels"].back()["workspace_bytes"] = time.workspaceBytes;
  }
  if (!profile.keptInputs.empty()) json["kept_inputs"] = nlohmann::ordered_json::parse(toJson(profile.keptInputs));
  // Names of nodes may hold any bytes.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

LinkProfile pdc::readLink(const JsonNode& node) {
  node.allow({"latency_s", "bandwidth_bytes_per_s", "core_s_per_byte"});
  LinkProfile link{node["latency_s"].nonNegative(), node["bandwidth_bytes_per_s"].nonNegative()};
  if (const std::optional<JsonNode> core = node.find("core_s_per_byte")) link.coreSPerByte = core->nonNegative();
  return link;
}

void pdc::readKernelTimes(const JsonNode& root, std::vector<KernelTime>& times) {
  const std::optional<JsonNode> list = root.find("kernels");
  if (!list) return;
  std::set<std::vector<std::string>> seen;
  for (const JsonNode& node : list->elements()) {
    node.allow({"kernel", "method", "algorithm", "ms", "workspace_bytes"});
    KernelTime& time = times.emplace_back(KernelTime{.kernel = node["kernel"].text(),
                                                     .method = node["method"].text(),
                                                     .algorithm = node["algorithm"].text(),
                                                     .ms = node["ms"].nonNegative()});
    if (const std::optional<JsonNode> workspace = node.find("workspace_bytes"))
      time.workspaceBytes = workspace->bytes();
    if (!seen.insert({time.kernel, time.method, time.algorithm}).second)
      node.error() << "'" << time.algorithm << "' of '" << time.method << "' of this kernel has a time already";
  }
}

Expected<Profile> pdc::profileFromJson(const std::string& text, const std::string& file, Diagnostics& diags) {
  Expected<JsonDocument> document = JsonDocument::parse(text, file, diags);
  if (!document) return failure;
  const JsonNode root = document->root();
  root.allow({"pdc", "source", "model_hash", "device", "clock_mhz", "reserved_bytes", "busy_cores", "split_backward",
              "step_ms", "update_ms", "data_ms", "accumulate_ms", "link", "groups", "kernels", "kept_inputs"});
  Profile profile{.version = root["pdc"].text(),
                  .source = root["source"].oneOf({"measured", "analytic"}),
                  .modelHash = root["model_hash"].text(),
                  .device = root["device"].text(),
                  .clockMhz = {},
                  .groups = {},
                  .stepMs = root["step_ms"].nonNegative(),
                  .updateMs = root["update_ms"].nonNegative(),
                  .link = {},
                  .kernels = {}};
  if (const std::optional<JsonNode> sum = root.find("accumulate_ms")) profile.accumulateMs = sum->nonNegative();
  if (const std::optional<JsonNode> clock = root.find("clock_mhz")) profile.clockMhz = clock->nonNegative();
  if (const std::optional<JsonNode> reserved = root.find("reserved_bytes")) profile.reservedBytes = reserved->bytes();
  if (const std::optional<JsonNode> busy = root.find("busy_cores")) profile.busyCores = busy->integer(1, 1 << 20);
  if (const std::optional<JsonNode> split = root.find("split_backward")) profile.splitBackward = split->boolean();
  if (const std::optional<JsonNode> data = root.find("data_ms")) profile.dataMs = data->nonNegative();
  if (const std::optional<JsonNode> link = root.find("link")) {
    profile.link = readLink(*link);
    if (document->ok() && profile.link->bandwidthBytesPerS == 0)
      (*link)["bandwidth_bytes_per_s"].error().help("measure again: --profile=measure")
          << "expected a bandwidth above 0, got 0";
  }
  for (const JsonNode& node : root["groups"].elements()) {
    node.allow({"id", "name", "forward_ms", "input_gradient_ms", "weight_gradient_ms", "update_ms", "spread",
                "early_update_ms"});
    const auto expectedId = static_cast<std::int64_t>(profile.groups.size());
    profile.groups.push_back({.id = static_cast<int>(node["id"].integer(expectedId, expectedId)),
                              .name = node["name"].text(),
                              .forwardMs = node["forward_ms"].nonNegative(),
                              .inputGradientMs = node["input_gradient_ms"].nonNegative(),
                              .weightGradientMs = node["weight_gradient_ms"].nonNegative(),
                              .updateMs = node["update_ms"].nonNegative(),
                              .spread = node["spread"].nonNegative()});
    if (const std::optional<JsonNode> early = node.find("early_update_ms"))
      profile.groups.back().earlyUpdateMs = early->nonNegative();
  }
  readKernelTimes(root, profile.kernels);
  if (const std::optional<JsonNode> kept = root.find("kept_inputs")) profile.keptInputs = readKeptInputs(*kept);
  if (!document->ok()) return failure;
  return profile;
}

std::string pdc::profileMismatch(const Profile& profile, const std::string& modelHash, std::size_t groups,
                                 const std::string& version) {
  if (profile.modelHash != modelHash)
    return "the profile is of a model with hash " + profile.modelHash + ", this one with its batch size has hash " +
           modelHash;
  if (profile.version != version) return "the profile was made by pdc " + profile.version + ", this is pdc " + version;
  if (profile.groups.size() != groups)
    return "the profile has " + std::to_string(profile.groups.size()) + " fusion groups, the model has " +
           std::to_string(groups);
  return {};
}

std::string pdc::hashOf(const Graph& graph) {
  std::string text = print(graph) + "\n";
  for (const Value* value : graph.parameterValues())
    text += value->parameter()->name + " " + toString(value->type()) + "\n" +
            std::to_string(static_cast<int>(value->parameter()->role)) + "\n";
  const std::uint64_t hash = pdcrt::hashOf(text);
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[(hash >> shift) & 15];
  return digits;
}

int pdc::groupCount(const Graph& graph) {
  int last = -1;
  for (const auto& operation : graph.operations()) last = std::max(last, operation->group);
  return last + 1;
}

std::vector<std::string> pdc::groupNames(const Graph& graph) {
  std::vector<std::string> names(static_cast<std::size_t>(groupCount(graph)));
  std::vector<std::set<std::string>> seen(names.size());
  for (const auto& operation : graph.operations()) {
    const std::string& node = operation->location.node;
    if (operation->group < 0 || node.empty()) continue;
    const auto group = static_cast<std::size_t>(operation->group);
    if (operation->phase != Phase::forward && seen[group].empty())
      names[group] = node + ", weight gradient"; // the last operation's, in a group of such
    else if (operation->phase == Phase::forward && seen[group].insert(node).second)
      names[group] += (names[group].empty() ? "" : ", ") + node;
  }
  return names;
}

double pdc::estimatedMs(const Operation& operation, const DeviceKind& device) {
  const Cost cost = costOf(operation);
  return 1e3 * std::max(cost.flops / device.f32Flops, cost.bytes / device.memoryBandwidthBytesPerS);
}

Profile pdc::analyticProfile(const Graph& graph, const DeviceKind& device, const std::string& version) {
  Profile profile = estimatedTimes(graph, device, version);
  profile.modelHash = hashOf(graph);
  return profile;
}

Profile pdc::estimatedTimes(const Graph& graph, const DeviceKind& device, const std::string& version) {
  Profile profile{.version = version,
                  .source = "analytic",
                  .modelHash = {},
                  .device = device.name,
                  .groups = std::vector<GroupTimes>(static_cast<std::size_t>(groupCount(graph)))};
  const std::vector<std::string> names = groupNames(graph);
  for (std::size_t g = 0; g < profile.groups.size(); ++g)
    profile.groups[g].id = static_cast<int>(g), profile.groups[g].name = names[g];
  std::set<const Parameter*> updated;
  for (const auto& operation : graph.operations()) {
    if (operation->group < 0) continue;
    GroupTimes& times = profile.groups[static_cast<std::size_t>(operation->group)];
    const double ms = estimatedMs(*operation, device);
    (operation->phase == Phase::forward         ? times.forwardMs
     : operation->phase == Phase::inputGradient ? times.inputGradientMs
                                                : times.weightGradientMs) += ms;
    for (const Value* operand : operation->operands())
      if (operand && operand->parameter() && operand->parameter()->role == ParameterRole::trained &&
          updated.insert(operand->parameter()).second)
        times.updateMs += 1e3 * 3 * static_cast<double>(operand->type().bytes()) / device.memoryBandwidthBytesPerS;
  }
  for (const GroupTimes& times : profile.groups) {
    profile.stepMs += times.forwardMs + times.inputGradientMs + times.weightGradientMs;
    profile.updateMs += times.updateMs;
  }
  return profile;
}
