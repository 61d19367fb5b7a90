// The cluster as the cost model sees it: which links two leaves are apart, and how much time they take.
#pragma once

#include "pdc/Cost/CostModel.h"

#include <algorithm>

namespace pdc {

/// Component c of level j holds the leaves [c·inside(j), (c+1)·inside(j)); those of level 0 are the devices. Each has
/// one link up and one down.
class Machine {
public:
  Machine(const Cluster& cluster, const PlannerOptions& options);

  int levels() const { return static_cast<int>(inside_.size()); }

  /// Leaves inside one component of a level.
  std::int64_t inside(int level) const { return inside_[level]; }
  std::int64_t componentOf(std::int64_t leaf, int level) const { return leaf / inside_[level]; }
  std::int64_t components(int level) const { return leaves_ / inside_[level]; }

  /// The level at which two different leaves meet: all links up to it lie between them.
  int meet(std::int64_t a, std::int64_t b) const {
    int level = 0;
    while (level + 1 < levels() && componentOf(a, level + 1) != componentOf(b, level + 1)) ++level;
    return level;
  }

  /// Members of a team tell each other their parts, of so many bytes each.
  double gatherMs(int members, double bytes) const {
    return levels() == 0 ? 0 : routeLatencyMs_[0] + (members - 1) * bytes / bytesPerMs_[0];
  }

  /// Of one link of a level; infinite where nothing limits it.
  double bytesPerMs(int level) const { return bytesPerMs_[level]; }

  /// Of the way between leaves that meet at a level: the smallest bandwidth, the largest latency.
  double routeBytesPerMs(int level) const { return routeBytesPerMs_[level]; }
  double routeLatencyMs(int level) const { return routeLatencyMs_[level]; }
  double transferMs(int level, double bytes) const { return routeLatencyMs_[level] + bytes / routeBytesPerMs_[level]; }
  /// The same between two teams whose members lie on one machine each: the busiest member sends, or receives, `bytes`
  /// of `ofAll`.
  double transferMs(int level, double bytes, double ofAll) const {
    return routeLatencyMs_[level] + std::max(bytes / bytesPerMs_[0], ofAll / outsideBytesPerMs_[level]);
  }

  /// Ranks in one component of the innermost level share its cores. 0: every rank has its own.
  std::int64_t coresOf(std::int64_t machine) const { return cores_.size() == 1 ? cores_[0] : cores_[machine]; }
  std::int64_t machineOf(std::int64_t leaf) const { return leaf / machineSize_; }
  bool sharesCores() const { return sharesCores_; }
  /// Leaves in one component of the innermost level.
  std::int64_t machineSize() const { return machineSize_; }

  /// Cores of all machines together; 0 if there is a machine whose ranks share none.
  std::int64_t allCores() const;

  /// What bytes that a rank sends or receives take from its computing, at speed 1.
  double coreMs(double bytes) const { return coreMsPerByte_ * bytes; }
  /// The same of one all-reduce: it sends and receives 2(R-1)/R of the parameters.
  double allReduceCoreMs(std::int64_t parameterBytes, int replicas) const {
    return coreMs(4.0 * (replicas - 1) / replicas * static_cast<double>(parameterBytes));
  }

  /// Whether all-reduces exchange directly (every replica with every other) instead of around a ring.
  bool exchangesDirectly() const { return direct_; }

  const std::vector<DeviceClass>& classes() const { return classes_; }

private:
  std::int64_t leaves_ = 1, machineSize_ = 1;
  std::vector<std::int64_t> inside_;
  std::vector<double> bytesPerMs_, routeBytesPerMs_, routeLatencyMs_;
  std::vector<double> outsideBytesPerMs_; ///< as routeBytesPerMs_, without the links of devices
  std::vector<std::int64_t> cores_;       ///< of each machine, or one for all
  bool sharesCores_ = false, direct_ = false;
  double coreMsPerByte_ = 0;
  std::vector<DeviceClass> classes_;
};

} // namespace pdc
