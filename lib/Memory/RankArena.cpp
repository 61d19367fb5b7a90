#include "pdc/Memory/RankArena.h"

#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdcrt/Arena.h"
#include "pdcrt/OptimizerLayout.h"
#include "pdcrt/Shards.h"

#include <algorithm>
#include <limits>

using namespace pdc;

namespace {

const MemoryPlan& memoryOf(const PlanRank::Host& host, const std::vector<MemoryPlan>& memories) {
  return memories[static_cast<std::size_t>(host.stage)];
}

/// Live bytes of the temporary memory of a rank at the worst moment: all its slots and handovers are full, and one of
/// its stages is in the middle of a phase. Or it evaluates.
std::int64_t liveBytesOf(const PlanRank& rank, const pdcrt::Schedule& schedule,
                         const std::vector<MemoryPlan>& memories) {
  std::int64_t kept = 0, phase = 0, evaluation = 0;
  for (const PlanRank::Host& host : rank.hosts) {
    const LiveBytes& live = memoryOf(host, memories).live;
    const pdcrt::ScheduleStage& shape = schedule.stages[static_cast<std::size_t>(host.stage)];
    kept += live.stashed * shape.slots;
    phase = std::max(phase, live.peak - live.stashed);
    evaluation = std::max(evaluation, live.evaluation);
  }
  return std::max(kept + phase, evaluation);
}

/// Bytes of the largest shard of a stage, and of the most of which a process makes the sum; 0: its replicas divide
/// nothing.
struct ShardSizes {
  std::size_t largest = 0, summed = 0;
};
ShardSizes shardsOf(const MemoryPlan& memory, const pdcrt::ScheduleStage& shape) {
  if (!shape.isSharded()) return {};
  std::vector<pdcrt::ShardedParameter> parameters;
  for (std::size_t i = 0; i < memory.parameters.size(); ++i)
    if (const PlacedParameter& placed = memory.parameters[i]; placed.parameter->role == ParameterRole::trained)
      parameters.push_back(pdcrt::shardedParameter(static_cast<int>(i), placed.type.elements(),
                                                   placed.type.layout == filterInBlocks ? placed.type.shape[0] : 0));
  const pdcrt::Shards shards(parameters, shape.replicas, shape.owners());
  return {static_cast<std::size_t>(shards.most()) * sizeof(float),
          static_cast<std::size_t>(shards.mostSummed(shape.terms() / shape.replicas)) * sizeof(float)};
}

/// What the optimizer keeps of a stage in each replica.
std::size_t optimizerBytesOf(const MemoryPlan& memory, const pdcrt::ScheduleStage& shape,
                             const pdcrt::Training& training) {
  const std::size_t shard = shardsOf(memory, shape).largest;
  return pdcrt::OptimizerLayout(training, shard > 0 ? shard : memory.bytes.weights).bytes();
}

/// Bytes that Checkpointer copies for a rank: of replica 0 weights, optimizer and state, of other replicas the state;
/// where replicas have shards, the first owners each their own.
std::int64_t checkpointCopyOf(const PlanRank& rank, const pdcrt::Schedule& schedule,
                              const std::vector<MemoryPlan>& memories, const pdcrt::Training& training) {
  std::size_t bytes = 0;
  for (const PlanRank::Host& host : rank.hosts) {
    const MemoryPlan& memory = memoryOf(host, memories);
    const pdcrt::ScheduleStage& shape = schedule.stages[static_cast<std::size_t>(host.stage)];
    const std::size_t shard = shardsOf(memory, shape).largest;
    bytes += memory.bytes.state;
    if (host.replica < shape.owners())
      bytes += (shard > 0 ? shard : memory.bytes.weights) + optimizerBytesOf(memory, shape, training);
  }
  return static_cast<std::int64_t>(bytes);
}

/// The stages of a rank, as the program lays them out.
std::vector<pdcrt::ArenaStage> arenaStagesOf(const PlanRank& rank, const pdcrt::Schedule& schedule,
                                             const std::vector<MemoryPlan>& memories, const pdcrt::Training& training) {
  std::vector<pdcrt::ArenaStage> hosted;
  for (const PlanRank::Host& host : rank.hosts) {
    const MemoryPlan& memory = memoryOf(host, memories);
    const pdcrt::ScheduleStage& shape = schedule.stages[static_cast<std::size_t>(host.stage)];
    const ShardSizes shards = shardsOf(memory, shape);
    hosted.push_back({.stage = host.stage,
                      .bytes = memory.bytes,
                      .edges = memory.edges,
                      .shared = memory.shared,
                      .trainedBytes = static_cast<std::size_t>(memory.trainedBytes),
                      .optimizerBytes = optimizerBytesOf(memory, shape, training),
                      .shardBytes = shards.largest,
                      .summedBytes = shards.summed});
  }
  return hosted;
}

/// The arena of a rank, and the least that it could be.
struct ArenaBytes {
  std::int64_t arena = 0, least = 0;
};

ArenaBytes arenaOf(const PlanRank& rank, const pdcrt::Schedule& schedule, const std::vector<MemoryPlan>& memories,
                   const pdcrt::Training& training) {
  std::vector<pdcrt::ArenaStage> hosted = arenaStagesOf(rank, schedule, memories, training);
  const pdcrt::RankList& list = schedule.ranks[static_cast<std::size_t>(rank.rank)];
  const std::size_t arena = pdcrt::layoutArena(schedule, hosted, list).bytes;
  for (pdcrt::ArenaStage& stage : hosted) stage.bytes.slot = stage.bytes.handover = stage.bytes.scratch = 0;
  const std::size_t fixed = pdcrt::layoutArena(schedule, hosted, list).bytes;
  return {static_cast<std::int64_t>(arena), static_cast<std::int64_t>(fixed) + liveBytesOf(rank, schedule, memories)};
}

/// The blocks of a stage, to the byte.
void fillInBlocks(PlanStage& stage, const MemoryPlan& memory, const pdcrt::ScheduleStage& shape,
                  const pdcrt::Training& training) {
  stage.reducedBytes = memory.trainedBytes;
  stage.handoverBytes = static_cast<std::int64_t>(memory.bytes.handover);
  if (!memory.earlyUpdates.empty()) stage.gradientBytes = static_cast<std::int64_t>(memory.bytes.gradients);
  stage.optimizerBytes = static_cast<std::int64_t>(optimizerBytesOf(memory, shape, training));
}

Status checkFits(const PlanRank& rank, std::int64_t bytes, std::int64_t limit, std::int64_t checkpointCopy,
                 Diagnostics& diags) {
  if (bytes > limit)
    return diags.error({}).exit(ExitCode::noPlan).help("allow more devices, or a smaller --batch")
           << "rank " << rank.rank << " needs " << bytes << " bytes, the device has " << limit;
  if (checkpointCopy > limit - bytes)
    diags.warning({}).help("allow more devices, or run without --checkpoint-dir")
        << "rank " << rank.rank << " needs " << bytes << " bytes, and " << checkpointCopy
        << " more for the copy that a checkpoint is written from, the device has " << limit;
  return success;
}

} // namespace

std::int64_t pdc::memoryLimitOf(const Plan& plan, const PlanRank& rank) {
  std::int64_t limit = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t leaf : rank.devices) {
    const DeviceKind& device = plan.cluster.deviceAt(leaf);
    limit = std::min(limit, device.memoryBytes - device.reservedBytes);
  }
  return limit;
}

Expected<std::vector<std::int64_t>> pdc::fillInMemory(Plan& plan, const pdcrt::Schedule& schedule,
                                                      const std::vector<MemoryPlan>& memories,
                                                      const pdcrt::Training& training, Target target,
                                                      Diagnostics& diags) {
  for (PlanStage& stage : plan.stages) stage.memoryBytes = 0;
  std::vector<std::int64_t> least(plan.stages.size(), 0);
  for (const PlanRank& rank : plan.ranks) {
    const ArenaBytes bytes = arenaOf(rank, schedule, memories, training);
    for (const PlanRank::Host& host : rank.hosts) {
      const auto s = static_cast<std::size_t>(host.stage);
      plan.stages[s].memoryBytes = std::max(plan.stages[s].memoryBytes, bytes.arena);
      least[s] = std::max(least[s], bytes.least);
      fillInBlocks(plan.stages[s], memories[s], schedule.stages[s], training);
    }
    // The copy for a checkpoint is in the memory of the host.
    const std::int64_t copy = target == Target::cpu ? checkpointCopyOf(rank, schedule, memories, training) : 0;
    if (!checkFits(rank, bytes.arena, memoryLimitOf(plan, rank), copy, diags)) return failure;
  }
  return least;
}
