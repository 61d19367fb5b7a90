// Pipeline schedules as data: actions, their text form, and the expansion of a schedule to a number of minibatches.
// Standard library only; the one definition that compiler, simulator and runtime share.
//
// An action is printed with its stage first:
//
//   1F3      forward of minibatch 3 in stage 1          1B3      full backward (1I3 then 1W3)
//   1I3      backward, input gradients only             1W3      backward, weight gradients only
//   1U7      update that makes version 7                1E3      evaluate minibatch 3
//   1SF3>2   send the values of 3 forward to stage 2    1RF3<0   post their receive from stage 0
//   1SB3>0   send gradients of 3 back to stage 0        1RB3<2   post their receive from stage 2
//   1AR7     all-reduce of the gradients for update 7
//   1RS7     reduce-scatter of the gradients for update 7: each replica gets the sum of its shard
//   1AG7     all-gather of version 7 of the weights, of which each replica has made its shard
//   1UN3     the third all-gather of weights that lie in shards between their uses; 1RE3 gives them up again
//   1GN7     the norm of the gradients of update 7 over all stages: this one's part
//   1SV7>3   send version 7 of shared parameters     3RV7<1   post its receive from their owner
//   3SG7>1   send gradients of them for update 7     1RG7<3   post their receive from a user
//   ?1SF3>2  wait until that action's transfer or reduction has completed
//
// A schedule is, per rank, a list `start` and a list `repeat` that goes on for ever: in its k-th round every minibatch
// of `repeat` is larger by k times the rank's step, and every version by the updates that its stage makes in that many
// minibatches. A run of T minibatches is that endless list without the actions on minibatches >= T, and without the
// updates (and all-reduces, and waits for them) all of whose minibatches are >= T. So every drain follows from one
// text.
//
// Replicas of a stage hold equal weights, gradients and optimizer states. Shards (ZeRO, arXiv 1910.02054; FSDP, arXiv
// 2304.11277) divide what they hold:
//
//   shard optimizer   a replica updates its shard only, and has the optimizer's state of that only: RS, U, AG
//   shard weights     it also has the weights of its shard only, and all of them between UN and RE: RS, U, UN, RE
#pragma once

#include "pdcrt/ActionKind.h"
#include "pdcrt/Routing.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pdcrt {

struct Action {
  ActionKind kind = ActionKind::forward;
  bool wait = false;      ///< wait for the completion of this transfer or all-reduce instead of starting it
  int stage = 0;          ///< the stage, hosted by this rank, that acts
  int peer = -1;          ///< the other stage of a transfer
  std::int64_t index = 0; ///< minibatch; version if isVersioned

  friend bool operator==(const Action&, const Action&) = default;
};

/// "1SF3>2".
std::string toString(const Action& action);

/// Reads what toString prints. Returns false, and says in `error` what was expected, when `text` is not an action.
bool parseAction(std::string_view text, Action& action, std::string& error);

/// The stage replica that a rank hosts.
struct Host {
  int stage = 0, replica = 0;
  friend bool operator==(const Host&, const Host&) = default;
};

/// A connection of two stages, `from` < `to`: values go forward, gradients go back. The gradient of a value that
/// several stages use travels the chain of those stages, so an edge may have a backward direction only.
struct ScheduleEdge {
  int from = 0, to = 0;
  bool backward = true;
  bool forward = true;
  friend bool operator==(const ScheduleEdge&, const ScheduleEdge&) = default;
};

/// What the replicas of a stage divide among them.
enum class Sharding : std::uint8_t { none, optimizer, weights };

/// What the schedule says of one stage. Rings: how many buffers of each kind a replica has; an action on local
/// minibatch k uses buffer k mod ring.
struct ScheduleStage {
  int replicas = 1;
  int warmup = 0;    ///< w_s: forwards before the first backward
  int syncDelay = 0; ///< d_s: backwards between an all-reduce's start and its update
  int slots = 1;     ///< minibatches in flight, at most
  int versions = 1;  ///< weight versions alive, at most
  int handovers = 1; ///< minibatches between backward_input and backward_weight, at most
  Route route = {};  ///< which replica computes which minibatch; with common updates only, unless it is round robin
  int team = 1;      ///< processes that compute each replica together, its members
  Sharding sharding = Sharding::none; ///< of replicated stages
  int sweeps = 1;                     ///< of sharded weights: how often they are gathered for an update
  /// So many neighbouring replicas have all shards together (PyTorch's hybrid sharding); 0: all of the stage's do.
  int shardDegree = 0;
  bool teamSums = false; ///< the members of a team have terms of the gradients of whole parameters, as replicas have

  Routing routing() const { return {replicas, route}; }
  bool isSharded() const { return sharding != Sharding::none; }
  /// Replicas that divide everything among them, a shard each; 1: none do.
  int owners() const { return !isSharded() ? 1 : shardDegree > 0 ? shardDegree : replicas; }
  /// How many neighbouring replicas meet in a reduction of this kind.
  int meetIn(ActionKind kind) const {
    return kind == ActionKind::allGather || kind == ActionKind::unshard ? owners() : replicas;
  }
  /// How many processes have terms of a gradient.
  int terms() const { return teamSums ? replicas * team : replicas; }
  /// Lists are made before teams are known.
  bool sums() const { return replicas > 1 || teamSums; }
  /// What sums them.
  ActionKind sum() const { return isSharded() ? ActionKind::reduceScatter : ActionKind::allReduce; }
  friend bool operator==(const ScheduleStage&, const ScheduleStage&) = default;
};

/// Depth of the rings of an edge: `receive` buffers at the receiver and `send` buffers at the sender, per direction; 0
/// for a direction that the edge does not have. Values sent forward stay in the slot, so forwardSend = slots of the
/// sender.
struct EdgeRings {
  int forwardSend = 2, forwardReceive = 2;
  int backwardSend = 2, backwardReceive = 2;
  friend bool operator==(const EdgeRings&, const EdgeRings&) = default;
};

/// Parameters that the stage `owner` makes and the later stage `user` uses as well. For minibatch b the user takes the
/// version that the owner uses, versionUsed(owner, b), which the owner sends once per update; the user sends the
/// gradients of its uses, summed over the minibatches of an update, before the owner makes that update. Replica q of
/// the user is served by replica q mod replicas of the owner: an action of the owner stands for all that it serves.
/// The numbers are depths of rings, as in EdgeRings; version 0 needs no transfer.
struct SharedEdge {
  int owner = 0, user = 0;
  int versionSend = 1, versionReceive = 2;
  int partSend = 2, partReceive = 2;
  friend bool operator==(const SharedEdge&, const SharedEdge&) = default;
};

enum class WeightPolicy : std::uint8_t { stash, verticalSync, latest, twoVersions };

struct RankList {
  std::vector<Host> hosts;
  std::vector<Action> start;
  std::vector<Action> repeat;
  std::int64_t step = 1; ///< minibatches that a round of `repeat` advances, of the whole pipeline
  int pool = 2;          ///< stages with sharded weights of which the rank has room for all weights at once,
  int sums = 2;          ///< and for the gradients of all weights, until they are summed over the replicas
  friend bool operator==(const RankList&, const RankList&) = default;
};

/// A schedule for any number of minibatches.
struct Schedule {
  std::string kind; ///< "1f1b", "1f1b-flush": for people; nothing depends on it
  WeightPolicy weights = WeightPolicy::stash;
  /// Minibatches of the whole pipeline per update. 0: each stage updates every `replicas` of its own (1f1b).
  std::int64_t minibatchesPerUpdate = 0;
  /// Before an update, every replica of every stage awaits the norm of all gradients (GN). Where stages update by
  /// themselves, each sharded one awaits its own.
  bool gradientNorm = false;
  std::vector<ScheduleStage> stages;
  std::vector<ScheduleEdge> edges; ///< sorted by (from, to)
  std::vector<EdgeRings> rings;    ///< one per edge
  std::vector<SharedEdge> shared;  ///< sorted by (owner, user)
  std::vector<RankList> ranks;
  friend bool operator==(const Schedule&, const Schedule&) = default;

  Routing routing(int stage) const { return stages[static_cast<std::size_t>(stage)].routing(); }

  /// Whether updates of `stage` await a norm.
  bool hasNorm(int stage) const {
    return gradientNorm && (minibatchesPerUpdate > 0 || stages[static_cast<std::size_t>(stage)].isSharded());
  }

  /// Minibatches of the whole pipeline that one update of `stage` averages.
  std::int64_t minibatchesOfUpdate(int stage) const;

  /// The most minibatches that one replica of `stage` adds to one update.
  std::int64_t mostOfUpdate(int stage) const;

  /// Minibatches that update `version` (1, 2, …) of `stage` averages: [first, last).
  std::int64_t updateFirst(int stage, std::int64_t version) const;
  std::int64_t updateLast(int stage, std::int64_t version) const;

  /// Updates of `stage` in a run of `minibatches`; the last may average fewer.
  std::int64_t updates(int stage, std::int64_t minibatches) const;

  /// The version of its weights with which `stage` computes the forward of `minibatch` (and its backward, except under
  /// WeightPolicy::latest, which uses the newest there):
  ///   every update of its own, stash    max(0, floor(b / R_s) - w_s - d_s)
  ///   vertical sync                     floor(R_0 · V_0(b) / R_s)
  ///   common updates (flush)            floor(b / m)
  ///   common updates, two versions      max(0, floor(b / m) - 1)
  std::int64_t versionUsed(int stage, std::int64_t minibatch) const;

  /// The rank that hosts a replica of a stage; -1 if none does.
  int rankOf(int stage, int replica) const;

  /// Which of the places for gradients (RankList::sums) a stage with sharded weights has on its rank: they take them in
  /// turn, in the order in which the rank hosts them.
  int sumPlace(const RankList& rank, int stage) const;

  /// Index of the edge that connects two stages (in either order); -1 if none does.
  int edgeBetween(int a, int b) const;

  /// Index of the shared edge between two stages (in either order); -1 if there is none.
  int sharedBetween(int a, int b) const;

  /// Whether replica `q` of the user has a minibatch among those of the owner's update `version`, so that it sends its
  /// gradients for it. The parameters that the owner uses for these minibatches are sent to it likewise.
  bool hasPart(const SharedEdge& edge, int q, std::int64_t version) const;

  /// Whether some minibatch of replica `q` of the user takes `version`, which is above 0, from the owner.
  bool takesVersion(const SharedEdge& edge, int q, std::int64_t version) const;

  /// The stage whose versions the index of an action counts: its own, or the owner of shared parameters.
  int versionedStage(const Action& action) const;

  /// How many actions of the kind of `action`, which isVersioned, one update has, and the version of that update.
  std::int64_t perUpdate(const Action& action) const;
  std::int64_t versionOf(const Action& action) const { return (action.index - 1) / perUpdate(action) + 1; }

  /// How much the index of such an action grows in `minibatches` of the whole pipeline, which are whole updates.
  std::int64_t advanceOf(const Action& action, std::int64_t minibatches) const;

  /// A run of `minibatches` has the actions like this one with smaller indices, and no others.
  std::int64_t endOf(const Action& action, std::int64_t minibatches) const;
};

/// Whether every part of `schedule` refers to parts that exist: stages, edges with their rings, each replica hosted by
/// exactly one rank, teams of one size on each rank, actions of hosted stages over existing edges and of their kind of
/// shards, steps that whole updates divide. Says in `error` what is wrong. That it can be executed is another question
/// (Verify.h).
bool isWellFormed(const Schedule& schedule, std::string& error);

/// The text form of schedule.txt; parses back to an equal schedule.
std::string toString(const Schedule& schedule);

/// Reads schedule.txt. On failure returns false and says in `error` the line and what was expected.
bool parseSchedule(std::string_view text, Schedule& schedule, std::string& error);

/// The actions of `rank` in a run of `minibatches`, in order.
std::vector<Action> expand(const Schedule& schedule, int rank, std::int64_t minibatches);

/// A forward-only pass over `minibatches` (the drained pipeline evaluates): E actions with their transfers, over the
/// same edges and rings.
std::vector<Action> expandEvaluation(const Schedule& schedule, int rank, std::int64_t minibatches);

} // namespace pdcrt
