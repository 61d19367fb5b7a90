// The list of a forward-only pass.
#include "pdcrt/Schedule.h"

#include <algorithm>

using namespace pdcrt;

namespace {

/// The evaluation of one rank, minibatch by minibatch. A rank that hosts several stages evaluates a chunk of
/// minibatches in one of them before it goes on to the next, so that other ranks compute meanwhile. No ring is smaller
/// than a chunk: so a chunk passes a stage once the chunk before it has passed the stages after it, and nothing can
/// deadlock.
class Evaluation {
public:
  Evaluation(const Schedule& schedule, int rank, std::int64_t minibatches) : total_(minibatches) {
    for (const Host& host : schedule.ranks[rank].hosts) {
      hosts_.push_back({host, schedule.routing(host.stage)});
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
        for (std::int64_t k = 0; k < port.ring; ++k) transfer(hosted, ActionKind::receiveForward, false, port, k);
    forEachMinibatch([&](const Hosted& hosted, std::int64_t k) {
      for (const Port& port : hosted.out) transfer(hosted, ActionKind::sendForward, true, port, k - port.ring);
      for (const Port& port : hosted.in) transfer(hosted, ActionKind::receiveForward, true, port, k);
      list_.push_back({ActionKind::evaluate, false, hosted.host.stage, -1, hosted.minibatch(k)});
      for (const Port& port : hosted.out) transfer(hosted, ActionKind::sendForward, false, port, k);
      for (const Port& port : hosted.in) transfer(hosted, ActionKind::receiveForward, false, port, k + port.ring);
    });
    // The sends that no later minibatch of the same buffer has awaited.
    forEachMinibatch([&](const Hosted& hosted, std::int64_t k) {
      for (const Port& port : hosted.out)
        if (hosted.minibatch(k + port.ring) >= total_) transfer(hosted, ActionKind::sendForward, true, port, k);
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
    Routing routing;
    std::vector<Port> out = {}, in = {};
    std::int64_t minibatch(std::int64_t local) const { return routing.minibatch(local, host.replica); }
  };

  /// Minibatches, and rings, are local.
  template <class Visit>
  void forEachMinibatch(Visit visit) {
    for (std::int64_t first = 0; first < total_; first += chunk_)
      for (const Hosted& hosted : hosts_) {
        const int replica = hosted.host.replica;
        const std::int64_t end = hosted.routing.localCount(std::min(first + chunk_, total_), replica);
        for (std::int64_t k = hosted.routing.localCount(first, replica); k < end; ++k) visit(hosted, k);
      }
  }

  void transfer(const Hosted& hosted, ActionKind kind, bool wait, const Port& port, std::int64_t local) {
    if (local < 0) return;
    const std::int64_t minibatch = hosted.minibatch(local);
    if (minibatch < total_) list_.push_back({kind, wait, hosted.host.stage, port.peer, minibatch});
  }

  std::int64_t total_, chunk_ = 0;
  std::vector<Hosted> hosts_;
  std::vector<Action> list_;
};

} // namespace

std::vector<Action> pdcrt::expandEvaluation(const Schedule& schedule, int rank, std::int64_t minibatches) {
  return Evaluation(schedule, rank, minibatches).list();
}
