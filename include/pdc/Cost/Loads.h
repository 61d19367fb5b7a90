// Loads of every resource that a plan uses, whatever its warm-up. See pdc/Planner/CostModel.h for what each is.
#pragma once

#include "pdc/Cost/Pipeline.h"

namespace pdc {

enum class ResourceKind { device, allReduce, link, lane, cores, loop, batch };

/// A resource and the ms per minibatch that it is busy.
struct ResourceLoad {
  ResourceKind kind = ResourceKind::device;
  double ms = 0;
  int stage = 0;              ///< of device, allReduce, lane (its sender) and loop (its first)
  int other = 0;              ///< of lane (its receiver) and loop (its last)
  int level = 0;              ///< of link
  std::int64_t component = 0; ///< of link and cores
  bool up = false;            ///< of link
};

struct Loads {
  ResourceLoad largest; ///< of devices, all-reduces, links and lanes; the first in that order if several are
  ResourceLoad cores;
  std::int64_t bytesMoved = 0; ///< per minibatch
  /// Of each edge of the pipeline: the transfer of one minibatch, mean over the routes; 0 if the edge does not have
  /// that direction.
  std::vector<double> forwardMs, backwardMs;
};

/// `all`, if given, receives every load that may be the largest.
Loads loadsOf(const Pipeline& pipeline, const Machine& machine, std::vector<ResourceLoad>* all = nullptr);

/// Replicas [first, first + count) of a stage, which are in one component of a level.
struct Run {
  std::int64_t component = 0, first = 0, count = 0;
};

/// The runs of a stage's replicas at a level, in their order.
std::vector<Run> runsOf(const Pipeline& pipeline, int stage, const Machine& machine, int level);

/// What one all-reduce of a stage moves over the links of a level, in units of the stage's parameter bytes.
struct AllReduceUse {
  std::int64_t component = 0;
  double up = 0, down = 0;
};

/// What a batch of a stage whose weights lie in shards of some of its replicas moves over the links of a level, in the
/// same units (ShardTraffic.h).
std::vector<AllReduceUse> shardUses(const Pipeline& pipeline, int stage, const Machine& machine, int level);

/// `runs` at level `level`; a component may appear several times, with a part each.
std::vector<AllReduceUse> allReduceUses(const std::vector<Run>& runs, int replicas, bool directly);

} // namespace pdc
