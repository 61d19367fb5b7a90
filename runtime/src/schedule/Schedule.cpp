// Schedules as data: what versions and updates follow from the header, whether the parts fit, and the expansion of the
// endless lists to a number of minibatches. The text form is in ScheduleText.cpp.
#include "machine/Parts.h"

#include <algorithm>

using namespace pdcrt;

bool pdcrt::isTransfer(ActionKind kind) {
  return kind == ActionKind::sendForward || kind == ActionKind::receiveForward || kind == ActionKind::sendBackward ||
         kind == ActionKind::receiveBackward;
}

bool pdcrt::isForwardTransfer(ActionKind kind) {
  return kind == ActionKind::sendForward || kind == ActionKind::receiveForward;
}

bool pdcrt::isSharing(ActionKind kind) {
  return kind == ActionKind::sendVersion || kind == ActionKind::receiveVersion || kind == ActionKind::sendPart ||
         kind == ActionKind::receivePart;
}

bool pdcrt::isVersioned(ActionKind kind) {
  return kind == ActionKind::update || isReduction(kind) || isSharing(kind);
}

bool pdcrt::isReduction(ActionKind kind) {
  return kind == ActionKind::allReduce || kind == ActionKind::gradientNorm;
}

bool pdcrt::isComputation(ActionKind kind) {
  return !isTransfer(kind) && !isSharing(kind) && !isReduction(kind);
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
  if (minibatchesPerUpdate > 0) {
    std::int64_t batch = minibatch / minibatchesPerUpdate;
    return weights == WeightPolicy::twoVersions ? std::max<std::int64_t>(0, batch - 1) : batch;
  }
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
  std::int64_t each = minibatchesOfUpdate(edge.owner), replicas = stages[edge.user].replicas;
  std::int64_t first = (version - 1) * each; // of the update's minibatches; then the first of this replica's
  first += ((q - first) % replicas + replicas) % replicas;
  return first < version * each;
}

bool Schedule::takesVersion(const SharedEdge& edge, int q, std::int64_t version) const {
  // The minibatches that use version v > 0 are those of an update some versions later.
  if (minibatchesPerUpdate > 0) return hasPart(edge, q, version + (weights == WeightPolicy::twoVersions ? 2 : 1));
  const ScheduleStage& owner = stages[edge.owner];
  return hasPart(edge, q, version + owner.warmup + owner.syncDelay + 1);
}

int Schedule::versionedStage(const Action& action) const {
  return isSharing(action.kind) ? std::min(action.stage, action.peer) : action.stage;
}

/// What is wrong with an action of `rank`; empty if nothing is.
static std::string problemOf(const Schedule& schedule, const RankList& rank, const Action& action) {
  auto hosted =
      std::find_if(rank.hosts.begin(), rank.hosts.end(), [&](const Host& host) { return host.stage == action.stage; });
  if (hosted == rank.hosts.end())
    return "'" + toString(action) + "' is an action of stage " + std::to_string(action.stage) +
           ", which is not hosted here";
  if (action.kind == ActionKind::gradientNorm && !schedule.gradientNorm)
    return "'" + toString(action) + "' needs a line 'gradient-norm'";
  bool versioned = isVersioned(action.kind);
  if (versioned && action.index < 1) return "'" + toString(action) + "': versions that an update makes count from 1";
  if (!versioned && action.index % schedule.stages[action.stage].replicas != hosted->replica)
    return "'" + toString(action) + "': minibatch " + std::to_string(action.index) + " belongs to replica " +
           std::to_string(action.index % schedule.stages[action.stage].replicas) + ", this is replica " +
           std::to_string(hosted->replica);
  if (isSharing(action.kind)) {
    bool byOwner = action.kind == ActionKind::sendVersion || action.kind == ActionKind::receivePart;
    if (schedule.sharedBetween(action.stage, action.peer) < 0 || byOwner != (action.stage < action.peer))
      return "'" + toString(action) + "': stages " + std::to_string(action.stage) + " and " +
             std::to_string(action.peer) + " share no parameters in that direction";
  }
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
    if (stage.replicas < 1 || stage.slots < 1 || stage.versions < 1 || stage.handovers < 1 || stage.warmup < 0 ||
        stage.syncDelay < 0)
      return fail("stage " + std::to_string(s) + " needs at least one replica, slot, version and handover");
    hosts[s].assign(stage.replicas, 0);
  }
  if (schedule.minibatchesPerUpdate < 0) return fail("minibatches-per-update is negative");
  if (schedule.weights == WeightPolicy::twoVersions && schedule.minibatchesPerUpdate == 0)
    return fail("weights two-versions need minibatches-per-update");
  if (schedule.gradientNorm && schedule.minibatchesPerUpdate == 0)
    return fail("gradient-norm needs minibatches-per-update: stages that update by themselves know no common norm");
  if (schedule.rings.size() != schedule.edges.size()) return fail("every edge needs its rings");
  for (std::size_t i = 0; i < schedule.edges.size(); ++i) {
    const ScheduleEdge& edge = schedule.edges[i];
    if (std::string text = problemOf(edge, schedule.rings[i], stages); !text.empty()) return fail(text);
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
    if (std::min({edge.versionSend, edge.versionReceive, edge.partSend, edge.partReceive}) < 1)
      return fail(name + " has a ring of size 0");
    if (i > 0 &&
        std::pair(schedule.shared[i - 1].owner, schedule.shared[i - 1].user) >= std::pair(edge.owner, edge.user))
      return fail("shared edges are not sorted by (owner, user)");
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
      if (std::count_if(rank.hosts.begin(), rank.hosts.end(),
                        [&](const Host& other) { return other.stage == host.stage; }) > 1)
        return fail(name + " hosts stage " + std::to_string(host.stage) + " more than once");
      if (++hosts[host.stage][host.replica] > 1)
        return fail(std::to_string(host.stage) + "." + std::to_string(host.replica) +
                    " is hosted by more than one rank");
      if (rank.step % schedule.minibatchesOfUpdate(host.stage) != 0 ||
          rank.step % schedule.stages[host.stage].replicas != 0)
        return fail("the step " + std::to_string(rank.step) + " of " + name + " is not a multiple of the " +
                    std::to_string(schedule.minibatchesOfUpdate(host.stage)) + " minibatches of an update and the " +
                    std::to_string(schedule.stages[host.stage].replicas) + " replicas");
    }
    for (const SharedEdge& edge : schedule.shared)
      for (const Host& host : rank.hosts)
        if (host.stage == edge.user && rank.step % schedule.minibatchesOfUpdate(edge.owner) != 0)
          return fail("the step " + std::to_string(rank.step) + " of " + name + " is not a multiple of the " +
                      std::to_string(schedule.minibatchesOfUpdate(edge.owner)) + " minibatches of an update of stage " +
                      std::to_string(edge.owner) + ", which owns parameters of stage " + std::to_string(edge.user));
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
  std::vector<Action> result;
  for (ListCursor list(schedule, rank, minibatches); list.peek(); list.pop()) result.push_back(*list.peek());
  return result;
}

namespace {

/// The evaluation of one rank, minibatch by minibatch. A rank that hosts several stages evaluates a chunk of
/// minibatches in one of them before it goes on to the next, so that other ranks compute meanwhile. No ring is smaller
/// than a chunk: so a chunk passes a stage once the chunk before it has passed the stages after it, and nothing can
/// deadlock.
class Evaluation {
public:
  Evaluation(const Schedule& schedule, int rank, std::int64_t minibatches) : total_(minibatches) {
    for (const Host& host : schedule.ranks[rank].hosts) {
      hosts_.push_back({host, schedule.stages[host.stage].replicas});
      for (std::size_t i = 0; i < schedule.edges.size(); ++i) {
        const ScheduleEdge& edge = schedule.edges[i];
        if (edge.forward && edge.from == host.stage)
          hosts_.back().out.push_back({edge.to, schedule.rings[i].forwardSend});
        if (edge.forward && edge.to == host.stage)
          hosts_.back().in.push_back({edge.from, schedule.rings[i].forwardReceive});
      }
    }
    std::sort(hosts_.begin(), hosts_.end(),
              [](const Hosted& a, const Hosted& b) { return a.host.stage < b.host.stage; });
    chunk_ = std::max<std::int64_t>(1, minibatches);
    if (hosts_.size() == 1) return;
    for (std::size_t i = 0; i < schedule.edges.size(); ++i)
      if (schedule.edges[i].forward)
        chunk_ = std::min<std::int64_t>({chunk_, schedule.rings[i].forwardSend, schedule.rings[i].forwardReceive});
  }

  std::vector<Action> list() {
    for (const Hosted& hosted : hosts_)
      for (const Port& port : hosted.in)
        for (std::int64_t k = 0; k < port.ring; ++k)
          transfer(hosted, ActionKind::receiveForward, false, port, hosted.host.replica + k * hosted.replicas);
    forEachMinibatch([&](const Hosted& hosted, std::int64_t b) {
      for (const Port& port : hosted.out)
        transfer(hosted, ActionKind::sendForward, true, port, b - port.ring * hosted.replicas);
      for (const Port& port : hosted.in) transfer(hosted, ActionKind::receiveForward, true, port, b);
      list_.push_back({ActionKind::evaluate, false, hosted.host.stage, -1, b});
      for (const Port& port : hosted.out) transfer(hosted, ActionKind::sendForward, false, port, b);
      for (const Port& port : hosted.in)
        transfer(hosted, ActionKind::receiveForward, false, port, b + port.ring * hosted.replicas);
    });
    // The sends that no later minibatch of the same buffer has awaited.
    forEachMinibatch([&](const Hosted& hosted, std::int64_t b) {
      for (const Port& port : hosted.out)
        if (b + port.ring * hosted.replicas >= total_) transfer(hosted, ActionKind::sendForward, true, port, b);
    });
    return std::move(list_);
  }

private:
  struct Port {
    int peer;
    std::int64_t ring;
  };
  struct Hosted {
    Host host;
    std::int64_t replicas;
    std::vector<Port> out = {}, in = {};
  };

  template <class Visit>
  void forEachMinibatch(Visit visit) {
    for (std::int64_t first = 0; first < total_; first += chunk_)
      for (const Hosted& hosted : hosts_) {
        const std::int64_t ahead = (hosted.host.replica - first % hosted.replicas + hosted.replicas) % hosted.replicas;
        for (std::int64_t b = first + ahead; b < std::min(first + chunk_, total_); b += hosted.replicas)
          visit(hosted, b);
      }
  }

  void transfer(const Hosted& hosted, ActionKind kind, bool wait, const Port& port, std::int64_t minibatch) {
    if (minibatch >= 0 && minibatch < total_) list_.push_back({kind, wait, hosted.host.stage, port.peer, minibatch});
  }

  std::int64_t total_, chunk_ = 0;
  std::vector<Hosted> hosts_;
  std::vector<Action> list_;
};

} // namespace

std::vector<Action> pdcrt::expandEvaluation(const Schedule& schedule, int rank, std::int64_t minibatches) {
  return Evaluation(schedule, rank, minibatches).list();
}
