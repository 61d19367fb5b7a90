// Why a plan is what it is: what the other plans that people ask about would cost, what limits it, and what would help.
#pragma once

#include "pdc/Planner/Planner.h"

#include <functional>
#include <string>
#include <vector>

namespace pdc {

/// A plan that was not chosen.
struct Alternative {
  std::string name; ///< "data parallelism", "straight pipeline", "one device", "without the memory limit", …
  bool feasible = false;
  double timeMs = 0;            ///< per minibatch; 0 if there is no such plan at all
  std::int64_t memoryBytes = 0; ///< that its fullest device needs; 0 where the cost model knows no memory
  std::int64_t limitBytes = 0;  ///< that this device has
  std::string reason;           ///< why it lost, a phrase: "slower: …", "too much memory: …", "the same plan"
};

/// A change of the machines, and the time per minibatch of the best plan then.
struct Lever {
  std::string name; ///< "twice the memory", "twice the bandwidth of 'rack'", …
  double timeMs = 0;
};

/// A tensor that crosses and can be encoded.
struct CodedEdge {
  std::string name;
  int from = 0, to = 0;
  bool isCoded = false;
  std::int64_t bytes = 0, codedBytes = 0;
  double paysBelowBytesPerS = 0; ///< on a slower link of its own, coding takes less than the bytes that it saves
};

/// What it means for a stage with replicas that they divide the optimizer's state and the updates.
struct ShardedStage {
  int stage = 0, replicas = 1;
  bool isSharded = false;
  int owners = 1;                    ///< of the replicas that have, or would have, everything together
  std::int64_t savedBytes = 0;       ///< of the optimizer's state, in each replica
  double updateMs = 0;               ///< of all parameters
  double shardUpdateMs = 0;          ///< of one replica's
  double gatherMs = 0;               ///< of what owners have updated; unsharded, the sum takes it
  int sweeps = 0;                    ///< of sharded weights: how often they are gathered per batch
  std::int64_t savedWeightBytes = 0; ///< of weights and gradients, in each replica, but for the places of its rank
};

struct Explanation {
  std::string bottleneck;  ///< the resource that is busy all the time: "the computation of stage 2"; may be empty
  double bottleneckMs = 0; ///< how long it is busy per minibatch
  std::string runnerUp;    ///< the next one in the same plan; may be empty
  double runnerUpMs = 0;
  std::vector<Alternative> alternatives;
  std::vector<Lever> levers;
  std::vector<CodedEdge> edges;     ///< with --edge-codec
  std::vector<ShardedStage> shards; ///< with --shard
};

/// A planner with a cost model of its own: as planPipeline.
using OtherPlanner =
    std::function<Expected<Plan>(const CostGraph&, const Cluster&, const PlannerOptions&, Diagnostics&)>;

/// Plans again for every alternative and lever. `plan` is what planPipeline returned for the same graph, cluster and
/// options; or what `other` returned, of whose plans nobody knows what limits them and how much memory they take.
Explanation explainPlan(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options, const Plan& plan,
                        const OtherPlanner& other = nullptr);

/// The alternatives alone, without those whose search would take long for a graph and cluster of this size: for reports
/// that nobody has asked to wait for.
std::vector<Alternative> runnersUp(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                                   const Plan& plan);

/// For people, a few lines, without a trailing empty line.
std::string toText(const Explanation& explanation, const Plan& plan);

} // namespace pdc
