// Schedules as data: what versions and updates follow from the header, and whether the parts fit. The text form is in
// ScheduleText.cpp; machine/ListCursor.h walks the endless lists.
#include "pdcrt/Schedule.h"

#include <algorithm>
#include <numeric>

using namespace pdcrt;

static constexpr std::int64_t mostProcesses = 1 << 20;

std::int64_t Schedule::minibatchesOfUpdate(int stage) const {
  return minibatchesPerUpdate > 0 ? minibatchesPerUpdate : stages[stage].replicas;
}

std::int64_t Schedule::mostOfUpdate(int stage) const {
  const Routing routes = routing(stage);
  const std::int64_t each = minibatchesOfUpdate(stage), period = std::lcm(each, routes.length());
  std::int64_t most = 0;
  for (std::int64_t first = 0; first < period; first += each)
    for (int r = 0; r < routes.replicas(); ++r)
      most = std::max(most, routes.localCount(first + each, r) - routes.localCount(first, r));
  return most;
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
  if (minibatchesPerUpdate > 0) {
    std::int64_t batch = minibatch / minibatchesPerUpdate;
    return weights == WeightPolicy::twoVersions ? std::max<std::int64_t>(0, batch - 1) : batch;
  }
  auto stashed = [&](int s) {
    const ScheduleStage& of = stages[s];
    return std::max<std::int64_t>(0, minibatch / minibatchesOfUpdate(s) - of.warmup - of.syncDelay);
  };
  if (weights == WeightPolicy::verticalSync) return minibatchesOfUpdate(0) * stashed(0) / minibatchesOfUpdate(stage);
  return stashed(stage);
}

int Schedule::rankOf(int stage, int replica) const {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (const Host& host : ranks[rank].hosts)
      if (host == Host{stage, replica}) return static_cast<int>(rank);
  return -1;
}

int Schedule::sumPlace(const RankList& rank, int stage) const {
  int before = 0;
  for (const Host& host : rank.hosts) {
    if (host.stage == stage) break;
    before += stages[host.stage].sharding == Sharding::weights;
  }
  return before % rank.sums;
}

int Schedule::edgeBetween(int a, int b) const {
  if (a > b) std::swap(a, b);
  auto edge = std::lower_bound(edges.begin(), edges.end(), std::pair(a, b),
                               [](const ScheduleEdge& e, auto ends) { return std::pair(e.from, e.to) < ends; });
  return edge != edges.end() && edge->from == a && edge->to == b ? static_cast<int>(edge - edges.begin()) : -1;
}

int Schedule::sharedBetween(int a, int b) const {
  if (a > b) std::swap(a, b);
  for (std::size_t i = 0; i < shared.size(); ++i)
    if (shared[i].owner == a && shared[i].user == b) return static_cast<int>(i);
  return -1;
}

bool Schedule::hasPart(const SharedEdge& edge, int q, std::int64_t version) const {
  return routing(edge.user).hasOneOf(updateFirst(edge.owner, version), updateLast(edge.owner, version), q);
}

bool Schedule::takesVersion(const SharedEdge& edge, int q, std::int64_t version) const {
  // The minibatches that use version v > 0 are those of an update some versions later.
  if (minibatchesPerUpdate > 0) return hasPart(edge, q, version + (weights == WeightPolicy::twoVersions ? 2 : 1));
  const ScheduleStage& owner = stages[edge.owner];
  return hasPart(edge, q, version + owner.warmup + owner.syncDelay + 1);
}

int Schedule::versionedStage(const Action& action) const {
  return isTied(action.kind) ? std::min(action.stage, action.peer) : action.stage;
}

std::int64_t Schedule::perUpdate(const Action& action) const {
  return kindRow(action.kind).index == Counted::sweeps ? stages[action.stage].sweeps : 1;
}

std::int64_t Schedule::advanceOf(const Action& action, std::int64_t minibatches) const {
  if (!isVersioned(action.kind)) return minibatches;
  return minibatches / minibatchesOfUpdate(versionedStage(action)) * perUpdate(action);
}

std::int64_t Schedule::endOf(const Action& action, std::int64_t minibatches) const {
  // Minibatches count from 0, versions from 1; the update of the last minibatch is the last one.
  if (!isVersioned(action.kind)) return minibatches;
  return updates(versionedStage(action), minibatches) * perUpdate(action) + 1;
}

/// What the stage of an action would need for it; empty if it has that.
static std::string shardProblem(const Schedule& schedule, const Action& action) {
  const Sharding own = schedule.stages[action.stage].sharding;
  switch (action.kind) {
  case ActionKind::allReduce: return own == Sharding::none ? "" : "the gradients of a sharded stage are summed by RS";
  case ActionKind::reduceScatter: return own == Sharding::none ? "needs a stage with 'shard'" : "";
  case ActionKind::allGather: return own == Sharding::optimizer ? "" : "needs a stage with 'shard optimizer'";
  case ActionKind::unshard:
  case ActionKind::reshard: return own == Sharding::weights ? "" : "needs a stage with 'shard weights'";
  case ActionKind::gradientNorm: return schedule.hasNorm(action.stage) ? "" : "needs a stage with 'shard'";
  default: return "";
  }
}

/// What is wrong with an action of `rank`; empty if nothing is.
static std::string problemOfAction(const Schedule& schedule, const RankList& rank, const Action& action) {
  auto hosted =
      std::find_if(rank.hosts.begin(), rank.hosts.end(), [&](const Host& host) { return host.stage == action.stage; });
  if (hosted == rank.hosts.end())
    return "'" + toString(action) + "' is an action of stage " + std::to_string(action.stage) +
           ", which is not hosted here";
  if (action.kind == ActionKind::gradientNorm && !schedule.gradientNorm)
    return "'" + toString(action) + "' needs a line 'gradient-norm'";
  if (std::string text = shardProblem(schedule, action); !text.empty()) return "'" + toString(action) + "': " + text;
  bool versioned = isVersioned(action.kind);
  if (versioned && action.index < 1) return "'" + toString(action) + "': versions that an update makes count from 1";
  if (const int replica = schedule.routing(action.stage).replica(action.index);
      !versioned && replica != hosted->replica)
    return "'" + toString(action) + "': minibatch " + std::to_string(action.index) + " belongs to replica " +
           std::to_string(replica) + ", this is replica " + std::to_string(hosted->replica);
  if (isTied(action.kind)) {
    // The owner sends versions and receives parts.
    const bool byOwner = isSend(action.kind) == (kindRow(action.kind).lane == ActionLane::versions);
    if (schedule.sharedBetween(action.stage, action.peer) < 0 || byOwner != (action.stage < action.peer))
      return "'" + toString(action) + "': stages " + std::to_string(action.stage) + " and " +
             std::to_string(action.peer) + " share no parameters in that direction";
  }
  if (!isTransfer(action.kind)) return {};

  int edge = schedule.edgeBetween(action.stage, action.peer);
  bool values = isForwardTransfer(action.kind);
  bool send = isSend(action.kind);
  bool exists = edge >= 0 && (values ? schedule.edges[edge].forward : schedule.edges[edge].backward);
  bool downstream = action.peer > action.stage; // values leave towards later stages, gradients towards earlier ones
  if (!exists || downstream != (values == send))
    return "'" + toString(action) + "': there is no edge for it between stages " + std::to_string(action.stage) +
           " and " + std::to_string(action.peer);
  return {};
}

static std::string problemOfRoute(const Route& route, int replicas) {
  if (route.isRoundRobin()) return {};
  std::vector<bool> has(static_cast<std::size_t>(replicas));
  for (int replica : route.word()) {
    if (replica < 0 || replica >= replicas)
      return "its route names replica " + std::to_string(replica) + ", which does not exist";
    has[static_cast<std::size_t>(replica)] = true;
  }
  const auto missing = std::find(has.begin(), has.end(), false);
  return missing == has.end() ? "" : "its route leaves out replica " + std::to_string(missing - has.begin());
}

/// What is wrong with the shards of a stage.
static std::string shardsProblem(const Schedule& schedule, const ScheduleStage& stage) {
  if (stage.sweeps < 1) return "its weights are gathered in no sweep";
  if (!stage.isSharded() && stage.shardDegree != 0) return "a degree needs 'shard'";
  if (!stage.isSharded()) return stage.sweeps == 1 ? "" : "sweeps need 'shard weights'";
  if (stage.replicas == 1) return "shards need more than one replica";
  if (const int degree = stage.shardDegree;
      degree != 0 && (degree < 2 || degree >= stage.replicas || stage.replicas % degree != 0))
    return "a degree of shards is from 2 to half of the replicas and divides their number, got " +
           std::to_string(degree) + " and " + std::to_string(stage.replicas);
  if (stage.sharding == Sharding::optimizer) return stage.sweeps == 1 ? "" : "sweeps need 'shard weights'";
  if (schedule.minibatchesPerUpdate == 0 || schedule.weights != WeightPolicy::stash)
    return "'shard weights' needs a schedule that flushes";
  return stage.versions == 1 ? "" : "'shard weights' keeps one version, not " + std::to_string(stage.versions);
}

/// What is wrong with a stage, behind its number.
static std::string problemOfStage(const Schedule& schedule, const ScheduleStage& stage) {
  if (stage.replicas < 1 || stage.slots < 1 || stage.versions < 1 || stage.handovers < 1 || stage.warmup < 0 ||
      stage.syncDelay < 0)
    return " needs at least one replica, slot, version and handover";
  if (stage.team < 1) return " needs a team of at least one member";
  if (std::string text = problemOfRoute(stage.route, stage.replicas); !text.empty()) return ": " + text;
  if (!stage.route.isRoundRobin() && schedule.minibatchesPerUpdate == 0)
    return ": a route needs minibatches-per-update";
  if (std::string text = shardsProblem(schedule, stage); !text.empty()) return ": " + text;
  return {};
}

static std::string problemOfEdge(const ScheduleEdge& edge, const EdgeRings& rings, int stages) {
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
    if (std::string text = problemOfStage(schedule, stage); !text.empty())
      return fail("stage " + std::to_string(s) + text);
    hosts[s].assign(stage.replicas, 0);
  }
  if (schedule.minibatchesPerUpdate < 0) return fail("minibatches-per-update is negative");
  if (schedule.weights == WeightPolicy::twoVersions && schedule.minibatchesPerUpdate == 0)
    return fail("weights two-versions need minibatches-per-update");
  const auto isSharded = [](const ScheduleStage& stage) { return stage.isSharded(); };
  if (schedule.gradientNorm && schedule.minibatchesPerUpdate == 0 &&
      std::none_of(schedule.stages.begin(), schedule.stages.end(), isSharded))
    return fail("gradient-norm needs minibatches-per-update, or shards: stages that update by themselves know no "
                "common norm");
  if (schedule.rings.size() != schedule.edges.size()) return fail("every edge needs its rings");
  for (std::size_t i = 0; i < schedule.edges.size(); ++i) {
    const ScheduleEdge& edge = schedule.edges[i];
    if (std::string text = problemOfEdge(edge, schedule.rings[i], stages); !text.empty()) return fail(text);
    if (i > 0 && std::pair(schedule.edges[i - 1].from, schedule.edges[i - 1].to) >= std::pair(edge.from, edge.to))
      return fail("edges are not sorted by (from, to)");
  }
  for (std::size_t i = 0; i < schedule.edges.size(); ++i)
    if (int from = schedule.edges[i].from; schedule.rings[i].forwardSend > schedule.stages[from].slots)
      return fail("edge " + std::to_string(from) + ">" + std::to_string(schedule.edges[i].to) + " sends from " +
                  std::to_string(schedule.rings[i].forwardSend) + " buffers, stage " + std::to_string(from) + " has " +
                  std::to_string(schedule.stages[from].slots) + " slots");
  for (std::size_t i = 0; i < schedule.shared.size(); ++i) {
    const SharedEdge& edge = schedule.shared[i];
    std::string name = "shared " + std::to_string(edge.owner) + ">" + std::to_string(edge.user);
    if (edge.owner < 0 || edge.owner >= edge.user || edge.user >= stages)
      return fail(name + " does not lead to a later stage");
    if (schedule.stages[edge.owner].sharding == Sharding::weights)
      return fail(name + ": stage " + std::to_string(edge.owner) +
                  " has its weights in shards, and no replica has the parameters that it would send");
    if (std::min({edge.versionSend, edge.versionReceive, edge.partSend, edge.partReceive}) < 1)
      return fail(name + " has a ring of size 0");
    if (i > 0 &&
        std::pair(schedule.shared[i - 1].owner, schedule.shared[i - 1].user) >= std::pair(edge.owner, edge.user))
      return fail("shared edges are not sorted by (owner, user)");
  }
  std::int64_t processes = 0;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    const RankList& rank = schedule.ranks[r];
    std::string name = "rank " + std::to_string(r);
    if (rank.hosts.empty()) return fail(name + " hosts nothing");
    if (rank.step < 1) return fail(name + " has a step below 1");
    if (rank.pool < 1) return fail(name + " has no room for gathered weights");
    if (rank.sums < 1) return fail(name + " has no room for gradients");
    for (const Host& host : rank.hosts) {
      if (host.stage < 0 || host.stage >= stages || host.replica < 0 ||
          host.replica >= schedule.stages[host.stage].replicas)
        return fail(name + " hosts " + std::to_string(host.stage) + "." + std::to_string(host.replica) +
                    ", which does not exist");
      if (std::count_if(rank.hosts.begin(), rank.hosts.end(),
                        [&](const Host& other) { return other.stage == host.stage; }) > 1)
        return fail(name + " hosts stage " + std::to_string(host.stage) + " more than once");
      if (++hosts[host.stage][host.replica] > 1)
        return fail(std::to_string(host.stage) + "." + std::to_string(host.replica) +
                    " is hosted by more than one rank");
      if (const int first = rank.hosts[0].stage; schedule.stages[host.stage].team != schedule.stages[first].team)
        return fail(name + " hosts stage " + std::to_string(first) + " of a team of " +
                    std::to_string(schedule.stages[first].team) + " and stage " + std::to_string(host.stage) +
                    " of a team of " + std::to_string(schedule.stages[host.stage].team) +
                    ": all stages of a rank need teams of one size");
      const std::int64_t length = schedule.routing(host.stage).length();
      if (rank.step % schedule.minibatchesOfUpdate(host.stage) != 0 || rank.step % length != 0)
        return fail("the step " + std::to_string(rank.step) + " of " + name + " is not a multiple of the " +
                    std::to_string(schedule.minibatchesOfUpdate(host.stage)) + " minibatches of an update and the " +
                    std::to_string(length) +
                    (schedule.stages[host.stage].route.isRoundRobin() ? " replicas" : " minibatches of the route"));
    }
    for (const SharedEdge& edge : schedule.shared)
      for (const Host& host : rank.hosts)
        if (host.stage == edge.user && rank.step % schedule.minibatchesOfUpdate(edge.owner) != 0)
          return fail("the step " + std::to_string(rank.step) + " of " + name + " is not a multiple of the " +
                      std::to_string(schedule.minibatchesOfUpdate(edge.owner)) + " minibatches of an update of stage " +
                      std::to_string(edge.owner) + ", which owns parameters of stage " + std::to_string(edge.user));
    processes += schedule.stages[rank.hosts[0].stage].team;
    if (processes > mostProcesses)
      return fail("the ranks have more than " + std::to_string(mostProcesses) + " members together");
    for (const std::vector<Action>* list : {&rank.start, &rank.repeat})
      for (const Action& action : *list)
        if (std::string text = problemOfAction(schedule, rank, action); !text.empty()) return fail(name + ": " + text);
  }
  for (int s = 0; s < stages; ++s)
    for (std::size_t q = 0; q < hosts[s].size(); ++q)
      if (hosts[s][q] == 0) return fail("no rank hosts " + std::to_string(s) + "." + std::to_string(q));
  return true;
}
