// The order comes from executing the schedule without time, period by period: where the halts of two periods agree, the
// machine is in the same state but for the period, and so does the same things again.
#include "StartOrder.h"

#include "Parts.h"
#include "base/Index.h"

#include <algorithm>
#include <numeric>

namespace pdcrt {

/// A transfer (as its send), an all-reduce or a team's computation that the rank takes part in.
struct StartOrder::Start {
  Action action;
  bool sends = false, receives = false; ///< the rank; both false: it is no transfer
  int userReplica = 0;                  ///< of shared parameters

  friend bool operator==(const Start&, const Start&) = default;
};

namespace {

std::int64_t replicaAt(const Schedule& schedule, int rank, int stage) {
  for (const Host& host : schedule.ranks[index(rank)].hosts)
    if (host.stage == stage) return host.replica;
  return -1;
}

} // namespace

/// Told of everything that the machine does, keeps what the rank takes part in.
class StartOrder::Collector {
public:
  Collector(const Schedule& schedule, int rank) : schedule_(schedule), rank_(rank) {}

  void operator()(const TracedAction& told) {
    const Action& action = told.action;
    if (action.kind == ActionKind::gradientNorm) return;
    if (isComputation(action.kind)) {
      const bool meets = schedule_.stages[index(action.stage)].team > 1 && !isVersioned(action.kind);
      if (meets && told.rank == rank_) starts.push_back({action});
      return;
    }
    if (isReduction(action.kind)) {
      const ScheduleStage& stage = schedule_.stages[index(action.stage)];
      const std::int64_t own = replicaAt(schedule_, rank_, action.stage);
      const int together = stage.meetIn(action.kind); // told of their first
      if ((together > 1 || stage.sums()) && own >= 0 &&
          own / together == replicaAt(schedule_, told.rank, action.stage) / together)
        starts.push_back({action});
      return;
    }
    Start start = {action, told.rank == rank_, told.peerRank == rank_};
    if (!start.sends && !start.receives) return;
    if (isTied(action.kind)) {
      const bool ownerSends = action.kind == ActionKind::sendVersion;
      start.userReplica = static_cast<int>(ownerSends ? replicaAt(schedule_, told.peerRank, action.peer)
                                                      : replicaAt(schedule_, told.rank, action.stage));
    }
    starts.push_back(start);
  }

  std::vector<Start> starts;

private:
  const Schedule& schedule_;
  int rank_;
};

StartOrder::Lane& StartOrder::lane(const Schedule& schedule, const Action& action, int userReplica) {
  for (Lane& known : lanes_)
    if (known.kind == action.kind && known.stage == action.stage && known.peer == action.peer &&
        known.userReplica == userReplica)
      return known;
  return lanes_.emplace_back(
      Lane{action.kind, action.stage, action.peer, userReplica, schedule.advanceOf(action, period_), {}, {}});
}

void StartOrder::add(const Schedule& schedule, const Start& start) {
  const auto turn = static_cast<std::int64_t>(turns_.size());
  const Action& action = start.action;
  auto put = [&](const Action& own, int userReplica) {
    Lane& to = lane(schedule, own, userReplica);
    to.indices.push_back(own.index);
    to.turns.push_back(turn);
  };
  const bool isTransfer = start.sends || start.receives;
  const bool ownerSends = action.kind == ActionKind::sendVersion;
  if (start.sends || !isTransfer) put(action, ownerSends ? start.userReplica : 0);
  if (start.receives)
    put({otherEnd(action.kind), false, action.peer, action.stage, action.index},
        action.kind == ActionKind::sendPart ? start.userReplica : 0);
  turns_.push_back({.after = isVersioned(action.kind)
                                 ? schedule.updateFirst(schedule.versionedStage(action), schedule.versionOf(action))
                                 : action.index,
                    .halves = start.sends && start.receives ? 2 : 1});
}

/// Executes the endless run until two halts agree. The period after them is executed twice, to see that it is the same.
/// Lists that end have none: every rank must come to that, though its own part may repeat itself for a while.
bool StartOrder::findPeriod(const Schedule& schedule, int rank) {
  std::int64_t period = periodMinibatches(schedule);
  for (const RankList& list : schedule.ranks) {
    if (list.repeat.empty()) return false;
    period = std::lcm(period, list.step);
  }

  Collector collector(schedule, rank);
  GatedRun run(schedule, [&](const TracedAction& told) { collector(told); });
  std::size_t begin = 0; // of the starts of the last period
  int agreed = 0;        // periods in a row
  Halt before;
  for (std::int64_t gate = period; gate <= minibatches_ / 2; gate += period) {
    const std::size_t end = collector.starts.size();
    Halt after = run.runTo(gate);
    const bool same = !before.round.empty() && isSame(schedule, before, after, period);
    before = std::move(after);
    agreed = same ? agreed + 1 : 0;
    if (agreed < 2) {
      begin = end;
      continue;
    }
    std::vector<Start> last(collector.starts.begin() + static_cast<std::ptrdiff_t>(begin),
                            collector.starts.begin() + static_cast<std::ptrdiff_t>(end));
    for (Start& start : last) start.action.index += schedule.advanceOf(start.action, period);
    if (!std::equal(last.begin(), last.end(), collector.starts.begin() + static_cast<std::ptrdiff_t>(end),
                    collector.starts.end()))
      return false;
    period_ = period;
    repeated_ = static_cast<std::int64_t>(begin);
    collector.starts.resize(end);
    for (std::size_t i = 0; i < end; ++i) {
      if (i == begin)
        for (Lane& known : lanes_) known.repeated = known.indices.size();
      add(schedule, collector.starts[i]);
    }
    return true;
  }
  return false;
}

StartOrder::StartOrder(const Schedule& schedule, int rank, std::int64_t minibatches) : minibatches_(minibatches) {
  if (findPeriod(schedule, rank)) return;
  Collector collector(schedule, rank);
  check(schedule, minibatches,
        {.order = false, .picture = false, .rules = false, .observe = [&](const TracedAction& told) {
           collector(told);
         }});
  for (const Start& start : collector.starts) add(schedule, start);
}

StartOrder StartOrder::ofEvaluation(const Schedule& schedule, int rank, std::int64_t minibatches) {
  StartOrder order;
  order.minibatches_ = minibatches;
  Collector collector(schedule, rank);
  check(
      schedule, minibatches,
      {.evaluation = true, .order = false, .picture = false, .rules = false, .observe = [&](const TracedAction& told) {
         collector(told);
       }});
  for (const Start& start : collector.starts) order.add(schedule, start);
  return order;
}

std::int64_t StartOrder::turn(const Action& action, int userReplica) const {
  for (const Lane& lane : lanes_) {
    if (lane.kind != action.kind || lane.stage != action.stage || lane.peer != action.peer ||
        lane.userReplica != userReplica)
      continue;
    std::int64_t periods = 0;
    if (period_ > 0 && lane.repeated < lane.indices.size() && action.index > lane.indices.back())
      periods = (action.index - lane.indices[lane.repeated]) / lane.step;
    const std::int64_t wanted = action.index - periods * lane.step;
    const auto found = std::lower_bound(lane.indices.begin(), lane.indices.end(), wanted);
    if (found == lane.indices.end() || *found != wanted) return -1;
    const std::int64_t inPeriod = static_cast<std::int64_t>(turns_.size()) - repeated_;
    return lane.turns[static_cast<std::size_t>(found - lane.indices.begin())] + periods * inPeriod;
  }
  return -1;
}

StartOrder::Turn StartOrder::at(std::int64_t turn) const {
  const auto known = static_cast<std::int64_t>(turns_.size());
  if (turn < known) return turns_[index(turn)];
  const std::int64_t periods = (turn - repeated_) / (known - repeated_);
  Turn result = turns_[index(turn - periods * (known - repeated_))];
  result.after += periods * period_;
  return result;
}

} // namespace pdcrt
