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

Arena layoutArena(const Schedule& schedule, std::span<const ArenaStage> stages) {
  Arena arena;
  auto take = [&](std::size_t bytes, std::size_t count = 1) {
    std::size_t offset = arena.bytes;
    arena.bytes += arenaBytes(bytes, count);
    return offset;
  };
  std::size_t scratchBytes = 0;
  for (const ArenaStage& stage : stages) {
    const ScheduleStage& shape = schedule.stages[static_cast<std::size_t>(stage.stage)];
    const GradientSets sets = gradientSets(schedule, stage.stage);
    ArenaHost host;
    host.weights = take(stage.bytes.weights, static_cast<std::size_t>(shape.versions));
    host.frozen = take(stage.bytes.frozen);
    host.state = take(stage.bytes.state);
    host.optimizer = take(stage.optimizerBytes);
    host.gradients = take(stage.bytes.gradients, static_cast<std::size_t>(sets.ring + (sets.spare ? 1 : 0)));
    host.slots = take(stage.bytes.slot, static_cast<std::size_t>(shape.slots));
    for (const EdgeRow& edge : stage.edges)
      host.edges.push_back(take(edge.bytes, static_cast<std::size_t>(edgeBuffers(schedule, stage.stage, edge).copies)));
    for (const SharedRow& row : stage.shared) {
      const SharedBuffers buffers = sharedBuffers(schedule, stage.stage, row);
      const std::size_t values = take(row.valueBytes, static_cast<std::size_t>(buffers.versions));
      host.shared.push_back({values, take(row.partBytes, static_cast<std::size_t>(buffers.parts))});
    }
    host.handovers = take(stage.bytes.handover, static_cast<std::size_t>(shape.handovers));
    // A replica owns a part of the sum, at most ceil(1/R) of it or its shard, and stages that part of every other
    // replica.
    const auto replicas = static_cast<std::size_t>(shape.replicas);
    const std::size_t elements = stage.trainedBytes / sizeof(float);
    const std::size_t part =
        stage.shardBytes > 0 ? stage.shardBytes : (elements + replicas - 1) / replicas * sizeof(float);
    host.staging = take(part, replicas - 1);
    host.dataStaging = take(stage.bytes.dataStaging);
    scratchBytes = std::max(scratchBytes, stage.bytes.scratch);
    arena.workspaceBytes = std::max(arena.workspaceBytes, stage.bytes.workspace);
    arena.hosts.push_back(std::move(host));
  }
  arena.scratch = take(scratchBytes);
  arena.workspace = take(arena.workspaceBytes);
  return arena;
}

} // namespace pdcrt
