// Small random problems for the planner, and their text form: one JSON object per line.
#pragma once

#include "pdc/Cost/CostModel.h"
#include "pdc/Plan/PolicyText.h"
#include "pdc/Planner/Planner.h"
#include "pdc/Support/JsonText.h"

#include <algorithm>
#include <optional>
#include <random>
#include <string>

namespace pdc {

struct PlannerInstance {
  CostGraph graph;
  Cluster cluster;
  PlannerOptions options;
};

class RandomInstances {
public:
  explicit RandomInstances(std::uint64_t seed)
      : random_(seed), buckets_(seed), cores_(seed), late_(seed), frozen_(seed), shards_(seed) {}

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }

  PlannerInstance next() {
    PlannerInstance instance{graph(), cluster(), options()};
    if (cores_() % 3 == 0) instance.cluster.device.coreSPerByte = static_cast<double>(1 + cores_() % 12) * 2.5e-7;
    if (late_() % 3 == 0)
      for (CostNode& node : instance.graph.nodes) node.lateUpdateMs = static_cast<double>(late_() % 5) / 2;
    if (frozen_() % 3 == 0) freeze(instance.graph);
    if (between(0, 9) == 0) makeUnequal(instance.cluster);
    return instance;
  }

  CostGraph graph() {
    CostGraph graph;
    std::int64_t nodes = between(1, 8), density = between(1, 5);
    const bool coarse = between(0, 1); // few different times, so that plans tie
    for (std::int64_t v = 0; v < nodes; ++v) {
      CostNode node;
      node.name = "n" + std::to_string(v);
      node.forwardMs = time(coarse);
      node.inputGradientMs = time(coarse);
      node.weightGradientMs = between(0, 1) ? time(coarse) : 0;
      node.updateMs = static_cast<double>(between(0, 4)) / 8;
      node.parameterBytes = between(0, 3) * 100;
      node.gradientBytes = node.parameterBytes * between(1, 2);
      node.savedBytes = between(0, 5) * 100;
      node.scratchBytes = between(0, 2) * 50;
      node.workspaceBytes = between(0, 2) * 30;
      node.handoverBytes = between(0, 2) * 40;
      graph.nodes.push_back(node);
    }
    for (std::int64_t v = 0; v + 1 < nodes; ++v) {
      CostTensor tensor;
      for (std::int64_t user = v + 1; user < nodes; ++user)
        if (between(0, density) == 0 || (user == v + 1 && between(0, 2) > 0)) tensor.to.push_back(user);
      if (tensor.to.empty()) continue;
      tensor.from = v;
      tensor.name = "t" + std::to_string(v);
      tensor.bytes = between(0, 8) * 100;
      tensor.hasGradient = between(0, 4) > 0;
      graph.tensors.push_back(tensor);
    }
    if (between(0, 3) == 0) {
      std::int64_t first = between(0, nodes - 1), last = between(first, nodes - 1);
      graph.nodes[static_cast<std::size_t>(first)].colour = graph.nodes[static_cast<std::size_t>(last)].colour = 3;
    }
    if (between(0, 4) == 0) {
      CostSharedParameter shared{"tied", {}, between(1, 6) * 100};
      for (std::int64_t v = 0; v < nodes; ++v)
        if (between(0, 2) == 0) shared.nodes.push_back(v);
      if (shared.nodes.size() > 1) graph.sharedParameters.push_back(shared);
    }
    return graph;
  }

  Cluster cluster() {
    static const std::vector<std::vector<std::int64_t>> shapes = {
        {1},    {2},    {2},    {3},    {3},       {4}, {4},    {5},    {6},      {1, 4},
        {2, 2}, {2, 2}, {3, 2}, {2, 3}, {2, 1, 2}, {8}, {4, 2}, {2, 4}, {2, 2, 2}};
    Cluster cluster;
    for (std::int64_t count :
         shapes[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(shapes.size()) - 1))])
      cluster.levels.push_back({"level" + std::to_string(cluster.levels.size()), count,
                                static_cast<double>(between(1, 10)) * 1e5,
                                between(0, 2) ? 0 : static_cast<double>(between(1, 30)) * 1e-5});
    cluster.device.name = between(0, 3) ? "test" : "cpu"; // a CPU reduces by direct exchange
    cluster.device.memoryBytes = std::int64_t{1} << 40;
    cluster.device.reservedBytes = between(0, 1) * 1000;
    cluster.device.speed = static_cast<double>(between(1, 4)) / 2;
    if (between(0, 7) == 0) cluster.device.cores = between(1, 3);
    return cluster;
  }

  PlannerOptions options() {
    PlannerOptions options;
    options.sync = between(0, 2) ? SyncPolicy::overlap : SyncPolicy::barrier;
    options.weights = between(0, 3)   ? pdcrt::WeightPolicy::stash
                      : between(0, 1) ? pdcrt::WeightPolicy::latest
                                      : pdcrt::WeightPolicy::verticalSync;
    options.warmupPolicy = between(0, 5) ? WarmupPolicy::hide : WarmupPolicy::paper;
    options.straight = between(0, 5) == 0;
    options.optimizerStatePerParameterByte = static_cast<double>(between(0, 2));
    options.recompute = between(0, 4)   ? RecomputePolicy::none
                        : between(0, 2) ? RecomputePolicy::automatic
                                        : RecomputePolicy::all;
    const std::uint64_t shards = shards_();
    if (shards % 3 == 0) options.shard = ShardPolicy::optimizer;
    if (shards % 15 == 1) options.shard = ShardPolicy::automatic;
    if (buckets_() % 2) options.bucketBytes = static_cast<std::int64_t>(1 + buckets_() % 6) * 100;
    return options;
  }

  /// Parameters that never change: of single nodes, and one that several may use.
  void freeze(CostGraph& graph) {
    for (CostNode& node : graph.nodes) node.frozenBytes = static_cast<std::int64_t>(frozen_() % 4) * 150;
    CostFrozenParameter copied{"table", {}, static_cast<std::int64_t>(1 + frozen_() % 6) * 100};
    for (std::size_t v = 0; v < graph.nodes.size(); ++v)
      if (frozen_() % 3 == 0) copied.nodes.push_back(static_cast<std::int64_t>(v));
    if (copied.nodes.size() > 1) graph.frozenParameters.push_back(copied);
  }

  /// Two or three kinds of devices instead of one.
  void makeUnequal(Cluster& cluster) {
    std::int64_t left = cluster.deviceCount();
    for (int kind = 0; left > 0; ++kind) {
      DeviceGroup group{cluster.device, kind == 2 ? left : between(1, left)};
      group.device.name += std::to_string(kind);
      group.device.speed = static_cast<double>(between(1, 4)) / 2;
      cluster.devices.push_back(group);
      left -= group.count;
    }
  }

private:
  double time(bool coarse) { return static_cast<double>(coarse ? between(1, 3) * 8 : between(0, 40)) / 4; }

  std::mt19937_64 random_, buckets_, cores_, late_, frozen_, shards_;
};

inline void setMemory(Cluster& cluster, std::int64_t bytes) {
  cluster.device.memoryBytes = bytes + cluster.device.reservedBytes;
  for (DeviceGroup& group : cluster.devices) group.device.memoryBytes = bytes + group.device.reservedBytes;
}

/// One line: nodes, tensors and devices as arrays in the order of their records' fields. `best`: [time, load, peak
/// memory, bytes moved] of the best plan, null if there is none.
inline std::string toLine(const PlannerInstance& instance, const std::optional<PlanCost>& best) {
  using nlohmann::ordered_json;
  ordered_json json, nodes = ordered_json::array(), tensors = ordered_json::array();
  for (const CostNode& n : instance.graph.nodes) {
    nodes.push_back({n.forwardMs, n.inputGradientMs, n.weightGradientMs, n.updateMs, n.parameterBytes, n.gradientBytes,
                     n.savedBytes, n.scratchBytes, n.workspaceBytes, n.colour});
    if (n.handoverBytes > 0 || n.lateUpdateMs > 0) nodes.back().push_back(n.handoverBytes);
    if (n.lateUpdateMs > 0) nodes.back().push_back(n.lateUpdateMs);
  }
  for (const CostTensor& t : instance.graph.tensors) tensors.push_back({t.from, t.to, t.bytes, t.hasGradient});
  json["nodes"] = nodes;
  json["tensors"] = tensors;
  for (const CostSharedParameter& p : instance.graph.sharedParameters) json["shared"].push_back({p.nodes, p.bytes});
  if (std::any_of(instance.graph.nodes.begin(), instance.graph.nodes.end(),
                  [](const CostNode& n) { return n.frozenBytes > 0; }))
    for (const CostNode& n : instance.graph.nodes) json["frozen"].push_back(n.frozenBytes);
  for (const CostFrozenParameter& p : instance.graph.frozenParameters) json["copied"].push_back({p.nodes, p.bytes});
  for (const ClusterLevel& l : instance.cluster.levels)
    json["levels"].push_back({l.count, l.bandwidthBytesPerS, l.latencyS});
  auto device = [](const DeviceKind& d) {
    ordered_json array = {d.name, d.memoryBytes, d.reservedBytes, d.speed, d.cores};
    if (d.coreSPerByte > 0) array.push_back(d.coreSPerByte);
    return array;
  };
  json["device"] = device(instance.cluster.device);
  for (const DeviceGroup& group : instance.cluster.devices)
    json["devices"].push_back({group.count, device(group.device)});
  const PlannerOptions& o = instance.options;
  json["options"] = {nameOf(o.sync), nameOf(o.weights),   o.warmupPolicy == WarmupPolicy::paper ? "paper" : "hide",
                     o.straight,     nameOf(o.recompute), o.optimizerStatePerParameterByte};
  if (o.bucketBytes != defaultBucketBytes || o.shard != ShardPolicy::none) json["options"].push_back(o.bucketBytes);
  if (o.shard != ShardPolicy::none) json["options"].push_back(nameOf(o.shard));
  json["best"] = nullptr;
  if (best) json["best"] = {best->timeMs, best->loadMs, best->peakMemoryBytes, best->bytesMoved};
  return json.dump();
}

inline PlannerInstance instanceOf(const std::string& line, std::optional<PlanCost>& best) {
  using nlohmann::ordered_json;
  const ordered_json json = ordered_json::parse(line);
  PlannerInstance result;
  for (const ordered_json& n : json["nodes"])
    result.graph.nodes.push_back({"n" + std::to_string(result.graph.nodes.size()), n[0], n[1], n[2], n[3], n[4], n[5],
                                  n[6], n[7], n[8], n[9], n.size() > 10 ? n[10].get<std::int64_t>() : 0,
                                  n.size() > 11 ? n[11].get<double>() : 0});
  for (const ordered_json& t : json["tensors"])
    result.graph.tensors.push_back(
        {"t" + std::to_string(t[0].get<int>()), t[0], t[1].get<std::vector<std::int64_t>>(), t[2], t[3]});
  if (json.contains("shared"))
    for (const ordered_json& p : json["shared"])
      result.graph.sharedParameters.push_back({"tied", p[0].get<std::vector<std::int64_t>>(), p[1]});
  if (json.contains("frozen"))
    for (std::size_t v = 0; v < result.graph.nodes.size(); ++v) result.graph.nodes[v].frozenBytes = json["frozen"][v];
  if (json.contains("copied"))
    for (const ordered_json& p : json["copied"])
      result.graph.frozenParameters.push_back({"table", p[0].get<std::vector<std::int64_t>>(), p[1]});
  for (const ordered_json& l : json["levels"])
    result.cluster.levels.push_back({"level" + std::to_string(result.cluster.levels.size()), l[0], l[1], l[2]});
  auto device = [](const ordered_json& d) {
    DeviceKind kind;
    kind.name = d[0];
    kind.memoryBytes = d[1];
    kind.reservedBytes = d[2];
    kind.speed = d[3];
    kind.cores = d[4];
    if (d.size() > 5) kind.coreSPerByte = d[5];
    return kind;
  };
  result.cluster.device = device(json["device"]);
  if (json.contains("devices"))
    for (const ordered_json& group : json["devices"]) result.cluster.devices.push_back({device(group[1]), group[0]});
  const ordered_json& o = json["options"];
  result.options.sync = policyNamed(syncPolicies, o[0].get<std::string>()).value();
  result.options.weights = policyNamed(weightPolicies, o[1].get<std::string>()).value();
  result.options.warmupPolicy = o[2] == "paper" ? WarmupPolicy::paper : WarmupPolicy::hide;
  result.options.straight = o[3];
  result.options.recompute = policyNamed(recomputePolicies, o[4].get<std::string>()).value();
  result.options.optimizerStatePerParameterByte = o[5];
  if (o.size() > 6) result.options.bucketBytes = o[6];
  if (o.size() > 7) result.options.shard = policyNamed(shardPolicies, o[7].get<std::string>()).value();
  best.reset();
  if (const ordered_json& b = json["best"]; !b.is_null()) best = PlanCost{true, b[0], b[1], b[2], b[3], {}};
  return result;
}

} // namespace pdc
