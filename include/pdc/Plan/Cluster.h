// The machines: devices in levels, from the inside out.
#pragma once

#include "pdc/Support/Expected.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pdc {

class Diagnostics;

/// What collectives of a team took over a link: latencyS, and the bytes that a member sends over the bandwidth.
struct TeamLink {
  std::int64_t members = 2;
  double latencyS = 0, bandwidthBytesPerS = 0;
};

/// `count` components of the level inside share links of this bandwidth (one component's link to the level, per
/// direction) and one-way latency.
struct ClusterLevel {
  std::string name;
  std::int64_t count = 1;
  double bandwidthBytesPerS = 0;
  double latencyS = 0;
  /// Measured for teams of neighbouring components: all-reduces, and exchanges of parts (all-to-alls). One for each
  /// number of members, ascending; other numbers take what follows from the link.
  std::vector<TeamLink> teamSums = {}, teamExchanges = {};
};

struct DeviceKind {
  std::string name;
  std::int64_t memoryBytes = 0;
  std::int64_t reservedBytes = 0; ///< of it not for the arena: context, code, libraries
  double speed = 1;               ///< times divide by this
  double f32Flops = 0;            ///< peak, for the analytic model
  double memoryBandwidthBytesPerS = 0;
  std::int64_t cores = 0; ///< cores of the machine that the devices share; 0: a device has its own
  /// What a byte that it sends or receives takes from its computing, at speed 1; 0 where others move bytes. The same of
  /// all devices.
  double coreSPerByte = 0;
};

/// So many equal devices, neighbours among the cluster's leaves.
struct DeviceGroup {
  DeviceKind device;
  std::int64_t count = 0;
};

/// Levels from the inside out; the leaves are devices, numbered from 0.
struct Cluster {
  std::vector<ClusterLevel> levels;
  DeviceKind device;                ///< of every leaf, unless `devices` says otherwise
  std::vector<DeviceGroup> devices; ///< when they differ: the leaves in order, counts adding up to deviceCount()

  static constexpr std::int64_t mostDevices = 1 << 20; ///< that a cluster file may have
  std::int64_t deviceCount() const;

  /// The device at a leaf.
  const DeviceKind& deviceAt(std::int64_t leaf) const;
};

/// `devices` equal devices of a kind that the built-in table knows ("cpu", "V100-16GB", …), one level.
Expected<Cluster> flatCluster(std::int64_t devices, const std::string& kind, Diagnostics& diags);

std::string toJson(const Cluster& cluster);
Expected<Cluster> clusterFromJson(const std::string& text, const std::string& file, Diagnostics& diags);

} // namespace pdc
