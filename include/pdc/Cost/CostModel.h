// pdc's own cost model (--cost-model=pdc, docs/PlannerModels.md): what a partition costs, in time per minibatch and
// memory.
//
// A partition is a chain of differences of down-sets of the cost graph: stage s needs nothing from stages after it.
// Ranks are numbered stage by stage, replica by replica, and placed on the cluster's leaves in that order; with unequal
// devices every class of devices has leaves of its own, which are taken in order (within a stage: class by class).
//
// Notation: R = replicas of a stage; F, B, U = its forward, backward and update on its slowest device, in ms; with
// recomputation B holds one more F. |w| = bytes of its parameters, those shared with later stages included. Replica
// b mod R computes minibatch b. A transfer between two leaves crosses the links of the levels up to the one where they
// meet: up from the sender's components, down to the receiver's. It takes the largest of their latencies plus the
// bytes over the smallest of their bandwidths.
//
// A stage may be divided over teams of t members, each on a leaf of its own, neighbours on one machine. Then F, B, U
// and |w| are those of a member; links beyond those of devices carry what all members send, and cores are kept busy by
// each. Member j of a receiver gets a value from member j mod t of the sender.
//
// Where sending and receiving take time k per byte of the core that computes (DeviceKind::coreSPerByte over its speed),
// F holds k · the bytes of values that a replica receives and sends per minibatch, B those of their gradients, and U
// those of an all-reduce, a = k · 4(R-1)/R · |w|. Not counted: what shared parameters exchange.
//
// Loads are per minibatch; the time is the largest of:
//
//   device          (F + B + U + e) / R                 e: what is exposed of the all-reduce, 0 if d = 1, else
//                                                       max(0, max_i(r_i + Σ_{k>=i} y_k) - B): bucket i of the
//                                                       gradients (pdc/Plan/GradientBuckets.h) is final r_i after the
//                                                       backward began, its share of sync - a is y_i
//                                                       where replicas share the optimizer (ZeRO, arXiv 1910.02054), U
//                                                       is 1/R of an update, and a; sync - a counts in e by half, and
//                                                       the other half is added: it gathers what was updated
//   all-reduce      sync / R                            sync = 2(R-1)·latency + busiest link's bytes / bandwidth
//   link direction  bytes that cross it / bandwidth     of each component of each level; transfers, all-reduces and
//                                                       shared parameters together
//   lane            Σ transfers of one edge of stages, one direction, at one rank, each with its latency
//   cores           Σ (F + B + U) / cores               of the ranks in one component of the innermost level; plus
//                                                       e / R if there is one stage: its replicas wait all at once
//   loop s … u      (f(s,u) + b(u,s) + U_s + e_s) / room,
//                   room = (w_s + 1)·R_s - w_u·R_u  if d_s = 1,   R_s·(w_s + 1 - ceil(w_u·R_u / R_s))  if d_s = 0
//   loop with sync  (f(s,u) + b(u,s) + U_s + sync_s) / (R_s·(w_s + 2 - ceil(w_u·R_u / R_s)))   if d_s = 1
//
// f(s,u) is the longest way of a value from stage s to stage u, computation included: Σ F of the stages and the
// transfers between them (mean over the routes of minibatches); b(u,s) the same for the gradient on its way back. In a
// straight pipeline that is Σ_{t=s..u}(F_t + B_t) + 2·Σ c_t.
#pragma once

#include "pdc/Plan/CostGraph.h"
#include "pdc/Plan/Plan.h"
#include "pdc/Plan/PlannerOptions.h"

#include <memory>

namespace pdc {

/// Equal devices of a cluster. Classes are numbered in the order of their first leaf.
struct DeviceClass {
  double speed = 1;
  std::int64_t memoryBytes = 0;     ///< that a stage may take on one of them
  std::vector<std::int64_t> leaves; ///< ascending
};

/// At least one; exactly one unless cluster.devices says otherwise. The limit is options.memoryBytes where that is
/// positive, else the device's memory less what is reserved.
std::vector<DeviceClass> deviceClasses(const Cluster& cluster, const PlannerOptions& options);

struct PartitionStage {
  std::vector<std::int64_t> nodes; ///< ascending
  int replicas = 1;
  bool recompute = false;   ///< the backward runs the forward again
  int split = 0;            ///< number of its graph, CostGraph::in()
  int team = 1;             ///< members of that graph's split
  std::vector<int> ofClass; ///< replicas on devices of each class, adding up to `replicas`; may be empty if there is
                            ///< one class
  bool shards = false;      ///< of ShardPolicy::automatic: the replicas divide the optimizer's state
};

/// Stages in pipeline order.
struct Partition {
  std::vector<PartitionStage> stages;
};

/// Stage s holds the nodes from ends[s-1] (0 for the first) to before ends[s], without recomputation, on one class.
Partition partitionOfIntervals(const std::vector<std::int64_t>& ends, const std::vector<int>& replicas);

/// The plan of a partition with everything but warm-up, memory and time. `withNames` false leaves out what is for
/// people. Of a recomputing stage inputGradientMs holds the second forward too, savedBytes is 0, and what one minibatch
/// saves is in scratchBytes. parameterBytes, gradientBytes and allReduceMs of a stage hold the shared parameters that
/// it owns.
Plan describePartition(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                       const Partition& partition, bool withNames = true);

/// Memory of one replica of each stage under the plan's warm-up (pdc/Cost/Pipeline.h states the sum).
std::vector<std::int64_t> memoryOf(const Plan& plan, const PlannerOptions& options);

/// Memory that each stage of a plan may take: the least of the devices of its replicas.
std::vector<std::int64_t> memoryLimitsOf(const Plan& plan, const PlannerOptions& options);

/// Memory that a stage may take on each device, of the first class.
std::int64_t memoryLimit(const Cluster& cluster);

struct PlanCost {
  bool feasible = false;
  double timeMs = 0; ///< per minibatch; of flushing schedules the lower bound of costOf
  /// timeMs, unless shared cores bound it: then the largest load of any device, all-reduce, link or lane. Shared cores
  /// make most plans equally fast; the one that would be fastest with more cores is the better one.
  double loadMs = 0;
  std::int64_t peakMemoryBytes = 0; ///< of one device
  std::int64_t bytesMoved = 0;      ///< per minibatch, all-reduces included
  std::vector<int> warmup;
};

/// The cost of a plan of describePartition, with the best warm-up of the policy. For `hide`, the best is the smallest
/// that reaches the smallest time that memory allows:
///
///   T is the smallest time, not below any load, for which the following w fits into memory. From the last stage (w =
///   0) backwards, w_s is the smallest whose loops with all later stages take no longer than T.
///
/// w shrinks as T grows and memory grows with w, so there is one such T (none: not feasible). Flushing schedules:
/// feasible with what hideUpperBound gives, cut down to what fits; the time is a lower bound, per batch of m with n =
/// ceil(m/R) on some replica of each stage. Let f be the longest way of a value from stage 0 to a stage, b that of a
/// gradient from it to stage 0, computation in the stages before included; Σ_r sums over the stages that a rank hosts
/// (one, unless the schedule loops), s is the first of them:
///
///   max( max_s( f_s + F_s + B_s + b_s ), max_r( f_s + n·Σ_r (F + B) + b_s ) ) + e_0 + U_0
///   and n·Σ_r (F + B) + Σ_r U + max_r e of each rank
///
/// because rank r cannot begin before a minibatch has come through the stages before s, and stage 0 cannot end before
/// r's last gradient has come back through them: the first and the last that r computes in a batch is of stage s. In a
/// straight pipeline f + b is Σ_{t<s} (F_t + B_t + 2c_t). Where the backward is split, stage 0 waits for input
/// gradients only: I stands for B in the first line, where W_0 is added, but not in the second.
///
/// 2bw does not drain: the time is the largest (F + B)/R + (e + U)/m, a lower bound too; a stage with (w + 1)·R > m
/// is not feasible, nor, with PipeDream's warm-up, more than m replicas of all stages.
PlanCost costOf(const Plan& described, const PlannerOptions& options);

/// Time per microbatch of a plan that updates once per batch and does not drain, at least, because of what it has in
/// flight: (f(s,u) + b(u,s)) / ((w_s + 1)·R_s - w_u·R_u), as loops with d = 1 that no update lies in. Infinite where a
/// stage waits for ever.
double inFlightMs(const Plan& plan, const PlannerOptions& options);

/// The time of `plan` with the warm-up that it states.
PlanCost costWithWarmup(const Plan& plan, const PlannerOptions& options);

/// The same with more warm-up, as much of that of fillWarmup() as fits into memory; not feasible where that is no more,
/// or where the policy or the schedule says what it is.
PlanCost costWithFilledWarmup(const Plan& plan, const PlannerOptions& options);

/// costOf(describePartition(…)) for many partitions of one graph, without names. The arguments must outlive it.
class CostModel {
public:
  CostModel(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options);
  ~CostModel();

  PlanCost costOf(const Partition& partition) const;

private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Whether a plan is better than another: less time, less load, less peak memory, fewer bytes moved, fewer devices;
/// then fewer nodes in the first stages, smaller node numbers in them, fewer replicas, less recomputation, fewer
/// shards, earlier classes. Times that differ by rounding only (1e-9) are equal.
bool isBetter(const PlanCost& a, const Partition& partitionA, const PlanCost& b, const Partition& partitionB);

} // namespace pdc
