// Executes the lists of all ranks against each other: an event-driven simulation in which whatever is under way
// progresses at a rate (one, or a share of the cores or links), so that with all times zero it is the deadlock check.
#include "CheckParts.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <tuple>

using namespace pdcrt;

namespace {

/// All transfers of one edge in one direction.
struct Channel {
  struct Lane {
    std::int64_t next; ///< minibatch that starts next
    bool busy = false;
  };
  int edge;
  bool forward;
  int source, target;                                ///< stages
  std::vector<char> sendPosted, receivePosted, done; ///< by minibatch
  std::vector<Lane> sending, receiving;              ///< by replica
};

/// The all-reduces of one stage.
struct Reductions {
  std::vector<int> posted; ///< replicas that started version i + 1
  std::int64_t started = 0, done = 0;
  bool busy = false;
};

/// A computation, transfer or all-reduce under way.
struct Task {
  enum class Kind { computation, transfer, allReduce } kind;
  int rank;          ///< that computes, sends, or hosts replica 0
  int peerRank = -1; ///< that receives
  int place = 0;     ///< channel, or stage
  Action action;
  double duration = 0, remaining = 0, start = 0;
};

class Machine {
public:
  Machine(const Schedule& schedule, const Lists& lists, std::int64_t minibatches, const CheckOptions& options,
          CheckResult& result)
      : schedule_(schedule), lists_(lists), minibatches_(minibatches), times_(options.times ? *options.times : Times()),
        trace_(options.trace), result_(result), position_(lists.size(), 0), computing_(lists.size(), 0),
        inputDone_(minibatches, 0) {
    rankOf_.resize(schedule.stages.size());
    for (std::size_t s = 0; s < schedule.stages.size(); ++s) {
      rankOf_[s].resize(schedule.stages[s].replicas);
      reductions_.push_back({std::vector<int>(schedule.updates(static_cast<int>(s), minibatches), 0)});
    }
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r)
      for (const Host& host : schedule.ranks[r].hosts) rankOf_[host.stage][host.replica] = static_cast<int>(r);
    for (std::size_t e = 0; e < schedule.edges.size(); ++e)
      for (bool forward : {true, false}) addChannel(static_cast<int>(e), forward);
  }

  void run() {
    for (std::size_t r = 0; r < lists_.size(); ++r) ready_.push_back(static_cast<int>(r));
    do {
      while (!ready_.empty()) {
        int rank = ready_.front();
        ready_.pop_front();
        advance(rank);
      }
    } while (passTime());
    result_.finishMs = now_;
    result_.periodMs = period();
    for (std::size_t r = 0; r < lists_.size(); ++r) result_.deadlock |= position_[r] < lists_[r].size();
    if (result_.deadlock) result_.problem = picture();
  }

private:
  void addChannel(int edge, bool forward) {
    const ScheduleEdge& e = schedule_.edges[edge];
    Channel channel{edge, forward, forward ? e.from : e.to, forward ? e.to : e.from};
    std::size_t size = (forward ? e.forward : e.backward) ? minibatches_ : 0;
    channel.sendPosted.assign(size, 0);
    channel.receivePosted.assign(size, 0);
    channel.done.assign(size, 0);
    for (int q = 0; q < schedule_.stages[channel.source].replicas; ++q) channel.sending.push_back({q});
    for (int q = 0; q < schedule_.stages[channel.target].replicas; ++q) channel.receiving.push_back({q});
    channels_.push_back(std::move(channel));
  }

  int rankAt(int stage, std::int64_t minibatch) const {
    return rankOf_[stage][minibatch % schedule_.stages[stage].replicas];
  }

  int channelOf(const Action& action) const {
    return 2 * schedule_.edgeBetween(action.stage, action.peer) + (isForwardTransfer(action.kind) ? 0 : 1);
  }

  /// Executes the list of `rank` until it computes, blocks or ends.
  void advance(int rank) {
    const std::vector<Action>& list = lists_[rank];
    while (!computing_[rank] && position_[rank] < list.size()) {
      const Action& action = list[position_[rank]];
      if (action.wait && !isDone(action)) return;
      ++position_[rank];
      if (action.wait) continue;
      if (isTransfer(action.kind)) {
        postTransfer(action);
      } else if (action.kind == ActionKind::allReduce) {
        ++reductions_[action.stage].posted[action.index - 1];
        startReduction(action.stage);
      } else {
        computing_[rank] = 1;
        begin({Task::Kind::computation, rank, -1, action.stage, action,
               times_.computation ? times_.computation(action) : 0});
      }
    }
  }

  bool isDone(const Action& action) const {
    if (action.kind == ActionKind::allReduce) return reductions_[action.stage].done >= action.index;
    return channels_[channelOf(action)].done[action.index];
  }

  void postTransfer(const Action& action) {
    int index = channelOf(action);
    Channel& channel = channels_[index];
    bool send = action.kind == ActionKind::sendForward || action.kind == ActionKind::sendBackward;
    (send ? channel.sendPosted : channel.receivePosted)[action.index] = 1;
    startTransfer(index, action.index);
  }

  void startTransfer(int index, std::int64_t b) {
    Channel& channel = channels_[index];
    if (b >= minibatches_ || !channel.sendPosted[b] || !channel.receivePosted[b]) return;
    Channel::Lane& from = channel.sending[b % channel.sending.size()];
    Channel::Lane& to = channel.receiving[b % channel.receiving.size()];
    if (from.busy || to.busy || from.next != b || to.next != b) return;
    from.busy = to.busy = true;
    Action send{channel.forward ? ActionKind::sendForward : ActionKind::sendBackward, false, channel.source,
                channel.target, b};
    result_.started.push_back(send);
    double duration = times_.transfer ? times_.transfer(schedule_.edges[channel.edge], channel.forward) : 0;
    begin({Task::Kind::transfer, rankAt(channel.source, b), rankAt(channel.target, b), index, send, duration});
  }

  void startReduction(int stage) {
    Reductions& reductions = reductions_[stage];
    if (reductions.busy || reductions.started == static_cast<std::int64_t>(reductions.posted.size())) return;
    if (reductions.posted[reductions.started] < schedule_.stages[stage].replicas) return;
    reductions.busy = true;
    Action action{ActionKind::allReduce, false, stage, -1, ++reductions.started};
    result_.started.push_back(action);
    begin(
        {Task::Kind::allReduce, rankOf_[stage][0], -1, stage, action, times_.allReduce ? times_.allReduce(stage) : 0});
  }

  void begin(Task task) {
    task.remaining = task.duration;
    task.start = now_;
    if (task.duration > 0)
      running_.push_back(std::move(task));
    else
      finish(task);
  }

  void finish(const Task& task) {
    if (trace_) result_.trace.push_back({task.rank, task.peerRank, task.action, task.start, now_});
    switch (task.kind) {
    case Task::Kind::computation: finishComputation(task); break;
    case Task::Kind::transfer: finishTransfer(task); break;
    case Task::Kind::allReduce:
      reductions_[task.place].busy = false;
      reductions_[task.place].done = task.action.index;
      for (int rank : rankOf_[task.place]) ready_.push_back(rank);
      startReduction(task.place);
      break;
    }
  }

  void finishComputation(const Task& task) {
    computing_[task.rank] = 0;
    ready_.push_back(task.rank);
    bool backward = task.action.kind == ActionKind::backward || task.action.kind == ActionKind::backwardWeight;
    if (task.action.stage == 0 && (backward || task.action.kind == ActionKind::evaluate))
      inputDone_[task.action.index] = now_;
    for (HostUse& use : result_.hosts)
      if (use.host.stage == task.action.stage && rankOf_[use.host.stage][use.host.replica] == task.rank)
        use.computeMs += task.duration;
  }

  void finishTransfer(const Task& task) {
    Channel& channel = channels_[task.place];
    std::int64_t b = task.action.index;
    channel.done[b] = 1;
    Channel::Lane& from = channel.sending[b % channel.sending.size()];
    Channel::Lane& to = channel.receiving[b % channel.receiving.size()];
    from.busy = to.busy = false;
    from.next += static_cast<std::int64_t>(channel.sending.size());
    to.next += static_cast<std::int64_t>(channel.receiving.size());
    ready_.push_back(task.rank);
    ready_.push_back(task.peerRank);
    startTransfer(task.place, from.next);
    startTransfer(task.place, to.next);
  }

  /// The ranks whose outgoing and incoming links `task` uses.
  template <class Visit>
  void forEachLink(const Task& task, Visit visit) const {
    if (task.kind == Task::Kind::transfer) {
      visit(2 * task.rank);
      visit(2 * task.peerRank + 1);
    } else if (task.kind == Task::Kind::allReduce) {
      for (int rank : rankOf_[task.place]) visit(2 * rank), visit(2 * rank + 1);
    }
  }

  /// Lets time pass until the first task is done, and finishes what is done then. False if nothing is under way.
  bool passTime() {
    if (running_.empty()) return false;
    std::size_t computations = 0;
    std::vector<int> users(2 * lists_.size(), 0); // of each link
    for (const Task& task : running_) {
      computations += task.kind == Task::Kind::computation;
      if (times_.sharedLinks) forEachLink(task, [&](int link) { ++users[link]; });
    }
    double share = times_.cores > 0 ? std::min(1.0, times_.cores / std::max<double>(1, computations)) : 1;
    std::vector<double> rates;
    double step = std::numeric_limits<double>::infinity();
    for (const Task& task : running_) {
      double rate = task.kind == Task::Kind::computation ? share : 1;
      if (times_.sharedLinks) forEachLink(task, [&](int link) { rate = std::min(rate, 1.0 / users[link]); });
      rates.push_back(rate);
      step = std::min(step, task.remaining / rate);
    }
    now_ += step;
    std::vector<Task> finished;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < running_.size(); ++i) {
      Task& task = running_[i];
      task.remaining -= step * rates[i];
      if (task.remaining <= 1e-9 * task.duration)
        finished.push_back(std::move(task));
      else if (kept++ != i)
        running_[kept - 1] = std::move(task);
    }
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(kept), running_.end());
    for (const Task& task : finished) finish(task);
    return true;
  }

  double period() const {
    std::int64_t period = periodMinibatches(schedule_);
    std::int64_t periods = (minibatches_ - 1 - minibatchesInFlight(schedule_)) / period; // before the drain
    std::int64_t compared = periods / 2;
    if (compared < 1) return minibatches_ > 0 ? now_ / static_cast<double>(minibatches_) : 0;
    // Times may repeat only after several periods, as many as a loop holds: compare a number that most counts divide.
    for (std::int64_t divisor : {60, 12, 2})
      if (compared >= divisor) {
        compared -= compared % divisor;
        break;
      }
    return (inputDone_[periods * period] - inputDone_[(periods - compared) * period]) /
           static_cast<double>(compared * period);
  }

  /// A rank for which `rank` waits, with the reason.
  std::pair<int, std::string> reasonOf(int rank) const {
    const Action& action = lists_[rank][position_[rank]];
    auto missing = [&](int who, const Action& what) {
      return std::pair(who, "rank " + std::to_string(who) + " to start " + toString(what));
    };
    if (action.kind == ActionKind::allReduce) {
      // Some replica has not started the reduction that is next in the stage's lane.
      Action next{ActionKind::allReduce, false, action.stage, -1, reductions_[action.stage].done + 1};
      for (int who : rankOf_[action.stage]) {
        const std::vector<Action>& list = lists_[who];
        auto begin = list.begin(), end = begin + static_cast<std::ptrdiff_t>(position_[who]);
        if (std::find(begin, end, next) == end) return missing(who, next);
      }
    }
    const Channel& channel = channels_[channelOf(action)];
    // The transfer itself, or what is before it in one of its two lanes.
    std::int64_t b = action.index;
    for (bool moved = true; moved;) {
      const Channel::Lane& from = channel.sending[b % channel.sending.size()];
      const Channel::Lane& to = channel.receiving[b % channel.receiving.size()];
      std::int64_t earlier = std::min(from.next, to.next);
      moved = channel.sendPosted[b] && channel.receivePosted[b] && earlier < b;
      if (moved) b = earlier;
    }
    Action send{channel.forward ? ActionKind::sendForward : ActionKind::sendBackward, false, channel.source,
                channel.target, b};
    Action receive{channel.forward ? ActionKind::receiveForward : ActionKind::receiveBackward, false, channel.target,
                   channel.source, b};
    return channel.sendPosted[b] ? missing(rankAt(channel.target, b), receive)
                                 : missing(rankAt(channel.source, b), send);
  }

  /// Who waits for whom: one row per rank with its last actions and what blocks it, then one cycle.
  std::string picture() const {
    std::vector<std::vector<std::string>> rows{{"rank", "hosts", "last actions", "waits in", "for"}};
    std::vector<int> waitsFor(lists_.size(), -1);
    for (std::size_t r = 0; r < lists_.size(); ++r) {
      std::vector<std::string> row{std::to_string(r), "", "", "", ""};
      for (const Host& host : schedule_.ranks[r].hosts)
        row[1] += (row[1].empty() ? "" : " ") + std::to_string(host.stage) + "." + std::to_string(host.replica);
      for (std::size_t i = position_[r] - std::min<std::size_t>(3, position_[r]); i < position_[r]; ++i)
        row[2] += (row[2].empty() ? "" : " ") + toString(lists_[r][i]);
      if (position_[r] < lists_[r].size()) {
        row[3] = toString(lists_[r][position_[r]]);
        std::tie(waitsFor[r], row[4]) = reasonOf(static_cast<int>(r));
      } else {
        row[3] = "(finished)";
      }
      rows.push_back(std::move(row));
    }
    std::string text = "deadlock in a run of " + std::to_string(minibatches_) + " minibatches:\n";
    std::vector<std::size_t> widths(rows[0].size(), 0);
    for (const auto& row : rows)
      for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
    for (const auto& row : rows) {
      std::string line = " ";
      for (std::size_t c = 0; c < row.size(); ++c)
        line += " " + row[c] + std::string(widths[c] - row[c].size() + 1, ' ');
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text + cycle(waitsFor);
  }

  std::string cycle(const std::vector<int>& waitsFor) const {
    int rank = 0;
    while (waitsFor[rank] < 0) ++rank;
    // After as many steps as there are ranks the walk is on the cycle, or has ended at a finished rank.
    for (std::size_t i = 0; i < waitsFor.size() && waitsFor[rank] >= 0; ++i) rank = waitsFor[rank];
    if (waitsFor[rank] < 0) return "  rank " + std::to_string(rank) + " has finished without doing its part";
    std::string text = "  cycle: " + std::to_string(rank);
    for (int next = waitsFor[rank]; next != rank; next = waitsFor[next]) text += " -> " + std::to_string(next);
    return text + " -> " + std::to_string(rank);
  }

  const Schedule& schedule_;
  const Lists& lists_;
  std::int64_t minibatches_;
  Times times_;
  bool trace_;
  CheckResult& result_;

  std::vector<std::vector<int>> rankOf_; ///< by stage and replica
  std::vector<Channel> channels_;        ///< 2·edge: forward, 2·edge + 1: backward
  std::vector<Reductions> reductions_;   ///< by stage
  std::vector<std::size_t> position_;    ///< by rank: next action of its list
  std::vector<char> computing_;          ///< by rank
  std::vector<double> inputDone_;        ///< by minibatch: when stage 0 was done with it
  std::vector<Task> running_;
  std::deque<int> ready_; ///< ranks that may be able to go on
  double now_ = 0;
};

} // namespace

void pdcrt::execute(const Schedule& schedule, const Lists& lists, std::int64_t minibatches, const CheckOptions& options,
                    CheckResult& result) {
  Machine(schedule, lists, minibatches, options, result).run();
}
