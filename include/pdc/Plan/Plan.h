// The planner's answer: stages, replicas, devices, warm-up, and what they are expected to cost. A plan file is enough
// for the simulator and for the runtime.
#pragma once

#include "pdc/Plan/Cluster.h"
#include "pdc/Plan/EdgeCodec.h"
#include "pdc/Plan/GradientBuckets.h"
#include "pdc/Plan/ScheduleDef.h"
#include "pdc/Plan/ShardTraffic.h"
#include "pdc/Plan/TeamSplit.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Expected.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pdc {

/// One level of a hierarchical plan (cost models sosp19 and pipedream-*): the components of the level are split among
/// stages, each on `replicas` components, all of which run the same plan of the level inside.
struct PlanNest {
  int stage = 0; ///< number of the level's stage, within the component of the level outside
  int replicas = 1;
};

struct PlanStage {
  std::vector<std::int64_t> nodes;    ///< ids of the cost graph's nodes (fusion groups), ascending
  std::vector<std::string> nodeNames; ///< for people
  int replicas = 1;
  int tensorParallel = 1; ///< devices of one replica (cost model piper)
  TeamSplit split = {};   ///< how each replica is divided; times and bytes are those of a member
  pdcrt::Sharding sharding = pdcrt::Sharding::none; ///< what the replicas divide; only where there are several
  int shardDegree = 0;    ///< so many neighbouring replicas have everything together; 0: all of them
  int warmup = 0;         ///< w_s
  int syncDelay = 0;      ///< d_s
  bool recompute = false; ///< the backward runs the forward again; only what comes from outside is kept in flight
  /// One per node where the input offers several ways to run it (cost model piper), else empty.
  std::vector<std::string> choices;
  std::vector<PlanNest> nest; ///< outermost level first, of hierarchical cost models, else empty; product = replicas
  std::string device;         ///< kind of device, where there are several ("cpu" or "accelerator"), else empty
  // Times of one minibatch on one device, not divided by replicas.
  double forwardMs = 0;
  double inputGradientMs = 0;
  double weightGradientMs = 0;
  double updateMs = 0;
  double forwardTeamMs = 0, backwardTeamMs = 0; ///< share of the above in which members of a team wait
  /// What the team's collectives take beside what is computed: no share of the above.
  double forwardHiddenTeamMs = 0, backwardHiddenTeamMs = 0;
  /// sync_s of docs/PlannerModels.md: one all-reduce of this stage, or a reduce-scatter and an all-gather.
  double allReduceMs = 0;
  double allReduceCoreMs = 0;          ///< of updateMs: what its bytes take from the core that computes
  double exposedSyncMs = 0;            ///< e_s: what of it the backward does not hide when d_s = 0
  std::vector<GradientBucket> buckets; ///< from which e_s follows; empty where nothing is hidden
  std::int64_t parameterBytes = 0;
  std::int64_t gradientBytes = 0; ///< one set of accumulators
  std::int64_t reducedBytes = 0;  ///< all-reduced: trained parameters, once each; 0 until code is generated
  std::int64_t teamBytes = 0;     ///< that a member sends to its team per minibatch; 0 until code is generated
  /// Bytes of the trained parameters that members of a team divide: their gradients are no terms of the team's sum; 0
  /// until code is generated.
  std::int64_t dividedBytes = 0;
  std::int64_t optimizerBytes = 0; ///< what the optimizer keeps in one replica: of its shard, where it has one
  std::int64_t savedBytes = 0;     ///< per minibatch in flight
  std::int64_t scratchBytes = 0;   ///< scratch and workspace
  std::int64_t frozenBytes = 0;    ///< parameters that never change: one copy
  std::int64_t handoverBytes = 0;  ///< kept from input gradients to weight gradients, per minibatch between them
  std::int64_t memoryBytes = 0;    ///< arena of one replica, predicted; exact once code is generated

  double exposedTeamMs() const { return forwardTeamMs + backwardTeamMs; }
  double hiddenTeamMs() const { return forwardHiddenTeamMs + backwardHiddenTeamMs; }
  double computeMs() const { return forwardMs + inputGradientMs + weightGradientMs; }
  /// e_s; where the plan says nothing of it, all of the all-reduce that is not the core's time.
  double unhiddenSyncMs() const {
    return buckets.empty() && exposedSyncMs == 0 ? std::max(0.0, allReduceMs - allReduceCoreMs) : exposedSyncMs;
  }
  bool isSharded() const { return sharding != pdcrt::Sharding::none; }
  /// Replicas that divide everything among them; 1: none do.
  int owners() const { return !isSharded() ? 1 : shardDegree > 0 ? shardDegree : replicas; }
  /// The all-gather of what sharded replicas have updated.
  double gatherMs() const {
    return std::max(0.0, allReduceMs - allReduceCoreMs) * gatherShare(replicas, isSharded() ? owners() : replicas);
  }
  /// Sets e_s as the other times and the buckets say. These become final in the backward, or in its second half where
  /// the schedule splits it.
  void hideSync(bool splitBackward) {
    const double backwardMs = weightGradientMs + (splitBackward ? 0 : inputGradientMs);
    if (sharding == pdcrt::Sharding::weights)
      exposedSyncMs = 0; // the rank goes on with another stage
    else if (!buckets.empty())
      exposedSyncMs = pdc::exposedSyncMs(buckets, backwardMs, allReduceMs, allReduceCoreMs, isSharded());
  }
};

/// A tensor that crosses from one stage to another.
struct PlanTensor {
  std::string name;
  int from = 0, to = 0;
  std::int64_t bytes = 0;
  /// `to` has a part of its gradient: as many bytes go on to the next earlier stage that has one, or to `from`.
  bool hasGradient = true;
  /// Where it and its gradient are encoded: they cross in `bytes`, and the cut changes what is trained.
  std::optional<EdgeCodec> codec = {};
};

/// A gradient, or a part of one, that a stage sends an earlier one.
struct PlanGradient {
  std::string name;
  int from = 0, to = 0;
  std::int64_t bytes = 0;
};

/// A parameter that several stages use. The first of them owns it and sends each new version to the others, which send
/// the gradient of each of their uses back, once per update of the owner.
struct PlanSharedParameter {
  std::string name;
  std::int64_t bytes = 0;
  std::vector<int> stages; ///< ascending, without repetition; the first owns it
  std::vector<int> uses;   ///< nodes that use it in each of them
};

struct PlanRank {
  int rank = 0;
  std::vector<std::int64_t> devices;
  struct Host {
    int stage = 0, replica = 0;
  };
  std::vector<Host> hosts;
};

/// Another plan that the planner looked at, for people.
struct PlanAlternative {
  std::string name;  ///< "data parallelism"
  double timeMs = 0; ///< per minibatch; 0 if there is no such plan at all
  std::string reason;
};

struct Plan {
  std::string model;
  std::string modelHash;
  std::string costSource;
  ScheduleKind schedule;
  std::string scheduleFile; ///< name of the file that holds the lists of a schedule that is given
  pdcrt::WeightPolicy weights = pdcrt::WeightPolicy::stash;
  SyncPolicy sync = SyncPolicy::overlap;
  std::int64_t microbatches = 1; ///< per update, of flushing schedules
  bool gradientNorm = false;     ///< updates await the norm of the gradients of all stages (clipping)
  double timeMs = 0;             ///< T: predicted steady-state time per minibatch (microbatch when flushing)
  double lowerBoundMs = 0;       ///< proven: no plan that the cost model allows is faster
  bool optimal = false;          ///< the search ended with timeMs == lowerBoundMs; never set otherwise
  std::string costModel = "pdc"; ///< whose definition of time timeMs and lowerBoundMs follow
  std::vector<PlanStage> stages;
  std::vector<PlanTensor> tensors;
  /// All gradients, where they take other ways than the tensors say: parts of one that must be added up in another
  /// order than that of the stages.
  std::optional<std::vector<PlanGradient>> gradients;
  std::vector<PlanSharedParameter> sharedParameters;
  std::vector<PlanRank> ranks;
  std::vector<PlanAlternative> alternatives; ///< that were not chosen; empty: not asked for
  Cluster cluster;

  std::string file; ///< that it was read from, for messages; not written

  /// A JSON pointer of the plan; nowhere, if no file holds it.
  Location at(const std::string& pointer = "") const { return file.empty() ? Location() : Location{file, pointer}; }
  double gap() const { return lowerBoundMs > 0 ? timeMs / lowerBoundMs - 1 : 0; }
};

/// The processes of a rank: the members of the team that computes its stages.
inline int membersOf(const Plan& plan, const PlanRank& rank) {
  return rank.hosts.empty() ? 1 : plan.stages[static_cast<std::size_t>(rank.hosts[0].stage)].split.members;
}
/// The processes of a run.
inline int processesOf(const Plan& plan) {
  int processes = 0;
  for (const PlanRank& rank : plan.ranks) processes += membersOf(plan, rank);
  return processes;
}

/// The same plan gives the same bytes. Reading checks that stages, ranks and tensors fit together, and reports the
/// first mistake with its JSON pointer.
std::string toJson(const Plan& plan);
Expected<Plan> planFromJson(const std::string& text, const std::string& file, Diagnostics& diags);

} // namespace pdc
