#include "Kinds/ListBuilder.h"

#include <algorithm>
#include <numeric>

using namespace pdc;
using pdcrt::Action;
using pdcrt::ActionKind;

void pdc::sizeRings(pdcrt::Schedule& schedule) {
  schedule.rings.clear();
  for (const pdcrt::ScheduleEdge& edge : schedule.edges) {
    const pdcrt::ScheduleStage &from = schedule.stages[edge.from], &to = schedule.stages[edge.to];
    const StageDepths there{from.slots, from.handovers}, here{to.slots, to.handovers};
    schedule.rings.push_back(
        {.forwardSend = edge.forward ? from.slots : 0,
         .forwardReceive = edge.forward ? here.valuesReceived() : 0,
         .backwardSend = edge.backward ? StageDepths::gradientsSent : 0,
         .backwardReceive = edge.backward ? there.gradientsReceived(edge.to == edge.from + 1) : 0});
  }
}

pdcrt::Schedule pdc::emptySchedule(const PipelineShape& shape, const ScheduleDef& kind) {
  std::vector<StageShape> stages = shape.stages;
  for (StageShape& stage : stages)
    stage.warmup = kind.warmup(shape.microbatches, stage.replicas).value_or(stage.warmup);
  pdcrt::Schedule schedule;
  schedule.kind = kind.name;
  schedule.weights = kind.weights(shape.weights);
  schedule.minibatchesPerUpdate = shape.microbatches;
  schedule.gradientNorm = shape.gradientNorm;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const StageShape& stage = stages[s];
    const auto number = static_cast<int>(s);
    const StageDepths depths = kind.depths(shape.microbatches, stages[0], stage, number);
    schedule.stages.push_back({.replicas = stage.replicas,
                               .warmup = stage.warmup,
                               .syncDelay = stage.syncDelay,
                               .slots = depths.slots,
                               .versions = kind.versions(shape.weights, stages[0], stage, number),
                               .handovers = depths.handovers,
                               .route = stage.route,
                               .sharding = stage.replicas > 1 ? stage.sharding : pdcrt::Sharding::none,
                               .shardDegree = stage.shardDegree,
                               .teamSums = stage.teamSums});
    for (int q = 0; q < stage.replicas; ++q) schedule.ranks.push_back({.hosts = {{number, q}}});
  }
  schedule.edges = shape.edges;
  sizeRings(schedule);
  for (const auto& [owner, user] : shape.shared) {
    pdcrt::SharedEdge edge{owner, user};
    // Common updates are made after every send of the version before.
    edge.versionSend = shape.microbatches > 0 ? 1 : schedule.stages[owner].versions;
    // Those that minibatches in flight use, and one that arrives.
    std::int64_t each = schedule.minibatchesOfUpdate(owner);
    std::int64_t ahead = static_cast<std::int64_t>(stages[user].warmup) * stages[user].replicas;
    edge.versionReceive = shape.microbatches > 0 ? 2 : static_cast<int>((ahead + each - 1) / each) + 2;
    schedule.shared.push_back(edge);
  }
  return schedule;
}

ListBuilder::ListBuilder(const pdcrt::Schedule& schedule, pdcrt::Host host) : schedule_(schedule), host_(host) {
  for (std::size_t i = 0; i < schedule.edges.size(); ++i) {
    const pdcrt::ScheduleEdge& edge = schedule.edges[i];
    const pdcrt::EdgeRings& rings = schedule.rings[i];
    if (edge.from == host.stage) {
      if (edge.forward) ports_[0].push_back({edge.to, rings.forwardSend});
      if (edge.backward) ports_[3].push_back({edge.to, rings.backwardReceive});
    }
    if (edge.to == host.stage) {
      if (edge.forward) ports_[1].push_back({edge.from, rings.forwardReceive});
      if (edge.backward) ports_[2].push_back({edge.from, rings.backwardSend});
    }
  }
  // Edges are sorted by (from, to): the nearest later stage comes first, the nearest earlier stage last.
  for (std::size_t kind : {1, 2}) std::reverse(ports_[kind].begin(), ports_[kind].end());
  for (const pdcrt::SharedEdge& edge : schedule.shared) {
    if (edge.owner == host.stage) owned_.push_back(&edge);
    if (edge.user == host.stage) used_.push_back(&edge);
  }
}

std::int64_t ListBuilder::stepMinibatches() const {
  std::int64_t step = schedule_.stages[host_.stage].replicas;
  for (const pdcrt::SharedEdge* edge : used_) step = std::lcm(step, schedule_.minibatchesOfUpdate(edge->owner));
  // Versions grow with those of stage 0.
  if (schedule_.weights == pdcrt::WeightPolicy::verticalSync && stage().isSharded())
    step = std::lcm(step, schedule_.minibatchesOfUpdate(0));
  return step;
}

std::int64_t ListBuilder::minibatch(std::int64_t local) const {
  return schedule_.routing(host_.stage).minibatch(local, host_.replica);
}

void ListBuilder::share(std::vector<Action>& list, ActionKind kind, bool wait, int peer, std::int64_t version) const {
  if (version >= 1) list.push_back({kind, wait, host_.stage, peer, version});
}

/// Posts the receives of the versions for which there is room while the minibatches from local `oldest` on are not
/// done, but not again those for which there was room while `before` was not done (-1: none).
void ListBuilder::receiveVersions(std::vector<Action>& list, std::int64_t before, std::int64_t oldest) const {
  for (const pdcrt::SharedEdge* edge : used_) {
    auto newest = [&](std::int64_t local) {
      std::int64_t v = schedule_.versionUsed(edge->owner, minibatch(local));
      for (int room = edge->versionReceive - 1; room > 0; --room) do
          ++v;
        while (!schedule_.takesVersion(*edge, host_.replica, v));
      return v;
    };
    for (std::int64_t v = before < 0 ? 1 : newest(before) + 1, last = newest(oldest); v <= last; ++v)
      if (schedule_.takesVersion(*edge, host_.replica, v))
        share(list, ActionKind::receiveVersion, false, edge->owner, v);
  }
}

/// Calls visit(peer, ring) for each edge over which the stage does `kind`, nearest stage first.
template <class Visit>
void ListBuilder::forEachPort(ActionKind kind, Visit visit) const {
  for (const Port& port : ports_[static_cast<std::size_t>(kind) - static_cast<std::size_t>(ActionKind::sendForward)])
    visit(port.peer, port.ring);
}

void ListBuilder::transfer(std::vector<Action>& list, ActionKind kind, bool wait, int peer, std::int64_t local) const {
  if (local >= 0) list.push_back({kind, wait, host_.stage, peer, minibatch(local)});
}

void ListBuilder::firstReceives(std::vector<Action>& list) const {
  for (ActionKind kind : {ActionKind::receiveForward, ActionKind::receiveBackward})
    forEachPort(kind, [&](int peer, int ring) {
      for (std::int64_t k = 0; k < ring; ++k) transfer(list, kind, false, peer, k);
    });
  receiveVersions(list, -1, 0);
  for (const pdcrt::SharedEdge* edge : owned_)
    for (int v = 1; v <= edge->partReceive; ++v) share(list, ActionKind::receivePart, false, edge->user, v);
}

void ListBuilder::forward(std::vector<Action>& list, std::int64_t k) const {
  forEachPort(ActionKind::sendForward,
              [&](int peer, int ring) { transfer(list, ActionKind::sendForward, true, peer, k - ring); });
  forEachPort(ActionKind::receiveForward,
              [&](int peer, int) { transfer(list, ActionKind::receiveForward, true, peer, k); });
  for (const pdcrt::SharedEdge* edge : used_) {
    std::int64_t version = schedule_.versionUsed(edge->owner, minibatch(k));
    if (version > (k > 0 ? schedule_.versionUsed(edge->owner, minibatch(k - 1)) : 0))
      share(list, ActionKind::receiveVersion, true, edge->owner, version);
  }
  awaitGathered(list, schedule_.versionUsed(host_.stage, minibatch(k)));
  awaitUnsharded(list);
  transfer(list, ActionKind::forward, false, -1, k);
  forEachPort(ActionKind::sendForward, [&](int peer, int) { transfer(list, ActionKind::sendForward, false, peer, k); });
}

void ListBuilder::backward(std::vector<Action>& list, std::int64_t j) const {
  awaitGradients(list, j);
  awaitParts(list, j);
  awaitUnsharded(list);
  transfer(list, ActionKind::backward, false, -1, j);
  sendGradients(list, j);
  freeBuffers(list, j);
}

void ListBuilder::backwardInput(std::vector<Action>& list, std::int64_t j) const {
  awaitGradients(list, j);
  awaitParts(list, j);
  awaitUnsharded(list);
  transfer(list, ActionKind::backwardInput, false, -1, j);
  sendGradients(list, j);
}

void ListBuilder::backwardWeight(std::vector<Action>& list, std::int64_t j) const {
  awaitUnsharded(list);
  transfer(list, ActionKind::backwardWeight, false, -1, j);
  freeBuffers(list, j);
}

/// Waits for the gradients of j, and for the buffer into which those that it sends are written.
void ListBuilder::awaitGradients(std::vector<Action>& list, std::int64_t j) const {
  forEachPort(ActionKind::sendBackward,
              [&](int peer, int ring) { transfer(list, ActionKind::sendBackward, true, peer, j - ring); });
  forEachPort(ActionKind::receiveBackward,
              [&](int peer, int) { transfer(list, ActionKind::receiveBackward, true, peer, j); });
}

void ListBuilder::sendGradients(std::vector<Action>& list, std::int64_t j) const {
  forEachPort(ActionKind::sendBackward,
              [&](int peer, int) { transfer(list, ActionKind::sendBackward, false, peer, j); });
}

/// Where j is the first minibatch of an update of shared parameters: waits for the buffer of its gradients. Either half
/// of a backward may write them.
void ListBuilder::awaitParts(std::vector<Action>& list, std::int64_t j) const {
  for (const pdcrt::SharedEdge* edge : used_) {
    std::int64_t each = schedule_.minibatchesOfUpdate(edge->owner), part = minibatch(j) / each + 1;
    if (j > 0 && minibatch(j - 1) / each + 1 == part) continue; // the buffer is in use already
    for (int i = 0; i < edge->partSend && part > 0; ++i) do
        --part;
      while (part > 0 && !schedule_.hasPart(*edge, host_.replica, part));
    share(list, ActionKind::sendPart, true, edge->owner, part);
  }
}

/// Uses the buffers that nobody needs when j is done for what comes next, and sends gradients that are complete.
void ListBuilder::freeBuffers(std::vector<Action>& list, std::int64_t j) const {
  for (ActionKind kind : {ActionKind::receiveBackward, ActionKind::receiveForward})
    forEachPort(kind, [&](int peer, int ring) { transfer(list, kind, false, peer, j + ring); });
  for (const pdcrt::SharedEdge* edge : used_) {
    std::int64_t each = schedule_.minibatchesOfUpdate(edge->owner), part = minibatch(j) / each + 1;
    if (minibatch(j + 1) / each + 1 > part) share(list, ActionKind::sendPart, false, edge->owner, part);
  }
  receiveVersions(list, j, j + 1);
}

void ListBuilder::unshard(std::vector<Action>& list) const {
  list.push_back({ActionKind::unshard, false, host_.stage, -1, ++unshards_});
}

void ListBuilder::reshard(std::vector<Action>& list) const {
  awaitUnsharded(list);
  list.push_back({ActionKind::reshard, false, host_.stage, -1, ++reshards_});
}

void ListBuilder::awaitUnsharded(std::vector<Action>& list) const {
  while (unsharded_ < unshards_) list.push_back({ActionKind::unshard, true, host_.stage, -1, ++unsharded_});
}

void ListBuilder::reduce(std::vector<Action>& list, std::int64_t version) const {
  if (version <= reduced_) return;
  reduced_ = version;
  for (const pdcrt::SharedEdge* edge : owned_) share(list, ActionKind::receivePart, true, edge->user, version);
  if (stage().sums()) list.push_back({stage().sum(), false, host_.stage, -1, version});
}

void ListBuilder::awaitReduced(std::vector<Action>& list, std::int64_t version) const {
  if (!stage().sums()) return;
  while (sums_ < std::min(version, reduced_)) list.push_back({stage().sum(), true, host_.stage, -1, ++sums_});
}

/// Waits until all replicas have all of the weights of a version, and of those before it.
void ListBuilder::awaitGathered(std::vector<Action>& list, std::int64_t version) const {
  if (stage().sharding != pdcrt::Sharding::optimizer) return;
  while (gathered_ < version) list.push_back({ActionKind::allGather, true, host_.stage, -1, ++gathered_});
}

void ListBuilder::norm(std::vector<Action>& list, std::int64_t version) const {
  if (!schedule_.hasNorm(host_.stage) || version < 1) return;
  awaitReduced(list, version);
  list.push_back({ActionKind::gradientNorm, false, host_.stage, -1, version});
}

void ListBuilder::update(std::vector<Action>& list, std::int64_t version) const {
  if (version < 1) return;
  if (schedule_.hasNorm(host_.stage))
    list.push_back({ActionKind::gradientNorm, true, host_.stage, -1, version});
  else
    awaitReduced(list, version);
  awaitGathered(list, version - stage().versions); // in its place the new one is written
  for (const pdcrt::SharedEdge* edge : owned_)
    share(list, ActionKind::sendVersion, true, edge->user, version - edge->versionSend);
  list.push_back({ActionKind::update, false, host_.stage, -1, version});
  if (stage().sharding == pdcrt::Sharding::optimizer)
    list.push_back({ActionKind::allGather, false, host_.stage, -1, version});
  if (!owned_.empty()) awaitGathered(list, version);
  for (const pdcrt::SharedEdge* edge : owned_) {
    share(list, ActionKind::sendVersion, false, edge->user, version);
    share(list, ActionKind::receivePart, false, edge->user, version + edge->partReceive);
  }
}

/// From this local minibatch on no version that sharing waits for is below 1.
std::int64_t ListBuilder::steadySharing() const {
  std::int64_t replicas = schedule_.stages[host_.stage].replicas, steady = 0;
  for (const pdcrt::SharedEdge* edge : used_) {
    const pdcrt::ScheduleStage& owner = schedule_.stages[edge->owner];
    std::int64_t each = schedule_.minibatchesOfUpdate(edge->owner);
    std::int64_t versions = owner.warmup + owner.syncDelay + edge->partSend + 3;
    steady = std::max(steady, (versions * each + 2 * edge->partSend * replicas) / replicas + 1);
  }
  for (const pdcrt::SharedEdge* edge : owned_)
    steady = std::max(steady, edge->versionSend + schedule_.stages[host_.stage].syncDelay +
                                  schedule_.minibatchesOfUpdate(host_.stage) / replicas + 1);
  return steady;
}

std::int64_t ListBuilder::steadyGathering() const {
  if (stage().sharding != pdcrt::Sharding::optimizer) return 0;
  // Two versions are behind by one batch; a stage that updates by itself by what it, or stage 0, has in flight.
  if (schedule_.minibatchesPerUpdate > 0)
    return stage().routing().localCount(2 * schedule_.minibatchesPerUpdate, host_.replica) + 1;
  const pdcrt::ScheduleStage& input = schedule_.stages[0];
  const std::int64_t ahead = std::int64_t{input.warmup + input.syncDelay + 1} * input.replicas;
  return stage().warmup + stage().syncDelay + stage().versions + ahead / stage().replicas + 2;
}

std::int64_t ListBuilder::steady() const {
  return std::max({steadyForward(), steadyBackward(), steadySharing(), steadyGathering()});
}

std::int64_t ListBuilder::steadyForward() const {
  std::int64_t steady = 0;
  forEachPort(ActionKind::sendForward, [&](int, int ring) { steady = std::max<std::int64_t>(steady, ring); });
  return steady;
}

std::int64_t ListBuilder::steadyBackward() const {
  std::int64_t steady = 0;
  forEachPort(ActionKind::sendBackward, [&](int, int ring) { steady = std::max<std::int64_t>(steady, ring); });
  return steady;
}
