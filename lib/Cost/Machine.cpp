#include "pdc/Cost/Machine.h"

#include <algorithm>
#include <limits>
#include <numeric>

using namespace pdc;

std::vector<DeviceClass> pdc::deviceClasses(const Cluster& cluster, const PlannerOptions& options) {
  auto limitOf = [&](const DeviceKind& kind) {
    return options.memoryBytes > 0 ? options.memoryBytes : kind.memoryBytes - kind.reservedBytes;
  };
  std::vector<DeviceClass> classes;
  std::int64_t leaf = 0;
  auto add = [&](const DeviceKind& kind, std::int64_t count) {
    auto same = std::find_if(classes.begin(), classes.end(), [&](const DeviceClass& c) {
      return c.speed == kind.speed && c.memoryBytes == limitOf(kind);
    });
    if (same == classes.end()) same = classes.insert(same, DeviceClass{kind.speed, limitOf(kind), {}});
    same->leaves.resize(same->leaves.size() + static_cast<std::size_t>(count));
    std::iota(same->leaves.end() - count, same->leaves.end(), leaf);
    leaf += count;
  };
  for (const DeviceGroup& group : cluster.devices) add(group.device, group.count);
  if (leaf < cluster.deviceCount()) add(cluster.device, cluster.deviceCount() - leaf);
  return classes;
}

std::int64_t pdc::memoryLimit(const Cluster& cluster) {
  return deviceClasses(cluster, {}).front().memoryBytes;
}

Machine::Machine(const Cluster& cluster, const PlannerOptions& options) : classes_(deviceClasses(cluster, options)) {
  constexpr double unlimited = std::numeric_limits<double>::infinity();
  double slowest = unlimited, outside = unlimited, latency = 0;
  for (const ClusterLevel& level : cluster.levels) {
    inside_.push_back(leaves_);
    leaves_ *= level.count;
    double bandwidth = level.bandwidthBytesPerS > 0 ? level.bandwidthBytesPerS / 1e3 : unlimited;
    bytesPerMs_.push_back(bandwidth);
    routeBytesPerMs_.push_back(slowest = std::min(slowest, bandwidth));
    if (outsideBytesPerMs_.empty())
      outsideBytesPerMs_.push_back(unlimited);
    else
      outsideBytesPerMs_.push_back(outside = std::min(outside, bandwidth));
    routeLatencyMs_.push_back(latency = std::max(latency, 1e3 * level.latencyS));
  }
  machineSize_ = cluster.levels.empty() ? 1 : cluster.levels[0].count;
  if (cluster.devices.empty()) {
    cores_ = {cluster.device.cores};
  } else {
    for (std::int64_t leaf = 0; leaf < leaves_; leaf += machineSize_) cores_.push_back(cluster.deviceAt(leaf).cores);
  }
  sharesCores_ = std::any_of(cores_.begin(), cores_.end(), [](std::int64_t cores) { return cores > 0; });
  direct_ = cluster.deviceAt(0).name == "cpu";
  coreMsPerByte_ = 1e3 * cluster.deviceAt(0).coreSPerByte;
}

std::int64_t Machine::allCores() const {
  if (!sharesCores_) return 0;
  std::int64_t all = 0;
  for (std::int64_t machine = 0; machine <= machineOf(leaves_ - 1); ++machine) {
    if (coresOf(machine) <= 0) return 0;
    all += coresOf(machine);
  }
  return all;
}
