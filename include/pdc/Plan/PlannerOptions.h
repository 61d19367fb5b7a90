// What the planner is asked for, besides a graph and a cluster.
#pragma once

#include "pdc/Plan/EdgeCodec.h"
#include "pdc/Plan/GradientBuckets.h"
#include "pdc/Plan/ScheduleDef.h"
#include "pdc/Plan/TeamSplit.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pdc {

enum class WarmupPolicy { hide, paper, given };

/// Which stages run their forward again in the backward: none, those for which the planner chooses it, or all.
enum class RecomputePolicy : std::uint8_t { none, automatic, all };

/// What the replicas of all stages divide: nothing, the optimizer's state and the updates, weights and gradients too;
/// or, stage by stage, nothing or the optimizer's state, as the planner chooses.
enum class ShardPolicy : std::uint8_t { none, optimizer, weights, automatic };

struct PlannerOptions {
  ScheduleKind schedule;
  pdcrt::WeightPolicy weights = pdcrt::WeightPolicy::stash;
  SyncPolicy sync = SyncPolicy::overlap;
  std::int64_t microbatches = 1; ///< per update, of schedules with batches
  WarmupPolicy warmupPolicy = WarmupPolicy::hide;
  std::vector<int> warmup;                   ///< w_s per stage, of WarmupPolicy::given
  double optimizerStatePerParameterByte = 0; ///< 0 for SGD, 1 with momentum, 2 for Adam
  bool straight = false;                     ///< no replication
  RecomputePolicy recompute = RecomputePolicy::none;
  ShardPolicy shard = ShardPolicy::none;
  int shardDegree = 0;                           ///< of ShardPolicy::weights: as PlanStage's, at most all replicas
  std::int64_t memoryBytes = 0;                  ///< if positive: the limit of every device, instead of the cluster's
  std::int64_t bucketBytes = defaultBucketBytes; ///< of gradients that are reduced together
  EdgeCodecChoice edgeCodec = {};                ///< of the tensors that can be encoded (CostTensor::codec)
  double timeLimitS = 0;                         ///< if positive: return the best plan found by then, with its gap
  /// If not empty: exactly so many stages, with these replicas; 0: as many as suit. Else the planner only chooses where
  /// to cut.
  std::vector<int> stageReplicas;
  std::vector<TeamSplit> stageSplits; ///< if not empty: exactly these, one per stage, all of splits of the graph
  /// Whether the replicas of each stage divide the optimizer's state, under ShardPolicy::automatic. If not empty, there
  /// are exactly so many stages.
  std::vector<bool> stageShards;

  /// Whether the replicas of a stage are the planner's choice.
  bool choosesReplicas() const {
    return std::all_of(stageReplicas.begin(), stageReplicas.end(), [](int r) { return r == 0; });
  }
  /// Whether the planner chooses for each stage what its replicas divide.
  bool choosesShards() const { return shard == ShardPolicy::automatic && stageShards.empty(); }
  /// Whether so many replicas of a stage divide the optimizer's state and the updates. `chosen`: of
  /// ShardPolicy::automatic, what is chosen for this stage.
  bool shards(int replicas, bool chosen) const {
    return replicas > 1 && (shard == ShardPolicy::automatic ? chosen : shard != ShardPolicy::none);
  }
  /// Among how many of them; not 0, and it may not divide their number: then they cannot be that many.
  int owners(int replicas) const { return shardDegree > 0 ? std::min(shardDegree, replicas) : replicas; }
  /// What they divide, where other stages use none of the parameters.
  pdcrt::Sharding sharding(int replicas, bool chosen) const {
    if (!shards(replicas, chosen)) return pdcrt::Sharding::none;
    return shard == ShardPolicy::weights ? pdcrt::Sharding::weights : pdcrt::Sharding::optimizer;
  }
  /// Bytes of the optimizer's state in one of so many replicas that divide that of these parameters; 1: it is whole.
  std::int64_t optimizerBytes(std::int64_t parameterBytes, int parts) const {
    const auto bytes = static_cast<std::int64_t>(optimizerStatePerParameterByte * static_cast<double>(parameterBytes));
    return (bytes + parts - 1) / parts;
  }
  /// What a device takes at least, however many share a stage: of the state per byte of parameters, and of an update.
  double leastOptimizerState() const { return shard != ShardPolicy::none ? 0 : optimizerStatePerParameterByte; }
  double leastUpdateMs(double updateMs) const { return shard != ShardPolicy::none ? 0 : updateMs; }
};

} // namespace pdc
