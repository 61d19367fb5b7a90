// What a plan costs: time per minibatch and memory, as docs/Planning.md defines them for a flat cluster.
//
// Loads per minibatch, F and B of the whole stage, r = replicas, w = bytes of the stage's parameters:
//
//   device            (F + B + update) / r                  with d = 1, when the all-reduce overlaps
//                     (F + B + sync + update) / r           with d = 0, when the stage waits for it
//   all-reduce        sync / r,  sync = 2(r-1)·(w / (r·bandwidth) + latency)
//   link, each way    bytes that cross it / bandwidth / r; the all-reduce adds 2(r-1)/r·w
//   cores             Σ (F + B + update) / cores            where ranks share cores
//   loop s … u        (Σ_{t=s..u} (F_t + B_t) + Σ_{t=s..u-1} c_t) / ((w_s + 1)·r_s - w_u·r_u),  c_t there and back
//
// The time is the largest. Flushing schedules take, per batch of m, at least
//
//   max( Σ (F_t + B_t + c_t),  max_s( ceil(m/r_s)·(F_s + B_s) + Σ_{t<s} (F_t + B_t + c_t) ) ) + sync_0 + update_0
//   and ceil(m/r_s)·(F_s + B_s) + sync_s + update_s for each s
#pragma once

#include "pdc/Planner/Planner.h"

namespace pdc {

/// A cut of the program order: stage s holds the nodes from ends[s-1] (0 for the first) to before ends[s].
struct Partition {
  std::vector<std::int64_t> ends;
  std::vector<int> replicas;
};

/// The plan of a partition with everything but warm-up, memory and time. `withNames` false leaves out what is for
/// people.
Plan describePartition(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                       const Partition& partition, bool withNames = true);

/// Memory of one replica of each stage under the plan's warm-up: weights · versions + gradients · (d + 1) + optimizer
/// state + (saved and sent bytes) · (w + 1) + rings of the edges + scratch.
std::vector<std::int64_t> memoryOf(const Plan& plan, const PlannerOptions& options);

/// Memory that a stage may take on each device.
std::int64_t memoryLimit(const Cluster& cluster);

struct PlanCost {
  bool feasible = false;
  double timeMs = 0;                ///< per minibatch; of the bound above for flushing schedules
  double loadMs = 0;                ///< the same as if every rank had cores of its own
  std::int64_t peakMemoryBytes = 0; ///< of one device
  std::int64_t bytesMoved = 0;      ///< per minibatch, all-reduces included
  std::vector<int> warmup;          ///< for `hide` the analytic lower bound, or what fits into memory
};

PlanCost costOf(const Plan& described, const PlannerOptions& options);

/// The time of `plan` with the warm-up that it states.
PlanCost costWithWarmup(const Plan& plan, const PlannerOptions& options);

} // namespace pdc
