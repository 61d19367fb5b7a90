// The memory of a stage replica by definition: a sum of its own, beside pdc/Schedule/StageMemory.h.
#include "Oracle/Definition.h"

#include "pdc/Schedule/PipelineShape.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

using namespace pdc;

int Definition::versions(int stage, const std::vector<int>& warmup) const {
  if (plan_.schedule->hasBatches && !plan_.schedule->flushes) return 2;
  if (plan_.schedule->hasBatches || plan_.weights == pdcrt::WeightPolicy::latest) return 1;
  const Stage &own = stages_[static_cast<std::size_t>(stage)], &input = stages_[0];
  if (plan_.weights == pdcrt::WeightPolicy::stash) return warmup[static_cast<std::size_t>(stage)] + 1;
  double ahead = input.replicas * (warmup[0] + input.delay) + input.replicas - std::gcd(input.replicas, own.replicas);
  return static_cast<int>(std::ceil(ahead / own.replicas)) - own.delay + 1;
}

/// Slots and rings of a stage, as the schedule states them.
std::int64_t Definition::bufferedBySchedule(int s, const std::vector<int>& warmup, std::int64_t saved,
                                            std::int64_t sent, std::int64_t handover) const {
  PipelineShape shape{.kind = plan_.schedule, .microbatches = plan_.microbatches};
  for (std::size_t t = 0; t < stages_.size(); ++t) shape.stages.push_back({stages_[t].replicas, warmup[t], 0});
  std::map<std::pair<int, int>, pdcrt::ScheduleEdge> edges;
  for (const auto& [key, bytes] : trips_) {
    const auto& [from, to, gradient] = key;
    auto [first, last] = std::minmax(from, to);
    pdcrt::ScheduleEdge none{.from = first, .to = last, .backward = false, .forward = false};
    pdcrt::ScheduleEdge& edge = edges.try_emplace({first, last}, none).first->second;
    (gradient ? edge.backward : edge.forward) = true;
  }
  for (const auto& [ends, edge] : edges) shape.edges.push_back(edge);
  const pdcrt::Schedule frame = frameOf(shape);
  auto rings = [&](const Trip& trip) {
    return frame.rings[static_cast<std::size_t>(frame.edgeBetween(trip.from, trip.to))];
  };
  const pdcrt::ScheduleStage& own = frame.stages[static_cast<std::size_t>(s)];
  std::int64_t bytes = (saved + sent) * own.slots + handover * own.handovers;
  for (const Trip& value : values_)
    if (value.to == s) bytes += value.bytes * rings(value).forwardReceive;
  for (const Trip& gradient : gradients_) {
    if (gradient.from == s) bytes += gradient.bytes * rings(gradient).backwardSend;
    if (gradient.to == s) bytes += gradient.bytes * rings(gradient).backwardReceive;
  }
  return bytes;
}

/// Whether the replicas of a stage have their own share of its weights and gradients only: those whose parameters no
/// other stage uses.
bool Definition::isInShards(int s) const {
  if (options_.shard != ShardPolicy::weights || stages_[static_cast<std::size_t>(s)].replicas < 2) return false;
  return std::none_of(tied_.begin(), tied_.end(), [&](const Tied& tied) { return tied.owner == s && tied.user != s; });
}

/// How often the weights are gathered for a batch: once for the forwards and once for the backwards, which the last
/// stage of a rank has one after the other. Whole weights are sent once, after the update.
double Definition::sweepsOf(int s) const {
  const auto count = static_cast<int>(stages_.size());
  if (!isInShards(s)) return 1;
  return s + count / plan_.schedule->stagesPerRank < count ? 2 : 1;
}

/// Bytes that a replica sends for the parameters of a batch, and receives: terms of the sum of all other parts, the own
/// sum to those who own the same shard, and its shard in every all-gather.
double Definition::sentPerBatch(int s) const {
  const Stage& stage = stages_[static_cast<std::size_t>(s)];
  const auto r = static_cast<double>(stage.replicas), d = isInShards(s) ? ownersOf(stage.replicas) : r;
  return stage.parameters * ((r - 1) / r + (r / d - 1) / r + sweepsOf(s) * (d - 1) / d);
}

/// Two places for all parameters of a stage on its rank, and two for gradients where there are as many such stages:
/// counted with the first one.
std::int64_t Definition::placesFor(int s) const {
  if (!isInShards(s)) return 0;
  const auto& leaves = stages_[static_cast<std::size_t>(s)].leaves;
  std::int64_t most = 0, mostGradients = 0, count = 0;
  for (int t = 0; t < static_cast<int>(stages_.size()); ++t) {
    if (!isInShards(t) || stages_[static_cast<std::size_t>(t)].leaves != leaves) continue;
    if (t < s) return 0;
    std::int64_t parameters = 0, gradients = 0;
    for (std::int64_t v : plan_.stages[static_cast<std::size_t>(t)].nodes) {
      parameters += graphOf(t).nodes[static_cast<std::size_t>(v)].parameterBytes;
      gradients += graphOf(t).nodes[static_cast<std::size_t>(v)].gradientBytes;
    }
    for (const Tied& tied : tied_)
      if (tied.owner == t) {
        if (tied.user == t) parameters += tied.bytes;
        gradients += tied.bytes * tied.uses;
      }
    most = std::max(most, parameters);
    mostGradients = std::max(mostGradients, gradients);
    ++count;
  }
  return 2 * most + std::min<std::int64_t>(2, count) * mostGradients;
}

std::int64_t Definition::memory(int s, const std::vector<int>& warmup) const {
  std::int64_t parameters = 0, gradients = 0, saved = 0, sent = 0, scratch = 0, workspace = 0, bytes = 0;
  std::int64_t handover = 0;
  std::int64_t w = warmup[static_cast<std::size_t>(s)];
  for (std::int64_t v : plan_.stages[static_cast<std::size_t>(s)].nodes) {
    const CostNode& node = graphOf(s).nodes[static_cast<std::size_t>(v)];
    parameters += node.parameterBytes;
    bytes += node.frozenBytes;
    gradients += node.gradientBytes;
    saved += node.savedBytes;
    handover += node.handoverBytes;
    scratch = std::max(scratch, node.scratchBytes);
    workspace = std::max(workspace, node.workspaceBytes);
  }
  for (const CostFrozenParameter& frozen : graphOf(s).frozenParameters)
    if (std::any_of(frozen.nodes.begin(), frozen.nodes.end(),
                    [&](std::int64_t v) { return stageOf_[static_cast<std::size_t>(v)] == s; }))
      bytes += frozen.bytes;
  for (const Tied& tied : tied_) {
    if (tied.owner == s) {
      if (tied.user == s) parameters += tied.bytes;
      gradients += tied.bytes * tied.uses; // an accumulator for every use, wherever it is
    } else if (tied.user == s) {
      std::int64_t alive = versions(tied.owner, warmup);
      double owned = stages_[static_cast<std::size_t>(tied.owner)].replicas;
      if (plan_.weights == pdcrt::WeightPolicy::stash)
        alive =
            std::min(alive, static_cast<std::int64_t>(std::ceil(
                                static_cast<double>(w + 1) * stages_[static_cast<std::size_t>(s)].replicas / owned)) +
                                1);
      bytes += tied.bytes * (alive + 2 * tied.uses);
    }
  }
  for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
    if (stageOf_[static_cast<std::size_t>(graph_.tensors[t].from)] != s) continue;
    std::set<std::int64_t> sizes; // as members have it, whole, or both
    for (std::int64_t v : graph_.tensors[t].to)
      if (const int user = stageOf_[static_cast<std::size_t>(v)]; user != s) sizes.insert(sizeBetween(t, s, user));
    sent = std::accumulate(sizes.begin(), sizes.end(), sent);
  }
  bool recompute = plan_.stages[static_cast<std::size_t>(s)].recompute;
  const Stage& own = stages_[static_cast<std::size_t>(s)];
  auto state = static_cast<std::int64_t>(options_.optimizerStatePerParameterByte * static_cast<double>(parameters));
  const int owners = ownersOf(own.replicas);
  if (own.sharded) state = state / owners + (state % owners > 0 ? 1 : 0);
  if (isInShards(s)) {
    const std::int64_t share = parameters / owners + (parameters % owners > 0 ? 1 : 0);
    bytes += 2 * share + state + placesFor(s);
  } else {
    bytes += parameters * versions(s, warmup) + gradients * (own.delay + 1) + state;
  }
  bytes += scratch + workspace;
  if (plan_.schedule->splitsBackward || plan_.schedule->stagesPerRank > 1)
    return bytes + bufferedBySchedule(s, warmup, recompute ? 0 : saved, sent, handover) + (recompute ? saved : 0);
  bytes += handover + (recompute ? saved : saved * (w + 1)) + sent * (w + 1);
  for (const Trip& value : values_)
    if (value.to == s) bytes += value.bytes * (w + 2);
  for (const Trip& gradient : gradients_) {
    if (gradient.from == s) bytes += gradient.bytes * 2;
    if (gradient.to == s) bytes += gradient.bytes * (gradient.from > s + 1 ? std::max<std::int64_t>(2, w + 1) : 2);
  }
  return bytes;
}
