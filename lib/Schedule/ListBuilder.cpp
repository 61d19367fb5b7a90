#include "ListBuilder.h"

#include <algorithm>
#include <numeric>

using namespace pdc;
using pdcrt::Action;
using pdcrt::ActionKind;

/// Versions that a stage keeps, by the formulas of docs/Runtime.md.
static int versionsOf(const PipelineShape& shape, std::size_t s) {
  if (shape.microbatches > 0 || shape.weights == pdcrt::WeightPolicy::latest) return 1;
  const StageShape& stage = shape.stages[s];
  if (shape.weights == pdcrt::WeightPolicy::stash) return stage.warmup + 1;
  // Vertical sync: the version that the input stage used, in units of this stage's updates.
  const StageShape& input = shape.stages[0];
  int ahead =
      input.replicas * (input.warmup + input.syncDelay) + input.replicas - std::gcd(input.replicas, stage.replicas);
  return (ahead + stage.replicas - 1) / stage.replicas - stage.syncDelay + 1;
}

pdcrt::Schedule pdc::emptySchedule(const PipelineShape& shape, std::string kind) {
  pdcrt::Schedule schedule;
  schedule.kind = std::move(kind);
  schedule.weights = shape.weights;
  schedule.minibatchesPerUpdate = shape.microbatches;
  for (std::size_t s = 0; s < shape.stages.size(); ++s) {
    const StageShape& stage = shape.stages[s];
    schedule.stages.push_back({.replicas = stage.replicas,
                               .warmup = stage.warmup,
                               .syncDelay = stage.syncDelay,
                               .slots = stage.warmup + 1,
                               .versions = versionsOf(shape, s)});
    for (int q = 0; q < stage.replicas; ++q) schedule.ranks.push_back({.hosts = {{static_cast<int>(s), q}}});
  }
  schedule.edges = shape.edges;
  for (const pdcrt::ScheduleEdge& edge : shape.edges) {
    const StageShape &from = shape.stages[edge.from], &to = shape.stages[edge.to];
    // A gradient that overtakes the chain of stages between waits in its buffer for as long as the minibatch is in
    // flight.
    int backwardReceive = edge.to > edge.from + 1 ? std::max(2, from.warmup + 1) : 2;
    schedule.rings.push_back({.forwardSend = edge.forward ? from.warmup + 1 : 0,
                              .forwardReceive = edge.forward ? to.warmup + 2 : 0,
                              .backwardSend = edge.backward ? 2 : 0,
                              .backwardReceive = edge.backward ? backwardReceive : 0});
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
}

/// Calls visit(peer, ring) for each edge over which the stage does `kind`, nearest stage first.
template <class Visit>
void ListBuilder::forEachPort(ActionKind kind, Visit visit) const {
  for (const Port& port : ports_[static_cast<std::size_t>(kind) - static_cast<std::size_t>(ActionKind::sendForward)])
    visit(port.peer, port.ring);
}

void ListBuilder::transfer(std::vector<Action>& list, ActionKind kind, bool wait, int peer, std::int64_t local) const {
  if (local >= 0)
    list.push_back({kind, wait, host_.stage, peer, local * schedule_.stages[host_.stage].replicas + host_.replica});
}

void ListBuilder::firstReceives(std::vector<Action>& list) const {
  for (ActionKind kind : {ActionKind::receiveForward, ActionKind::receiveBackward})
    forEachPort(kind, [&](int peer, int ring) {
      for (std::int64_t k = 0; k < ring; ++k) transfer(list, kind, false, peer, k);
    });
}

void ListBuilder::forward(std::vector<Action>& list, std::int64_t k) const {
  forEachPort(ActionKind::sendForward,
              [&](int peer, int ring) { transfer(list, ActionKind::sendForward, true, peer, k - ring); });
  forEachPort(ActionKind::receiveForward,
              [&](int peer, int) { transfer(list, ActionKind::receiveForward, true, peer, k); });
  transfer(list, ActionKind::forward, false, -1, k);
  forEachPort(ActionKind::sendForward, [&](int peer, int) { transfer(list, ActionKind::sendForward, false, peer, k); });
}

void ListBuilder::backward(std::vector<Action>& list, std::int64_t j) const {
  forEachPort(ActionKind::sendBackward,
              [&](int peer, int ring) { transfer(list, ActionKind::sendBackward, true, peer, j - ring); });
  forEachPort(ActionKind::receiveBackward,
              [&](int peer, int) { transfer(list, ActionKind::receiveBackward, true, peer, j); });
  transfer(list, ActionKind::backward, false, -1, j);
  forEachPort(ActionKind::sendBackward,
              [&](int peer, int) { transfer(list, ActionKind::sendBackward, false, peer, j); });
  for (ActionKind kind : {ActionKind::receiveBackward, ActionKind::receiveForward})
    forEachPort(kind, [&](int peer, int ring) { transfer(list, kind, false, peer, j + ring); });
}

void ListBuilder::update(std::vector<Action>& list, std::int64_t reduced, std::int64_t updated) const {
  bool replicated = schedule_.stages[host_.stage].replicas > 1;
  if (replicated) list.push_back({ActionKind::allReduce, false, host_.stage, -1, reduced});
  if (updated < 1) return;
  if (replicated) list.push_back({ActionKind::allReduce, true, host_.stage, -1, updated});
  list.push_back({ActionKind::update, false, host_.stage, -1, updated});
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
