// The cluster file and the table of known devices.
#include "pdc/Plan/Cluster.h"

#include "pdc/Plan/PlanJson.h"
#include "pdcrt/Part.h"

#include <algorithm>

using namespace pdc;
using nlohmann::ordered_json;

namespace {

struct KnownDevice {
  DeviceKind device;
  double linkBytesPerS; ///< of one device to its neighbours in the same server, per direction
  double linkLatencyS;
};

} // namespace

/// Vendors' numbers (peak of f32 without tensor cores). "cpu" is one core with what its MPI moves through shared
/// memory.
static const std::vector<KnownDevice>& knownDevices() {
  constexpr std::int64_t GB = 1'000'000'000;
  auto device = [](const char* name, std::int64_t memory, std::int64_t reserved, double flops, double bandwidth) {
    DeviceKind kind;
    kind.name = name;
    kind.memoryBytes = memory;
    kind.reservedBytes = reserved;
    kind.f32Flops = flops;
    kind.memoryBandwidthBytesPerS = bandwidth;
    return kind;
  };
  static const std::vector<KnownDevice> table = {
      {device("cpu", 16 * GB, 1 * GB, 100e9, 10e9), 5e9, 5e-5},
      {device("V100-16GB", 16 * GB, 1 * GB, 15.7e12, 900e9), 10e9, 5e-6},
      {device("A100-80GB", 80 * GB, 2 * GB, 19.5e12, 2039e9), 300e9, 5e-6},
      {device("H100", 80 * GB, 2 * GB, 67e12, 3350e9), 450e9, 5e-6},
      {device("H200", 141 * GB, 2 * GB, 67e12, 4800e9), 450e9, 5e-6},
  };
  return table;
}

static const KnownDevice* findKnown(const std::string& name) {
  const std::vector<KnownDevice>& table = knownDevices();
  auto found = std::find_if(table.begin(), table.end(), [&](const KnownDevice& k) { return k.device.name == name; });
  return found == table.end() ? nullptr : &*found;
}

std::int64_t Cluster::deviceCount() const {
  std::int64_t count = 1;
  for (const ClusterLevel& level : levels) count *= level.count;
  return count;
}

const DeviceKind& Cluster::deviceAt(std::int64_t leaf) const {
  for (const DeviceGroup& group : devices) {
    if (leaf < group.count) return group.device;
    leaf -= group.count;
  }
  return device;
}

Expected<Cluster> pdc::flatCluster(std::int64_t devices, const std::string& kind, Diagnostics& diags) {
  const KnownDevice* known = findKnown(kind);
  if (!known) {
    std::string names;
    for (const KnownDevice& k : knownDevices()) names += (names.empty() ? "" : ", ") + k.device.name;
    return diags.error({}).help("describe it in a cluster file (--cluster=FILE), or take one of " + names)
           << "no device named '" << kind << "' is known";
  }
  if (devices < 1) return diags.error({}).help("give at least --devices=1") << "expected a device, got " << devices;
  Cluster cluster;
  cluster.levels.push_back({"machine", devices, known->linkBytesPerS, known->linkLatencyS});
  cluster.device = known->device;
  return cluster;
}

static ordered_json deviceToJson(const DeviceKind& device) {
  constexpr std::int64_t most = std::int64_t{1} << 53; // exact in any reader of JSON, and as good as no limit
  ordered_json json = {{"name", device.name},
                       {"memory_bytes", std::min(device.memoryBytes, most)},
                       {"reserved_bytes", std::min(device.reservedBytes, most)},
                       {"speed", device.speed},
                       {"flops", {{"f32", device.f32Flops}}},
                       {"memory_bandwidth_bytes_per_s", device.memoryBandwidthBytesPerS}};
  json["cores"] = device.cores > 0 ? ordered_json(device.cores) : ordered_json(nullptr);
  if (device.coreSPerByte > 0) json["core_s_per_byte"] = device.coreSPerByte;
  return json;
}

ordered_json pdc::clusterToJson(const Cluster& cluster) {
  ordered_json levels = ordered_json::array();
  for (const ClusterLevel& level : cluster.levels) {
    levels.push_back({{"name", level.name},
                      {"count", level.count},
                      {"bandwidth_bytes_per_s", level.bandwidthBytesPerS},
                      {"latency_s", level.latencyS}});
    for (const auto& [key, links] : {std::pair("team_sums", &level.teamSums), {"team_exchanges", &level.teamExchanges}})
      for (const TeamLink& link : *links)
        levels.back()[key].push_back({{"members", link.members},
                                      {"latency_s", link.latencyS},
                                      {"bandwidth_bytes_per_s", link.bandwidthBytesPerS}});
  }
  ordered_json json = {{"levels", std::move(levels)}};
  if (cluster.devices.empty()) json["device"] = deviceToJson(cluster.device);
  for (const DeviceGroup& group : cluster.devices) {
    ordered_json device = deviceToJson(group.device);
    device["count"] = group.count;
    json["devices"].push_back(std::move(device));
  }
  return json;
}

static DeviceKind readDevice(const JsonNode& node) {
  node.allow({"name", "count", "memory_bytes", "reserved_bytes", "speed", "flops", "memory_bandwidth_bytes_per_s",
              "cores", "core_s_per_byte"});
  DeviceKind device;
  device.name = node["name"].text();
  if (const KnownDevice* known = findKnown(device.name))
    device = known->device;
  else if (!node.find("memory_bytes"))
    node["memory_bytes"].bytes(); // reports that it is missing
  device.memoryBytes = optionalBytes(node, "memory_bytes", device.memoryBytes);
  device.reservedBytes = optionalBytes(node, "reserved_bytes", device.reservedBytes);
  device.memoryBandwidthBytesPerS =
      optionalNumber(node, "memory_bandwidth_bytes_per_s", device.memoryBandwidthBytesPerS);
  if (std::optional<JsonNode> speed = node.find("speed")) {
    device.speed = speed->nonNegative();
    if (device.speed == 0) speed->error() << "expected a speed above 0";
  }
  if (std::optional<JsonNode> flops = node.find("flops")) {
    flops->allow({"f32", "f16", "bf16"});
    device.f32Flops = optionalNumber(*flops, "f32", device.f32Flops);
  }
  if (std::optional<JsonNode> cores = node.find("cores")) device.cores = cores->integer(0, 1 << 20);
  device.coreSPerByte = optionalNumber(node, "core_s_per_byte", 0);
  if (device.reservedBytes > device.memoryBytes)
    node.error() << "reserved_bytes " << device.reservedBytes << " exceed memory_bytes " << device.memoryBytes;
  return device;
}

/// "team_sums" and "team_exchanges": a record for each number of members.
static std::vector<TeamLink> readTeamLinks(const JsonNode& level, const char* key) {
  std::vector<TeamLink> links;
  const std::optional<JsonNode> list = level.find(key);
  if (!list) return links;
  for (const JsonNode& element : list->elements()) {
    element.allow({"members", "latency_s", "bandwidth_bytes_per_s"});
    TeamLink& link = links.emplace_back();
    link.members = element["members"].integer(2, pdcrt::mostMembers);
    link.latencyS = element["latency_s"].nonNegative();
    link.bandwidthBytesPerS = element["bandwidth_bytes_per_s"].nonNegative();
    if (link.bandwidthBytesPerS == 0)
      element["bandwidth_bytes_per_s"].error().help("measure it: pdc-run --doctor, or leave the record out")
          << "expected a bandwidth above 0, got 0";
    if (links.size() > 1 && links[links.size() - 2].members >= link.members)
      element["members"].error().help("give one record for each number of members, the smallest first")
          << "a team of " << link.members << " comes behind one of " << links[links.size() - 2].members;
  }
  return links;
}

static ClusterLevel readLevel(const JsonNode& json, std::int64_t mostComponents) {
  json.allow({"name", "count", "bandwidth_bytes_per_s", "latency_s", "team_sums", "team_exchanges"});
  ClusterLevel level;
  level.name = optionalText(json, "name");
  level.count = json["count"].integer(1, mostComponents);
  level.bandwidthBytesPerS = json["bandwidth_bytes_per_s"].nonNegative();
  if (level.count > 1 && level.bandwidthBytesPerS == 0)
    json.error().help("give the bandwidth of one component's link, in bytes per second")
        << "expected a bandwidth above 0 between " << level.count << " components, got 0";
  level.latencyS = optionalNumber(json, "latency_s");
  level.teamSums = readTeamLinks(json, "team_sums");
  level.teamExchanges = readTeamLinks(json, "team_exchanges");
  return level;
}

/// "devices": how many of each kind, in the order of the leaves.
static std::vector<DeviceGroup> readDevices(const JsonNode& json, std::int64_t leaves) {
  std::vector<DeviceGroup> groups;
  std::int64_t sum = 0;
  for (const JsonNode& element : json.elements()) {
    groups.push_back({readDevice(element), element["count"].integer(1, Cluster::mostDevices)});
    sum += groups.back().count;
    if (groups.back().device.coreSPerByte != groups.front().device.coreSPerByte)
      element.error().help("give all devices the same, or none any")
          << "core_s_per_byte is " << groups.back().device.coreSPerByte << ", that of the first device is "
          << groups.front().device.coreSPerByte;
  }
  if (sum != leaves)
    json.error().help("the counts of \"devices\" add up to the product of the counts of \"levels\"")
        << "the levels have " << leaves << " devices, their kinds are given for " << sum;
  return groups;
}

Cluster pdc::readCluster(const JsonNode& node) {
  node.allow({"levels", "device", "devices"});
  Cluster cluster;
  JsonNode levels = node["levels"];
  for (const JsonNode& element : levels.elements())
    cluster.levels.push_back(readLevel(element, Cluster::mostDevices / cluster.deviceCount()));
  if (cluster.levels.empty()) levels.error() << "expected at least one level";
  std::optional<JsonNode> devices = node.find("devices");
  if (!devices) {
    cluster.device = readDevice(node["device"]);
    if (std::optional<JsonNode> count = node["device"].find("count"))
      count->error().help("only \"devices\" have counts") << "the levels say how many devices there are";
    return cluster;
  }
  if (std::optional<JsonNode> device = node.find("device"))
    device->error().help("give \"device\" if all are equal, \"devices\" if not") << "expected one of them, got both";
  cluster.devices = readDevices(*devices, cluster.deviceCount());
  if (!cluster.devices.empty()) cluster.device = cluster.devices.front().device;
  return cluster;
}

std::string pdc::toJson(const Cluster& cluster) {
  return pretty(clusterToJson(cluster));
}

Expected<Cluster> pdc::clusterFromJson(const std::string& text, const std::string& file, Diagnostics& diags) {
  Expected<JsonDocument> document = JsonDocument::parse(text, file, diags);
  if (!document) return failure;
  Cluster cluster = readCluster(document->root());
  if (!document->ok()) return failure;
  return cluster;
}
