// One pass over the hosted stages, in a fixed order of blocks.
#include "pdcrt/Arena.h"

#include <algorithm>

namespace pdcrt {

EdgeBuffers edgeBuffers(const Schedule& schedule, int stage, const EdgeRow& row) {
  EdgeBuffers result;
  result.peer = row.from == stage ? row.to : row.from;
  const bool forward = row.direction == Direction::forward;
  result.leaves = forward ? result.peer > stage : result.peer < stage;
  result.edge = schedule.edgeBetween(stage, result.peer);
  if (result.edge < 0) return result;
  const EdgeRings& rings = schedule.rings[static_cast<std::size_t>(result.edge)];
  if (forward)
    result.copies = result.leaves ? 0 : rings.forwardReceive;
  else
    result.copies = result.leaves ? rings.backwardSend : rings.backwardReceive;
  return result;
}

SharedBuffers sharedBuffers(const Schedule& schedule, int stage, const SharedRow& row) {
  const int shared = schedule.sharedBetween(row.owner, row.user);
  if (shared < 0) return {};
  const SharedEdge& edge = schedule.shared[static_cast<std::size_t>(shared)];
  if (stage == edge.user) return {.versions = edge.versionReceive, .parts = edge.partSend};
  const int owners = schedule.stages[static_cast<std::size_t>(edge.owner)].replicas;
  const int users = schedule.stages[static_cast<std::size_t>(edge.user)].replicas;
  return {.versions = 0, .parts = (users + owners - 1) / owners * edge.partReceive};
}

GradientSets gradientSets(const Schedule& schedule, int stage) {
  const ScheduleStage& shape = schedule.stages[static_cast<std::size_t>(stage)];
  return {.ring = shape.syncDelay + 1, .spare = schedule.mostOfUpdate(stage) > 1};
}

/// Bytes in which a replica, or each member of one, stages what the others have of the part that it owns: of R at most
/// ceil(1/R) of the sum, or its shard, of every other one. Where members have terms of whole parameters, each makes the
/// sum of its share of a shard; what they have in parts is summed over the replicas only, and has room in as much.
static std::size_t stagingBytes(const ScheduleStage& shape, const ArenaStage& stage) {
  const auto replicas = static_cast<std::size_t>(shape.terms());
  const std::size_t elements = stage.trainedBytes / sizeof(float);
  // What members have in parts is summed apart, over fewer: both shares are rounded up.
  const std::size_t rounded = shape.teamSums && shape.replicas > 1 ? 2 : 0;
  return stage.shardBytes > 0 ? stage.summedBytes : ((elements + replicas - 1) / replicas + rounded) * sizeof(float);
}

namespace {

class ArenaLayout {
public:
  ArenaLayout(const Schedule& schedule, std::span<const ArenaStage> stages, const RankList& rank)
      : schedule_(schedule), stages_(stages), rank_(rank) {}

  Arena run() {
    std::size_t scratchBytes = 0;
    for (const ArenaStage& stage : stages_) {
      addHost(stage);
      scratchBytes = std::max(scratchBytes, stage.bytes.scratch);
      arena_.workspaceBytes = std::max(arena_.workspaceBytes, stage.bytes.workspace);
    }
    addPlaces();
    arena_.scratch = take(scratchBytes);
    arena_.workspace = take(arena_.workspaceBytes);
    return std::move(arena_);
  }

private:
  const ScheduleStage& shapeOf(const ArenaStage& stage) const {
    return schedule_.stages[static_cast<std::size_t>(stage.stage)];
  }
  bool isInShards(const ArenaStage& stage) const { return shapeOf(stage).sharding == Sharding::weights; }

  std::size_t take(std::size_t bytes, std::size_t count = 1) {
    const std::size_t offset = arena_.bytes;
    arena_.bytes += arenaBytes(bytes, count);
    return offset;
  }

  void addHost(const ArenaStage& stage) {
    const ScheduleStage& shape = shapeOf(stage);
    const GradientSets sets = gradientSets(schedule_, stage.stage);
    const std::size_t gradients = stage.bytes.gradients;
    ArenaHost host;
    host.weights = isInShards(stage) ? take(stage.shardBytes)
                                     : take(stage.bytes.weights, static_cast<std::size_t>(shape.versions));
    host.frozen = take(stage.bytes.frozen);
    host.state = take(stage.bytes.state);
    host.optimizer = take(stage.optimizerBytes);
    if (isInShards(stage)) {
      host.sum = take(stage.shardBytes);
    } else {
      host.gradients = take(gradients, static_cast<std::size_t>(sets.ring));
      host.spare = take(sets.spare ? gradients : 0);
    }
    host.slots = take(stage.bytes.slot, static_cast<std::size_t>(shape.slots));
    for (const EdgeRow& edge : stage.edges)
      host.edges.push_back(
          take(edge.bytes, static_cast<std::size_t>(edgeBuffers(schedule_, stage.stage, edge).copies)));
    for (const SharedRow& row : stage.shared) {
      const SharedBuffers buffers = sharedBuffers(schedule_, stage.stage, row);
      const std::size_t values = take(row.valueBytes, static_cast<std::size_t>(buffers.versions));
      host.shared.push_back({values, take(row.partBytes, static_cast<std::size_t>(buffers.parts))});
    }
    host.handovers = take(stage.bytes.handover, static_cast<std::size_t>(shape.handovers));
    if (!isInShards(stage))
      host.staging = take(stagingBytes(shape, stage), static_cast<std::size_t>(shape.terms()) - 1);
    host.dataStaging = take(stage.bytes.dataStaging);
    arena_.hosts.push_back(std::move(host));
  }

  /// What stages with sharded weights take in turn.
  void addPlaces() {
    std::size_t weights = 0, gradients = 0, staging = 0, spare = 0, count = 0;
    for (const ArenaStage& stage : stages_) {
      if (!isInShards(stage)) continue;
      ++count;
      weights = std::max(weights, stage.bytes.weights);
      gradients = std::max(gradients, stage.bytes.gradients);
      const auto others = static_cast<std::size_t>(shapeOf(stage).terms()) - 1;
      staging = std::max(staging, arenaBytes(stagingBytes(shapeOf(stage), stage), others));
      if (gradientSets(schedule_, stage.stage).spare) spare = std::max(spare, stage.bytes.gradients);
    }
    if (count == 0) return;
    arena_.poolStride = arenaBytes(weights);
    arena_.pool = take(weights, static_cast<std::size_t>(rank_.pool));
    const std::size_t places = std::min(count, static_cast<std::size_t>(rank_.sums));
    const std::size_t firstSum = take(gradients, places), firstStaging = take(staging, places), spareAt = take(spare);
    std::size_t place = 0; // Schedule::sumPlace
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      if (!isInShards(stages_[i])) continue;
      arena_.hosts[i].gradients = firstSum + arenaBytes(gradients, place);
      arena_.hosts[i].staging = firstStaging + arenaBytes(staging, place);
      arena_.hosts[i].spare = spareAt;
      place = (place + 1) % places;
    }
  }

  const Schedule& schedule_;
  std::span<const ArenaStage> stages_;
  const RankList& rank_;
  Arena arena_;
};

} // namespace

Arena layoutArena(const Schedule& schedule, std::span<const ArenaStage> stages, const RankList& rank) {
  return ArenaLayout(schedule, stages, rank).run();
}

} // namespace pdcrt
