// Schedules as data: what versions and updates follow from the header, whether the parts fit, and the expansion of the
// endless lists to a number of minibatches. The text form is in ScheduleText.cpp.
#include "pdcrt/Schedule.h"

#include <algorithm>

using namespace pdcrt;

bool pdcrt::isTransfer(ActionKind kind) {
  return kind == ActionKind::sendForward || kind == ActionKind::receiveForward || kind == ActionKind::sendBackward ||
         kind == ActionKind::receiveBackward;
}

bool pdcrt::isForwardTransfer(ActionKind kind) {
  return kind == ActionKind::sendForward || kind == ActionKind::receiveForward;
}

bool pdcrt::isComputation(ActionKind kind) {
  return !isTransfer(kind) && kind != ActionKind::allReduce;
}

std::int64_t Schedule::minibatchesOfUpdate(int stage) const {
  return minibatchesPerUpdate > 0 ? minibatchesPerUpdate : stages[stage].replicas;
}

std::int64_t Schedule::updateFirst(int stage, std::int64_t version) const {
  return (version - 1) * minibatchesOfUpdate(stage);
}

std::int64_t Schedule::updateLast(int stage, std::int64_t version) const {
  return version * minibatchesOfUpdate(stage);
}

std::int64_t Schedule::updates(int stage, std::int64_t minibatches) const {
  std::int64_t each = minibatchesOfUpdate(stage);
  return (minibatches + each - 1) / each;
}

std::int64_t Schedule::versionUsed(int stage, std::int64_t minibatch) const {
  if (minibatchesPerUpdate > 0) return minibatch / minibatchesPerUpdate;
  auto stashed = [&](const ScheduleStage& s) {
    return std::max<std::int64_t>(0, minibatch / s.replicas - s.warmup - s.syncDelay);
  };
  if (weights == WeightPolicy::verticalSync) return stages[0].replicas * stashed(stages[0]) / stages[stage].replicas;
  return stashed(stages[stage]);
}

int Schedule::rankOf(int stage, int replica) const {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (const Host& host : ranks[rank].hosts)
      if (host == Host{stage, replica}) return static_cast<int>(rank);
  return -1;
}

int Schedule::edgeBetween(int a, int b) const {
  if (a > b) std::swap(a, b);
  for (std::size_t i = 0; i < edges.size(); ++i)
    if (edges[i].from == a && edges[i].to == b) return static_cast<int>(i);
  return -1;
}

/// What is wrong with an action of `rank`; empty if nothing is.
static std::string problemOf(const Schedule& schedule, const RankList& rank, const Action& action) {
  auto hosted =
      std::find_if(rank.hosts.begin(), rank.hosts.end(), [&](const Host& host) { return host.stage == action.stage; });
  if (hosted == rank.hosts.end())
    return "'" + toString(action) + "' is an action of stage " + std::to_string(action.stage) +
           ", which is not hosted here";
  bool versioned = action.kind == ActionKind::update || action.kind == ActionKind::allReduce;
  if (versioned && action.index < 1) return "'" + toString(action) + "': versions that an update makes count from 1";
  if (!versioned && action.index % schedule.stages[action.stage].replicas != hosted->replica)
    return "'" + toString(action) + "': minibatch " + std::to_string(action.index) + " belongs to replica " +
           std::to_string(action.index % schedule.stages[action.stage].replicas) + ", this is replica " +
           std::to_string(hosted->replica);
  if (!isTransfer(action.kind)) return {};

  int edge = schedule.edgeBetween(action.stage, action.peer);
  bool values = isForwardTransfer(action.kind);
  bool send = action.kind == ActionKind::sendForward || action.kind == ActionKind::sendBackward;
  bool exists = edge >= 0 && (values ? schedule.edges[edge].forward : schedule.edges[edge].backward);
  bool downstream = action.peer > action.stage; // values leave towards later stages, gradients towards earlier ones
  if (!exists || downstream != (values == send))
    return "'" + toString(action) + "': there is no edge for it between stages " + std::to_string(action.stage) +
           " and " + std::to_string(action.peer);
  return {};
}

static std::string problemOf(const ScheduleEdge& edge, const EdgeRings& rings, int stages) {
  std::string name = "edge " + std::to_string(edge.from) + ">" + std::to_string(edge.to);
  if (edge.from < 0 || edge.from >= edge.to || edge.to >= stages) return name + " does not lead to a later stage";
  if (!edge.forward && !edge.backward) return name + " has no direction";
  if (edge.forward && (rings.forwardSend < 1 || rings.forwardReceive < 1))
    return name + " has a forward ring of size 0";
  if (edge.backward && (rings.backwardSend < 1 || rings.backwardReceive < 1))
    return name + " has a backward ring of size 0";
  return {};
}

bool pdcrt::isWellFormed(const Schedule& schedule, std::string& error) {
  auto fail = [&](std::string text) {
    error = std::move(text);
    return false;
  };
  if (schedule.stages.empty()) return fail("expected at least one stage");
  int stages = static_cast<int>(schedule.stages.size());
  std::vector<std::vector<int>> hosts(stages);
  for (int s = 0; s < stages; ++s) {
    const ScheduleStage& stage = schedule.stages[s];
    if (stage.replicas < 1 || stage.slots < 1 || stage.versions < 1 || stage.warmup < 0 || stage.syncDelay < 0)
      return fail("stage " + std::to_string(s) + " needs at least one replica, slot and version");
    hosts[s].assign(stage.replicas, 0);
  }
  if (schedule.minibatchesPerUpdate < 0) return fail("minibatches-per-update is negative");
  if (schedule.rings.size() != schedule.edges.size()) return fail("every edge needs its rings");
  for (std::size_t i = 0; i < schedule.edges.size(); ++i) {
    const ScheduleEdge& edge = schedule.edges[i];
    if (std::string text = problemOf(edge, schedule.rings[i], stages); !text.empty()) return fail(text);
    if (i > 0 && std::pair(schedule.edges[i - 1].from, schedule.edges[i - 1].to) >= std::pair(edge.from, edge.to))
      return fail("edges are not sorted by (from, to)");
  }
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    const RankList& rank = schedule.ranks[r];
    std::string name = "rank " + std::to_string(r);
    if (rank.hosts.empty()) return fail(name + " hosts nothing");
    if (rank.step < 1) return fail(name + " has a step below 1");
    for (const Host& host : rank.hosts) {
      if (host.stage < 0 || host.stage >= stages || host.replica < 0 ||
          host.replica >= schedule.stages[host.stage].replicas)
        return fail(name + " hosts " + std::to_string(host.stage) + "." + std::to_string(host.replica) +
                    ", which does not exist");
      if (++hosts[host.stage][host.replica] > 1)
        return fail(std::to_string(host.stage) + "." + std::to_string(host.replica) +
                    " is hosted by more than one rank");
      if (rank.step % schedule.minibatchesOfUpdate(host.stage) != 0 ||
          rank.step % schedule.stages[host.stage].replicas != 0)
        return fail("the step " + std::to_string(rank.step) + " of " + name + " is not a multiple of the " +
                    std::to_string(schedule.minibatchesOfUpdate(host.stage)) + " minibatches of an update and the " +
                    std::to_string(schedule.stages[host.stage].replicas) + " replicas");
    }
    for (const std::vector<Action>* list : {&rank.start, &rank.repeat})
      for (const Action& action : *list)
        if (std::string text = problemOf(schedule, rank, action); !text.empty()) return fail(name + ": " + text);
  }
  for (int s = 0; s < stages; ++s)
    for (std::size_t q = 0; q < hosts[s].size(); ++q)
      if (hosts[s][q] == 0) return fail("no rank hosts " + std::to_string(s) + "." + std::to_string(q));
  return true;
}

std::vector<Action> pdcrt::expand(const Schedule& schedule, int rank, std::int64_t minibatches) {
  const RankList& list = schedule.ranks[rank];
  std::vector<Action> result;
  auto append = [&](Action action) {
    bool versioned = action.kind == ActionKind::update || action.kind == ActionKind::allReduce;
    std::int64_t first = versioned ? schedule.updateFirst(action.stage, action.index) : action.index;
    if (first >= minibatches) return false;
    result.push_back(action);
    return true;
  };
  for (const Action& action : list.start) append(action);
  // Everything in a round is later than in the round before, so the first round that adds nothing is the last.
  for (std::int64_t round = 0, added = 1; added > 0; ++round) {
    added = 0;
    for (Action action : list.repeat) {
      bool versioned = action.kind == ActionKind::update || action.kind == ActionKind::allReduce;
      action.index += round * list.step / (versioned ? schedule.minibatchesOfUpdate(action.stage) : 1);
      added += append(action);
    }
  }
  return result;
}

std::vector<Action> pdcrt::expandEvaluation(const Schedule& schedule, int rank, std::int64_t minibatches) {
  std::vector<Action> result;
  auto transfer = [&](ActionKind kind, bool wait, const ScheduleEdge& edge, std::int64_t minibatch) {
    if (minibatch < 0 || minibatch >= minibatches) return;
    bool send = kind == ActionKind::sendForward;
    result.push_back({kind, wait, send ? edge.from : edge.to, send ? edge.to : edge.from, minibatch});
  };
  auto forEachEdge = [&](int stage, int ScheduleEdge::*end, auto&& visit) {
    for (std::size_t i = 0; i < schedule.edges.size(); ++i)
      if (schedule.edges[i].forward && schedule.edges[i].*end == stage) visit(schedule.edges[i], schedule.rings[i]);
  };
  const std::vector<Host>& hosts = schedule.ranks[rank].hosts;
  for (const Host& host : hosts)
    forEachEdge(host.stage, &ScheduleEdge::to, [&](const ScheduleEdge& edge, const EdgeRings& rings) {
      int replicas = schedule.stages[host.stage].replicas;
      std::int64_t first = std::min(minibatches, std::int64_t{rings.forwardReceive} * replicas);
      for (std::int64_t b = host.replica; b < first; b += replicas)
        transfer(ActionKind::receiveForward, false, edge, b);
    });
  for (std::int64_t b = 0; b < minibatches; ++b)
    for (const Host& host : hosts) {
      int replicas = schedule.stages[host.stage].replicas;
      if (b % replicas != host.replica) continue;
      forEachEdge(host.stage, &ScheduleEdge::from, [&](const ScheduleEdge& edge, const EdgeRings& rings) {
        transfer(ActionKind::sendForward, true, edge, b - std::int64_t{rings.forwardSend} * replicas);
      });
      forEachEdge(host.stage, &ScheduleEdge::to, [&](const ScheduleEdge& edge, const EdgeRings&) {
        transfer(ActionKind::receiveForward, true, edge, b);
      });
      result.push_back({ActionKind::evaluate, false, host.stage, -1, b});
      forEachEdge(host.stage, &ScheduleEdge::from, [&](const ScheduleEdge& edge, const EdgeRings&) {
        transfer(ActionKind::sendForward, false, edge, b);
      });
      forEachEdge(host.stage, &ScheduleEdge::to, [&](const ScheduleEdge& edge, const EdgeRings& rings) {
        transfer(ActionKind::receiveForward, false, edge, b + std::int64_t{rings.forwardReceive} * replicas);
      });
    }
  // The sends that no later minibatch of the same buffer has awaited.
  for (std::int64_t b = 0; b < minibatches; ++b)
    for (const Host& host : hosts) {
      int replicas = schedule.stages[host.stage].replicas;
      if (b % replicas != host.replica) continue;
      forEachEdge(host.stage, &ScheduleEdge::from, [&](const ScheduleEdge& edge, const EdgeRings& rings) {
        if (b + std::int64_t{rings.forwardSend} * replicas >= minibatches)
          transfer(ActionKind::sendForward, true, edge, b);
      });
    }
  return result;
}
