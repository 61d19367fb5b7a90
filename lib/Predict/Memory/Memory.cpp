// The arena of a rank, taken apart.
#include "MemoryParts.h"
#include "pdcrt/Arena.h"

#include <algorithm>

using namespace pdc;

std::int64_t pdc::slotBytesOf(const Plan& plan, int stage) {
  std::int64_t bytes = plan.stages[stage].savedBytes;
  std::vector<std::string> sent;
  for (const PlanTensor& tensor : plan.tensors) {
    if (tensor.from != stage || std::find(sent.begin(), sent.end(), tensor.name) != sent.end()) continue;
    bytes += tensor.bytes;
    sent.push_back(tensor.name);
  }
  return bytes;
}

/// Versions and gradients of shared parameters: at a user, and at their owner for each replica that it serves.
static std::int64_t sharedBuffersOf(const Plan& plan, const pdcrt::Schedule& schedule, int s) {
  std::int64_t bytes = 0;
  for (const PlanSharedParameter& parameter : plan.sharedParameters)
    for (std::size_t i = 1; i < parameter.stages.size(); ++i) {
      const int owner = parameter.stages[0], user = parameter.stages[i];
      const int index = schedule.sharedBetween(owner, user);
      if (index < 0) continue;
      const pdcrt::SharedEdge& edge = schedule.shared[static_cast<std::size_t>(index)];
      const std::int64_t owners = plan.stages[owner].replicas, users = plan.stages[user].replicas;
      if (user == s) bytes += parameter.bytes * (edge.versionReceive + parameter.uses[i] * edge.partSend);
      if (owner == s) bytes += parameter.bytes * parameter.uses[i] * edge.partReceive * ((users + owners - 1) / owners);
    }
  return bytes;
}

/// What the stages with sharded weights have in turn on the rank of stage s, if that is the first of them there.
static void addPlaces(const Plan& plan, const pdcrt::Schedule& schedule, int s, MemorySplit& split) {
  const int at = schedule.rankOf(s, 0);
  if (at < 0) return; // a frame of which the plan has other ranks
  const pdcrt::RankList& rank = schedule.ranks[static_cast<std::size_t>(at)];
  SharedPlaces places;
  for (const pdcrt::Host& host : rank.hosts) {
    const PlanStage& stage = plan.stages[host.stage];
    if (stage.sharding != pdcrt::Sharding::weights) continue;
    if (host.stage < s) return;
    places.add({.parameters = stage.parameterBytes, .gradients = stage.gradientBytes});
    places.spare = places.spare || pdcrt::gradientSets(schedule, host.stage).spare;
  }
  split.weights += places.weightBytes(rank);
  split.gradients += places.gradientBytes(rank);
}

/// The parts of a stage's arena that depend on the schedule, and the others that the plan knows, without scratch and
/// handovers: they are what is left of the plan's total.
static MemorySplit partsOf(const Plan& plan, const std::vector<EdgeTraffic>& traffic, const pdcrt::Schedule& schedule,
                           int s) {
  const PlanStage& stage = plan.stages[s];
  StageBytes bytes{.parameters = stage.parameterBytes,
                   .optimizer = stage.optimizerBytes,
                   .frozen = stage.frozenBytes,
                   .gradients = stage.gradientBytes};
  bytes.savedAs(Keeping::kept) = slotBytesOf(plan, s);
  StageFrame frame = frameOf(schedule, s);
  const bool isInShards = stage.sharding == pdcrt::Sharding::weights;
  if (isInShards) {
    bytes = inShards(bytes, stage.owners());
    frame.gradientSets = 1;
  }
  MemorySplit split = stageMemory(frame, bytes);
  if (isInShards) addPlaces(plan, schedule, s, split);
  split.buffers += ringBytes(schedule, traffic, s) + sharedBuffersOf(plan, schedule, s);
  return split;
}

/// Makes the parts add up to `total`: what is left is workspace, what is missing is taken from the parts.
static void settle(MemorySplit& split, std::int64_t total) {
  std::int64_t left = std::max<std::int64_t>(total, 0);
  for (std::int64_t MemorySplit::*part : {&MemorySplit::weights, &MemorySplit::versions, &MemorySplit::stash,
                                          &MemorySplit::buffers, &MemorySplit::optimizer, &MemorySplit::gradients}) {
    split.*part = std::clamp<std::int64_t>(split.*part, 0, left);
    left -= split.*part;
  }
  split.workspace = left;
}

/// Whether the plan states the arena of this whole rank with each of the stages that it hosts, as generated programs'
/// plans do, and not one part with each, as planners do: then all say the same, and it is room enough for all.
static bool statesWholeRank(const Plan& plan, const pdcrt::RankList& rank, std::int64_t parts) {
  if (rank.hosts.size() < 2 || plan.modelHash.empty()) return false;
  std::int64_t stated = plan.stages[rank.hosts[0].stage].memoryBytes;
  return stated >= parts && std::all_of(rank.hosts.begin(), rank.hosts.end(), [&](const pdcrt::Host& host) {
           return plan.stages[host.stage].memoryBytes == stated;
         });
}

std::vector<MemorySplit> pdc::arenasOf(const Plan& plan, const pdcrt::Schedule& schedule) {
  std::vector<EdgeTraffic> traffic = trafficOf(plan);
  pdcrt::Schedule own = frameOf(shapeOf(plan));
  std::vector<MemorySplit> arenas;
  for (const pdcrt::RankList& rank : schedule.ranks) {
    MemorySplit sum;
    std::int64_t total = 0, ownParts = 0;
    for (const pdcrt::Host& host : rank.hosts) {
      const PlanStage& stage = plan.stages[host.stage];
      MemorySplit parts = partsOf(plan, traffic, schedule, host.stage);
      for (const MemoryPart& part : memoryParts) sum.*part.bytes += parts.*part.bytes;
      std::int64_t stated = partsOf(plan, traffic, own, host.stage).total();
      ownParts += stated;
      const int handovers = schedule.stages[host.stage].handovers, ownHandovers = own.stages[host.stage].handovers;
      total += stage.memoryBytes > 0
                   ? stage.memoryBytes + parts.total() - stated + stage.handoverBytes * (handovers - ownHandovers)
                   : stage.scratchBytes + parts.total() + stage.handoverBytes * handovers;
    }
    if (statesWholeRank(plan, rank, ownParts))
      total = plan.stages[rank.hosts[0].stage].memoryBytes + sum.total() - ownParts;
    settle(sum, total);
    arenas.push_back(sum);
  }
  return arenas;
}
