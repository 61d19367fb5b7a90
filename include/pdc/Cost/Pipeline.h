// A partition, or a plan, reduced to the numbers that the cost model adds up. Nothing here depends on the warm-up.
#pragma once

#include "pdc/Cost/Machine.h"
#include "pdc/Schedule/StageMemory.h"

#include <algorithm>

namespace pdc {

struct PipelineStage {
  int replicas = 1;
  int team = 1;                                     ///< members of each; times and bytes are those of a member
  pdcrt::Sharding sharding = pdcrt::Sharding::none; ///< what its replicas divide
  int shardDegree = 0;                              ///< as PlanStage's
  int syncDelay = 0;
  double forwardMs = 0, inputGradientMs = 0, weightGradientMs = 0, updateMs = 0; ///< on the slowest of its devices
  double forwardTeamMs = 0, backwardTeamMs = 0;                                  ///< of the above
  double forwardHiddenTeamMs = 0, backwardHiddenTeamMs = 0;                      ///< beside the above
  double allReduceMs = 0, exposedSyncMs = 0;
  double allReduceCoreMs = 0;          ///< of updateMs
  std::vector<GradientBucket> buckets; ///< where an all-reduce may be hidden by its backward
  StageBytes bytes;                    ///< parameters and gradients with the shared ones that it owns; optimizer: 0
  std::int64_t limitBytes = 0;         ///< memory of one rank
  std::size_t firstRank = 0; ///< replica q is on the `team` leaves from Pipeline::leaves[firstRank + q] on, with those
                             ///< of other stages that loop

  double backwardMs() const { return inputGradientMs + weightGradientMs; }
  double computeMs() const { return forwardMs + backwardMs(); }
  bool isSharded() const { return sharding != pdcrt::Sharding::none; }
  /// Replicas that divide everything among them; 1: none do.
  int owners() const { return !isSharded() ? 1 : shardDegree > 0 ? shardDegree : replicas; }
  bool isInShards() const { return sharding == pdcrt::Sharding::weights; }
};

/// What travels between two stages for each minibatch, in bytes that a member of the receiver gets. Member j gets it
/// from member j mod t of a sender with t members.
struct PipelineEdge {
  int from = 0, to = 0;
  std::int64_t forwardBytes = 0, backwardBytes = 0;
  bool forward = false, backward = false;
};

/// How many members of a receiver get the same from the busiest member of the sender.
inline int mostReceivers(int senders, int receivers) {
  return (receivers + senders - 1) / senders;
}

/// A parameter of `owner` that stage `user` uses too, at `uses` nodes. Replica q of the user exchanges it with replica
/// q mod R of the owner, once in max(R of the owner, R of the user) minibatches: one new version there, one gradient
/// per use back.
struct SharedUse {
  int owner = 0, user = 0, uses = 0;
  std::int64_t bytes = 0;
};

struct Pipeline {
  std::vector<PipelineStage> stages;
  std::vector<PipelineEdge> edges; ///< sorted by (from, to)
  std::vector<SharedUse> shared;
  std::vector<std::int64_t> leaves; ///< by rank: that of its first member
  bool isPlaced = true;             ///< the machines have room for all teams
  std::int64_t microbatches = 0;    ///< per update, of flushing schedules; else 0
  SyncPolicy sync = SyncPolicy::overlap;
  ScheduleKind schedule;
};

/// `stageOf` is filled with the stage of each node.
Pipeline pipelineOf(const CostGraph& graph, const Machine& machine, const PlannerOptions& options,
                    const Partition& partition, std::vector<int>& stageOf);
Pipeline pipelineOf(const Plan& plan, const Machine& machine, const PlannerOptions& options);

/// Whether a stage of this split may meet one of another, where the nodes `isBefore` are in stages before the border:
/// no tensor crosses it that is of this split alone, and none of whose gradient members have terms has users on both
/// sides.
template <class IsBefore>
bool isCleanBorder(const CostTensor& tensor, IsBefore isBefore) {
  if ((!tensor.isOwn && !tensor.hasTerms) || !isBefore(tensor.from)) return true;
  const auto before = std::count_if(tensor.to.begin(), tensor.to.end(), isBefore);
  return before == std::ssize(tensor.to) || (!tensor.isOwn && before == 0);
}

/// Whether stages may meet as they do: borders between different splits are clean in both, and parameters that stages
/// of several splits use are whole.
bool bordersAreClean(const CostGraph& graph, const Partition& partition, const std::vector<int>& stageOf);

/// Bytes that a member of the receiver gets of a tensor, or of its gradient: whole where the splits differ.
std::int64_t bytesBetween(const CostGraph& graph, std::size_t tensor, int from, int to);

/// Bytes of one all-reduce of a stage on its busiest link, as time, and the latency of its steps.
double allReduceMsOf(const Pipeline& pipeline, int stage, const Machine& machine);

/// What a batch sends of a stage's parameters, in all-reduces: one; where weights lie in shards sumShare() for the sum,
/// and gatherShare() each time that they are gathered.
double allReducesOf(const Pipeline& pipeline, int stage);

/// How often a batch gathers a stage's weights, at least once: 0 where they do not lie in shards.
int gathersOf(const Pipeline& pipeline, int stage);

/// What the stages with sharded weights have in turn on the rank of a stage, if that is the first of them; else
/// nothing.
std::int64_t placesOf(const Pipeline& pipeline, int stage);

/// stage.bytes with the state of the optimizer, as a replica has them.
StageBytes bytesOf(const PipelineStage& stage, const PlannerOptions& options);

/// Versions of its weights that a stage keeps with this warm-up.
int versionsOf(const Pipeline& pipeline, const PlannerOptions& options, const std::vector<int>& warmup, int stage);

/// Memory of one replica of a stage: stageMemory() of its frame under this warm-up, and each shared parameter of
/// another stage that it uses. Versions of such a parameter alive at a user: min(those of the owner, ceil((w + 1)·R / R
/// of the owner) + 1) with stashed weights, else those of the owner. The set in which a batch's gradients are added up
/// is not counted: d + 1 sets are.
std::int64_t memoryOf(const Pipeline& pipeline, const PlannerOptions& options, const std::vector<int>& warmup,
                      int stage);

} // namespace pdc
