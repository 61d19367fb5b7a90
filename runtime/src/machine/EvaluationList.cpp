// The list of a forward-only pass.
#include "pdcrt/Schedule.h"

#include <algorithm>

using namespace pdcrt;

namespace {

/// The evaluation of one rank, minibatch by minibatch. A rank that hosts several stages evaluates a chunk of
/// minibatches in one of them before it goes on to the next, so that other ranks compute meanwhile. No ring is smaller
/// than a chunk: so a chunk passes a stage once the chunk before it has passed the stages after it, and nothing can
/// deadlock. Weights that lie in shards are gathered once for each chunk, those of the next stage meanwhile.
class Evaluation {
public:
  Evaluation(const Schedule& schedule, int rank, std::int64_t minibatches)
      : total_(minibatches), hasRoom_(schedule.ranks[rank].pool > 1) {
    for (const Host& host : schedule.ranks[rank].hosts) {
      hosts_.push_back({host, schedule.routing(host.stage), schedule.stages[host.stage].sharding == Sharding::weights});
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
    // All replicas gather the weights of a stage equally often.
    const auto hasSeveral = [](const RankList& list) { return list.hosts.size() > 1; };
    const bool inChunks = hosts_[0].gathers && std::ranges::any_of(schedule.ranks, hasSeveral);
    if (hosts_.size() == 1 && !inChunks) return;
    // Rings count the minibatches of a replica.
    std::int64_t replicas = schedule.stages[0].replicas;
    for (const ScheduleStage& stage : schedule.stages)
      replicas = stage.route.isRoundRobin() ? std::min<std::int64_t>(replicas, stage.replicas) : 1;
    for (std::size_t i = 0; i < schedule.edges.size(); ++i)
      if (schedule.edges[i].forward)
        chunk_ = std::min<std::int64_t>(
            {chunk_, schedule.rings[i].forwardSend * replicas, schedule.rings[i].forwardReceive * replicas});
  }

  std::vector<Action> list() {
    for (const Hosted& hosted : hosts_)
      for (const Port& port : hosted.in)
        for (std::int64_t k = 0; k < port.ring; ++k) transfer(hosted, ActionKind::receiveForward, false, port, k);
    for (std::int64_t visit = 0; visit < visits(); ++visit) {
      // While this one computes, the weights of the next one are on their way.
      gatherUntil(visit);
      const Hosted& hosted = hostedAt(visit);
      const std::int64_t sweep = sweepOf(visit);
      if (hosted.gathers) list_.push_back({ActionKind::unshard, true, hosted.host.stage, -1, sweep});
      forEachMinibatch(visit, [&](std::int64_t k) { evaluate(hosted, k); });
      if (hosted.gathers) list_.push_back({ActionKind::reshard, false, hosted.host.stage, -1, sweep});
    }
    // The sends that no later minibatch of the same buffer has awaited.
    for (std::int64_t visit = 0; visit < visits(); ++visit) {
      const Hosted& hosted = hostedAt(visit);
      forEachMinibatch(visit, [&](std::int64_t k) {
        for (const Port& port : hosted.out)
          if (hosted.minibatch(k + port.ring) >= total_) transfer(hosted, ActionKind::sendForward, true, port, k);
      });
    }
    return std::move(list_);
  }

private:
  struct Port {
    int peer;
    std::int64_t ring;
  };
  struct Hosted {
    Host host;
    Routing routing;
    bool gathers = false; ///< its weights lie in shards
    std::vector<Port> out = {}, in = {};
    std::int64_t minibatch(std::int64_t local) const { return routing.minibatch(local, host.replica); }
  };

  /// A chunk in one hosted stage; all replicas of a stage have equally many.
  std::int64_t visits() const { return (total_ + chunk_ - 1) / chunk_ * static_cast<std::int64_t>(hosts_.size()); }

  const Hosted& hostedAt(std::int64_t visit) const { return hosts_[static_cast<std::size_t>(visit) % hosts_.size()]; }

  /// Asks for the weights of the visits up to this one, and where there is room of the next one that needs some.
  void gatherUntil(std::int64_t visit) {
    std::int64_t last = visit;
    if (hasRoom_) do
        ++last;
      while (last < visits() && !hostedAt(last).gathers);
    for (; asked_ < std::min(last + 1, visits()); ++asked_)
      if (hostedAt(asked_).gathers)
        list_.push_back({ActionKind::unshard, false, hostedAt(asked_).host.stage, -1, sweepOf(asked_)});
  }
  std::int64_t sweepOf(std::int64_t visit) const { return visit / static_cast<std::int64_t>(hosts_.size()) + 1; }

  /// Minibatches, and rings, are local.
  template <class Visit>
  void forEachMinibatch(std::int64_t visit, Visit each) {
    const Hosted& hosted = hostedAt(visit);
    const std::int64_t first = visit / static_cast<std::int64_t>(hosts_.size()) * chunk_;
    const std::int64_t end = hosted.routing.localCount(std::min(first + chunk_, total_), hosted.host.replica);
    for (std::int64_t k = hosted.routing.localCount(first, hosted.host.replica); k < end; ++k) each(k);
  }

  void evaluate(const Hosted& hosted, std::int64_t k) {
    for (const Port& port : hosted.out) transfer(hosted, ActionKind::sendForward, true, port, k - port.ring);
    for (const Port& port : hosted.in) transfer(hosted, ActionKind::receiveForward, true, port, k);
    list_.push_back({ActionKind::evaluate, false, hosted.host.stage, -1, hosted.minibatch(k)});
    for (const Port& port : hosted.out) transfer(hosted, ActionKind::sendForward, false, port, k);
    for (const Port& port : hosted.in) transfer(hosted, ActionKind::receiveForward, false, port, k + port.ring);
  }

  void transfer(const Hosted& hosted, ActionKind kind, bool wait, const Port& port, std::int64_t local) {
    if (local < 0) return;
    const std::int64_t minibatch = hosted.minibatch(local);
    if (minibatch < total_) list_.push_back({kind, wait, hosted.host.stage, port.peer, minibatch});
  }

  std::int64_t total_, chunk_ = 0;
  bool hasRoom_;           ///< for the weights of two stages
  std::int64_t asked_ = 0; ///< visits for which weights have been asked for
  std::vector<Hosted> hosts_;
  std::vector<Action> list_;
};

} // namespace

std::vector<Action> pdcrt::expandEvaluation(const Schedule& schedule, int rank, std::int64_t minibatches) {
  return Evaluation(schedule, rank, minibatches).list();
}
