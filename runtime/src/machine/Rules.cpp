// The rules of a schedule that one rank's list must keep on its own. Because minibatches, transfers and versions are
// strictly in order, everything is a comparison of counters: "how many forwards are done", "how many receives awaited".
#include "Parts.h"
#include "ShardRules.h"

#include <algorithm>

using namespace pdcrt;

namespace {

/// One end of an edge in one direction, at one stage replica. Counts are local minibatches.
struct Port {
  ActionKind kind;       ///< the send or receive that this end posts
  int peer;              ///< the other stage
  std::int64_t ring = 0; ///< buffers at this end
  std::int64_t posted = 0, awaited = 0;
};

/// One end of shared parameters at one stage replica. Counts are versions (or updates) of the owner; a replica of the
/// user leaves out those that it has no part in.
struct SharedPort {
  const SharedEdge* edge;
  bool owner;
  std::int64_t versionsPosted = 0, versionsAwaited = 0; ///< the newest
  std::int64_t partsPosted = 0, partsAwaited = 0;
};

/// One hosted stage replica and how far it is.
class Progress {
public:
  Progress(const Schedule& schedule, Host host, std::int64_t minibatches, bool evaluation)
      : schedule_(schedule), stage_(schedule.stages[host.stage]), routing_(stage_.routing()), host_(host),
        total_(minibatches), evaluation_(evaluation), shards_(schedule, host, evaluation) {
    use_.host = host;
    for (std::size_t i = 0; i < schedule.edges.size(); ++i) {
      const ScheduleEdge& edge = schedule.edges[i];
      const EdgeRings& rings = schedule.rings[i];
      if (edge.forward && edge.from == host.stage)
        ports_.push_back({ActionKind::sendForward, edge.to, rings.forwardSend});
      if (edge.forward && edge.to == host.stage)
        ports_.push_back({ActionKind::receiveForward, edge.from, rings.forwardReceive});
      if (edge.backward && edge.to == host.stage && !evaluation)
        ports_.push_back({ActionKind::sendBackward, edge.from, rings.backwardSend});
      if (edge.backward && edge.from == host.stage && !evaluation)
        ports_.push_back({ActionKind::receiveBackward, edge.to, rings.backwardReceive});
    }
    if (!evaluation)
      for (const SharedEdge& edge : schedule.shared)
        if (edge.owner == host.stage || edge.user == host.stage) shared_.push_back({&edge, edge.owner == host.stage});
  }

  /// Does `action`; returns what forbids it, or an empty text.
  std::string step(const Action& action) {
    switch (action.kind) {
    case ActionKind::forward: return forward(action.index);
    case ActionKind::backward: {
      std::string text = backwardInput(action.index);
      return text.empty() ? backwardWeight(action.index) : text;
    }
    case ActionKind::backwardInput: return backwardInput(action.index);
    case ActionKind::backwardWeight: return backwardWeight(action.index);
    case ActionKind::evaluate: return evaluate(action.index);
    case ActionKind::update: return update(action.index);
    case ActionKind::allReduce:
    case ActionKind::reduceScatter: return reduce(action);
    case ActionKind::allGather:
    case ActionKind::unshard:
    case ActionKind::reshard: return shards_.step(action, updates_, hasGradientsOf(schedule_.versionOf(action)));
    case ActionKind::gradientNorm: return gradientNorm(action);
    case ActionKind::sendVersion:
    case ActionKind::receiveVersion: return shareVersion(action);
    case ActionKind::sendPart:
    case ActionKind::receivePart: return sharePart(action);
    default: return transfer(action);
    }
  }

  /// What is missing after the last action.
  std::string finish() const {
    std::int64_t mine = localCount(total_);
    auto differs = [&](const char* what, std::int64_t done, std::int64_t expected) {
      return "ends with " + std::to_string(done) + " of " + std::to_string(expected) + " " + what;
    };
    if (evaluation_ && evaluated_ != mine) return differs("evaluations", evaluated_, mine);
    if (!evaluation_ && forwards_ != mine) return differs("forwards", forwards_, mine);
    if (!evaluation_ && weights_ != mine) return differs("backwards", weights_, mine);
    for (const Port& port : ports_) {
      std::string name = toString(Action{port.kind, false, host_.stage, port.peer, minibatch(port.awaited)});
      if (port.posted != mine)
        return "never starts " + toString(Action{port.kind, false, host_.stage, port.peer, minibatch(port.posted)});
      if (port.awaited != mine) return "never waits for " + name;
    }
    for (const SharedPort& port : shared_) {
      std::int64_t last = schedule_.updates(port.edge->owner, total_);
      auto check = [&](ActionKind kind, std::int64_t posted, std::int64_t awaited) -> std::string {
        Action next{kind, false, host_.stage, port.owner ? port.edge->user : port.edge->owner, 0};
        next.index = nextOf(port, kind, posted);
        if (next.index <= last) return "never starts " + toString(next);
        next.index = nextOf(port, kind, awaited);
        return next.index <= last ? "never waits for " + toString(next) : "";
      };
      std::string text = check(port.owner ? ActionKind::sendVersion : ActionKind::receiveVersion, port.versionsPosted,
                               port.versionsAwaited);
      if (text.empty())
        text = check(port.owner ? ActionKind::receivePart : ActionKind::sendPart, port.partsPosted, port.partsAwaited);
      if (!text.empty()) return text;
    }
    std::int64_t updates = evaluation_ ? 0 : schedule_.updates(host_.stage, total_);
    if (updates_ != updates) return differs("updates", updates_, updates);
    return shards_.finish(updates);
  }

  const HostUse& use() const { return use_; }
  Host host() const { return host_; }
  std::int64_t inPool() const { return shards_.inPool(); }
  /// Of sharded weights: whether gradients of all of them are here, which have not been summed over the replicas.
  bool hasUnsummed() const {
    if (stage_.sharding != Sharding::weights) return false;
    const std::int64_t summed = schedule_.updateLast(host_.stage, reductionsAwaited_);
    return reductionsPosted_ > reductionsAwaited_ || inputs_ > localCount(summed);
  }
  /// The sum that would take them away.
  Action unsummed() const { return {stage_.sum(), true, host_.stage, -1, reductionsAwaited_ + 1}; }

private:
  std::int64_t minibatch(std::int64_t local) const { return routing_.minibatch(local, host_.replica); }

  /// Local minibatches among the first `count` of the pipeline.
  std::int64_t localCount(std::int64_t count) const { return routing_.localCount(count, host_.replica); }

  /// Empty if `index` is the next in order after `done` local minibatches.
  std::string inOrder(std::int64_t index, std::int64_t done) const {
    if (index == minibatch(done)) return {};
    return "is out of order, minibatch " + std::to_string(minibatch(done)) + " is next";
  }

  std::string awaitedBefore(ActionKind kind, std::int64_t local) const {
    for (const Port& port : ports_)
      if (port.kind == kind && port.awaited <= local)
        return "needs ?" + toString(Action{kind, false, host_.stage, port.peer, minibatch(local)}) + " before it";
    return {};
  }

  /// Empty if no send from buffer (local mod ring) may still be under way.
  std::string sendBufferFree(ActionKind kind, std::int64_t local) const {
    for (const Port& port : ports_)
      if (port.kind == kind && port.awaited < local - port.ring + 1)
        return "overwrites a buffer that is being sent; it needs ?" +
               toString(Action{kind, false, host_.stage, port.peer, minibatch(local - port.ring)}) + " before it";
    return {};
  }

  /// Empty if the gradient set of the update of `index` is not that of an update that is to be made. Either half of a
  /// backward may write gradients (batch normalisation has all of them in the first).
  std::string gradientsFree(std::int64_t index) const {
    const bool free = updates_ >= index / schedule_.minibatchesOfUpdate(host_.stage) - stage_.syncDelay;
    return free ? std::string() : overwritesGradients();
  }

  /// Empty if no gradients of shared parameters may still be sent from the buffer for those of `index`, which either
  /// half of its backward may write. Buffers are used in turn by the updates in which this replica has a part.
  std::string partsFree(std::int64_t index) const {
    for (const SharedPort& port : shared_) {
      if (port.owner) continue;
      std::int64_t oldest = index / schedule_.minibatchesOfUpdate(port.edge->owner) + 1;
      for (int i = 0; i < port.edge->partSend && oldest > 0; ++i) oldest = before(port, ActionKind::sendPart, oldest);
      if (oldest > port.partsAwaited)
        return "overwrites a buffer that is being sent; it needs ?" +
               toString(Action{ActionKind::sendPart, false, host_.stage, port.edge->owner, oldest}) + " before it";
    }
    return {};
  }

  std::string forward(std::int64_t index) {
    std::int64_t k = forwards_;
    if (std::string text = inOrder(index, k); !text.empty()) return text;
    if (std::string text = awaitedBefore(ActionKind::receiveForward, k); !text.empty()) return text;
    if (k - weights_ >= stage_.slots)
      return "would be minibatch " + std::to_string(k - weights_ + 1) + " in flight, the stage has " +
             std::to_string(stage_.slots) + " slots";
    if (std::string text = sendBufferFree(ActionKind::sendForward, k); !text.empty()) return text;
    std::int64_t version = schedule_.versionUsed(host_.stage, index);
    if (updates_ < version || (updates_ > version && schedule_.weights == WeightPolicy::latest))
      return "needs version " + std::to_string(version) + ", the newest is " + std::to_string(updates_);
    if (std::string text = shards_.missingFor(version); !text.empty()) return text;
    for (const SharedPort& port : shared_)
      if (!port.owner && port.versionsAwaited < schedule_.versionUsed(port.edge->owner, index))
        return "needs ?" +
               toString(Action{ActionKind::receiveVersion, false, host_.stage, port.edge->owner,
                               schedule_.versionUsed(port.edge->owner, index)}) +
               " before it";
    ++forwards_;
    use_.inFlight = std::max(use_.inFlight, forwards_ - weights_);
    return {};
  }

  std::string backwardInput(std::int64_t index) {
    std::int64_t j = inputs_;
    if (std::string text = inOrder(index, j); !text.empty()) return text;
    if (forwards_ <= j) return "comes before its forward";
    if (std::string text = awaitedBefore(ActionKind::receiveBackward, j); !text.empty()) return text;
    if (std::string text = sendBufferFree(ActionKind::sendBackward, j); !text.empty()) return text;
    if (std::string text = latestVersion(j); !text.empty()) return text;
    if (std::string text = weightsFor(index); !text.empty()) return text;
    if (j - weights_ >= stage_.handovers)
      return "would be minibatch " + std::to_string(j - weights_ + 1) +
             " that waits for its weight gradients, the stage has " + std::to_string(stage_.handovers) + " handovers";
    if (std::string text = gradientsFree(index); !text.empty()) return text;
    if (std::string text = partsFree(index); !text.empty()) return text;
    ++inputs_;
    return {};
  }

  std::string backwardWeight(std::int64_t index) {
    if (std::string text = inOrder(index, weights_); !text.empty()) return text;
    if (inputs_ <= weights_) return "comes before its input gradient";
    if (std::string text = gradientsFree(index); !text.empty()) return text;
    if (std::string text = latestVersion(weights_); !text.empty()) return text;
    if (std::string text = weightsFor(index); !text.empty()) return text;
    ++weights_;
    return {};
  }

  /// Empty if the weights with which a backward computes are all here.
  std::string weightsFor(std::int64_t index) {
    const bool newest = schedule_.weights == WeightPolicy::latest;
    return shards_.missingFor(newest ? updates_ : schedule_.versionUsed(host_.stage, index));
  }

  /// Where a backward uses the newest weights, it has its place among the updates.
  std::string latestVersion(std::int64_t local) const {
    std::int64_t version = std::max<std::int64_t>(0, local - stage_.syncDelay);
    if (schedule_.weights != WeightPolicy::latest || updates_ == version) return {};
    return "needs version " + std::to_string(version) + ", the newest is " + std::to_string(updates_);
  }

  std::string evaluate(std::int64_t index) {
    if (std::string text = inOrder(index, evaluated_); !text.empty()) return text;
    if (std::string text = awaitedBefore(ActionKind::receiveForward, evaluated_); !text.empty()) return text;
    if (std::string text = sendBufferFree(ActionKind::sendForward, evaluated_); !text.empty()) return text;
    if (std::string text = shards_.missingFor(0); !text.empty()) return text;
    ++evaluated_;
    return {};
  }

  std::string overwritesGradients() const {
    return "overwrites the gradients of update " + std::to_string(updates_ + 1) + ", which is not done";
  }

  bool hasGradientsOf(std::int64_t version) const {
    return weights_ >= localCount(std::min(schedule_.updateLast(host_.stage, version), total_));
  }

  std::string reduce(const Action& action) {
    if (!stage_.sums()) return "is for replicated stages, this one has a single replica";
    std::int64_t& done = action.wait ? reductionsAwaited_ : reductionsPosted_;
    if (action.index != done + 1) return "is out of order, version " + std::to_string(done + 1) + " is next";
    if (action.wait && reductionsPosted_ < action.index) return "waits for what is not started";
    if (!action.wait && !hasGradientsOf(action.index)) return "comes before a backward of that update";
    if (!action.wait && updates_ < action.index - 1 - stage_.syncDelay) return overwritesGradients();
    if (std::string text = hasPartsOf(action.index); !action.wait && !text.empty()) return text;
    ++done;
    return {};
  }

  std::string gradientNorm(const Action& action) {
    std::int64_t& done = action.wait ? normsAwaited_ : normsPosted_;
    if (action.index != done + 1) return "is out of order, version " + std::to_string(done + 1) + " is next";
    if (action.wait && normsPosted_ < action.index) return "waits for what is not started";
    if (!action.wait && !hasGradientsOf(action.index)) return "comes before a backward of that update";
    if (!action.wait && updates_ < action.index - 1) return overwritesGradients();
    if (std::string text = hasPartsOf(action.index); !action.wait && !text.empty()) return text;
    if (std::string text = isReduced(action.index); !action.wait && !text.empty()) return text;
    ++done;
    return {};
  }

  /// Empty if the sum over the replicas is here.
  std::string isReduced(std::int64_t version) const {
    if (!stage_.sums() || reductionsAwaited_ >= version) return {};
    return "needs ?" + toString(Action{stage_.sum(), false, host_.stage, -1, version}) + " before it";
  }

  std::string update(std::int64_t version) {
    if (version != updates_ + 1) return "is out of order, version " + std::to_string(updates_ + 1) + " is next";
    if (!hasGradientsOf(version)) return "comes before a backward of that update";
    if (std::string text = hasPartsOf(version); !text.empty()) return text;
    for (const SharedPort& port : shared_)
      if (port.owner && port.versionsAwaited < version - port.edge->versionSend)
        return "overwrites a version that is being sent; it needs ?" +
               toString(Action{ActionKind::sendVersion, false, host_.stage, port.edge->user,
                               version - port.edge->versionSend}) +
               " before it";
    if (std::string text = isReduced(version); !text.empty()) return text;
    if (schedule_.hasNorm(host_.stage) && normsAwaited_ < version)
      return "needs ?" + toString(Action{ActionKind::gradientNorm, false, host_.stage, -1, version}) + " before it";
    if (std::string text = shards_.missingForUpdate(version); !text.empty()) return text;
    ++updates_;
    // The oldest version that a minibatch in flight, or the next one, uses.
    std::int64_t oldest = updates_;
    if (schedule_.weights != WeightPolicy::latest && minibatch(weights_) < total_)
      oldest = std::min(oldest, schedule_.versionUsed(host_.stage, minibatch(weights_)));
    std::int64_t alive = updates_ - oldest + 1;
    if (alive > stage_.versions)
      return "overwrites version " + std::to_string(oldest) + ", which is in use; " + std::to_string(alive) +
             " versions are alive, the stage has " + std::to_string(stage_.versions);
    use_.versions = std::max(use_.versions, alive);
    return {};
  }

  /// The version after `version` that is exchanged at this end.
  std::int64_t nextOf(const SharedPort& port, ActionKind kind, std::int64_t version) const {
    do ++version;
    while (!isExchanged(port, kind, version));
    return version;
  }
  std::int64_t before(const SharedPort& port, ActionKind kind, std::int64_t version) const {
    do --version;
    while (version > 0 && !isExchanged(port, kind, version));
    return version;
  }
  bool isExchanged(const SharedPort& port, ActionKind kind, std::int64_t version) const {
    if (port.owner) return true;
    return kind == ActionKind::receiveVersion ? schedule_.takesVersion(*port.edge, host_.replica, version)
                                              : schedule_.hasPart(*port.edge, host_.replica, version);
  }

  SharedPort* sharedPort(const Action& action) {
    for (SharedPort& port : shared_)
      if ((port.owner ? port.edge->user : port.edge->owner) == action.peer) return &port;
    return nullptr;
  }

  /// Empty if the gradients of all other uses of this stage's parameters are here.
  std::string hasPartsOf(std::int64_t version) const {
    for (const SharedPort& port : shared_)
      if (port.owner && port.partsAwaited < version)
        return "needs ?" + toString(Action{ActionKind::receivePart, false, host_.stage, port.edge->user, version}) +
               " before it";
    return {};
  }

  /// Counts a post or a wait of tied parameters, which are in order.
  std::string count(SharedPort& port, const Action& action, std::int64_t& posted, std::int64_t& awaited) const {
    std::int64_t& counter = action.wait ? awaited : posted;
    if (std::int64_t next = nextOf(port, action.kind, counter); action.index != next)
      return "is out of order, version " + std::to_string(next) + " is next";
    if (action.wait && posted < action.index) return "waits for what is not started";
    counter = action.index;
    return {};
  }

  std::string shareVersion(const Action& action) {
    SharedPort* port = sharedPort(action);
    if (!port) return "has no place in an evaluation";
    if (!action.wait && port->owner && updates_ < action.index) return "sends what is not computed yet";
    if (!action.wait && port->owner && stage_.sharding == Sharding::optimizer)
      if (std::string text = shards_.missingFor(action.index); !text.empty()) return text;
    if (!action.wait && !port->owner && minibatch(weights_) < total_) {
      // The versions that the oldest minibatch without its backward, and those after it, may use.
      std::int64_t oldest = schedule_.versionUsed(port->edge->owner, minibatch(weights_)), alive = 2;
      for (std::int64_t v = oldest; (v = nextOf(*port, action.kind, v)) < action.index;) ++alive;
      if (alive > port->edge->versionReceive)
        return "overwrites version " + std::to_string(oldest) + " of stage " + std::to_string(port->edge->owner) +
               ", which is in use";
    }
    return count(*port, action, port->versionsPosted, port->versionsAwaited);
  }

  std::string sharePart(const Action& action) {
    SharedPort* port = sharedPort(action);
    if (!port) return "has no place in an evaluation";
    std::int64_t last = schedule_.updateLast(port->edge->owner, action.index);
    if (!action.wait && !port->owner && weights_ < localCount(std::min(last, total_)))
      return "sends what is not computed yet";
    if (!action.wait && port->owner && updates_ < action.index - port->edge->partReceive)
      return "overwrites the gradients of update " + std::to_string(action.index - port->edge->partReceive) +
             ", which is not done";
    return count(*port, action, port->partsPosted, port->partsAwaited);
  }

  std::string transfer(const Action& action) {
    auto port = std::find_if(ports_.begin(), ports_.end(),
                             [&](const Port& p) { return p.kind == action.kind && p.peer == action.peer; });
    if (port == ports_.end()) return "has no place in an evaluation";
    if (std::string text = inOrder(action.index, action.wait ? port->awaited : port->posted); !text.empty())
      return text;
    std::int64_t k = port->posted;
    std::int64_t produced = evaluation_ ? evaluated_ : isForwardTransfer(action.kind) ? forwards_ : inputs_;
    std::int64_t consumed = evaluation_ ? evaluated_ : weights_;
    const bool send = isSend(action.kind);
    if (action.wait && port->awaited >= port->posted) return "waits for what is not started";
    if (!action.wait && send && produced <= k) return "sends what is not computed yet";
    if (!action.wait && !send && consumed < k - port->ring + 1)
      return "overwrites the buffer of minibatch " + std::to_string(minibatch(k - port->ring)) + ", which is in use";
    ++(action.wait ? port->awaited : port->posted);
    return {};
  }

  const Schedule& schedule_;
  const ScheduleStage& stage_;
  Routing routing_;
  Host host_;
  std::int64_t total_;
  bool evaluation_;
  std::vector<Port> ports_;
  std::vector<SharedPort> shared_;
  std::int64_t forwards_ = 0, inputs_ = 0, weights_ = 0, evaluated_ = 0; ///< local minibatches done
  std::int64_t updates_ = 0, reductionsPosted_ = 0, reductionsAwaited_ = 0, normsPosted_ = 0, normsAwaited_ = 0;
  ShardProgress shards_;
  HostUse use_;
};

/// What is wrong where gradients of `stage` are where others are that have not been summed over the replicas.
std::string sharesPlace(const Schedule& schedule, int rank, const std::vector<Progress>& hosts, int stage) {
  const auto own = std::find_if(hosts.begin(), hosts.end(), [&](const Progress& p) { return p.host().stage == stage; });
  if (own == hosts.end() || !own->hasUnsummed()) return {};
  const RankList& list = schedule.ranks[rank];
  for (const Progress& other : hosts)
    if (other.host().stage != stage && other.hasUnsummed() &&
        schedule.sumPlace(list, stage) == schedule.sumPlace(list, other.host().stage))
      return "overwrites the gradients of stage " + std::to_string(other.host().stage) + "; it needs " +
             toString(other.unsummed()) + " before it";
  return {};
}

} // namespace

std::string pdcrt::checkRules(const Schedule& schedule, int rank, std::int64_t minibatches, bool evaluation,
                              std::vector<HostUse>& uses, std::int64_t& executed) {
  std::vector<Progress> hosts;
  for (const Host& host : schedule.ranks[rank].hosts) hosts.emplace_back(schedule, host, minibatches, evaluation);
  std::string where = "rank " + std::to_string(rank) + ": ";
  executed = 0;
  for (ListCursor list(schedule, rank, minibatches, evaluation); list.peek(); list.pop(), ++executed) {
    for (Progress& host : hosts)
      if (host.host().stage == list.peek()->stage)
        if (std::string text = host.step(*list.peek()); !text.empty())
          return where + "'" + toString(*list.peek()) + "' " + text;
    if (std::string text = sharesPlace(schedule, rank, hosts, list.peek()->stage); !text.empty())
      return where + "'" + toString(*list.peek()) + "' " + text;
    if (list.peek()->kind != ActionKind::unshard || list.peek()->wait) continue;
    std::int64_t taken = 0;
    for (const Progress& host : hosts) taken += host.inPool();
    if (const int pool = schedule.ranks[rank].pool; taken > pool)
      return where + "'" + toString(*list.peek()) + "' gathers the weights of a stage beside those of " +
             std::to_string(taken - 1) + ", the rank has room for " + std::to_string(pool);
  }
  for (const Progress& host : hosts) {
    if (std::string text = host.finish(); !text.empty())
      return where + "stage " + std::to_string(host.host().stage) + " " + text;
    uses.push_back(host.use());
  }
  return {};
}
