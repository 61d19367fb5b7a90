// In which order a rank starts its transfers and all-reduces, where the transport cannot do several at once in any
// order (all operations of NCCL on a GPU): one total order for all ranks, that in which the check of the schedule
// starts them (Machine.h). Whoever waits for a transfer has started all that come before it, and so has its peer; so if
// every rank keeps to the order nobody waits for ever, though a rank did one transfer at a time and without buffers.
//
// A team does collectives while it computes. So its computations of minibatches are in the order too, each with one
// turn, in which a member starts all its collectives of the computation and nothing else. The turn is where the check
// ends the computation: behind every transfer that the list awaits before it, and before every one that the list posts
// after it. So a member that waits for the turn waits for starts of transfers that it has posted, and for nobody else;
// and the collectives of a turn wait for the other members to come to the same turn, before which they have started
// what comes before it. The argument above holds with a computation as one transfer between all members.
//
// Standard library only.
#pragma once

#include "pdcrt/Schedule.h"

#include <atomic>
#include <cstdint>
#include <vector>

namespace pdcrt {

/// The order of one rank: turns 0, 1, 2, … of the transfers and all-reduces that it takes part in, and of what a team
/// computes of minibatches. Norms of gradients, updates, and all-reduces of a single replica, have none.
///
/// An order of a run is one of every shorter run too, without what that one leaves out (checkEveryDrain): whoever
/// follows it skips the turns that are not in the run (Turn::after).
class StartOrder {
public:
  struct Turn {
    std::int64_t after = 0; ///< it is in runs of more than so many minibatches
    int halves = 1;         ///< 2: a transfer of the rank to itself, of which it starts send and receive
  };

  /// Of no rank: no action has a turn.
  StartOrder() = default;

  /// Of runs of up to `minibatches`. Takes the time of a check of a run of that length at most, and where the schedule
  /// comes to a period (nearly always) memory and time of a few periods, whatever the length.
  StartOrder(const Schedule& schedule, int rank, std::int64_t minibatches);

  /// Of evaluations of up to `minibatches`.
  static StartOrder ofEvaluation(const Schedule& schedule, int rank, std::int64_t minibatches);

  /// Whether it is the order of runs of so many minibatches.
  bool covers(std::int64_t minibatches) const { return period_ > 0 || minibatches <= minibatches_; }
  /// Whether the end is that of a period that comes again and again.
  bool isPeriodic() const { return period_ > 0; }

  /// The turn of an action of the rank, a send, a receive, an all-reduce or a computation; -1 if it has none.
  /// `userReplica`: of an owner of shared parameters, the replica of the user with which it exchanges them; else 0.
  std::int64_t turn(const Action& action, int userReplica = 0) const;

  Turn at(std::int64_t turn) const;

private:
  /// What follows one after the other in the rank's lists, so that its indices grow with its turns.
  struct Lane {
    ActionKind kind;
    int stage, peer, userReplica;
    std::int64_t step; ///< by which indices grow in a period
    std::vector<std::int64_t> indices, turns;
    std::size_t repeated = 0; ///< from here on they come again in each period
  };

  struct Start;
  class Collector;
  void add(const Schedule& schedule, const Start& start);
  Lane& lane(const Schedule& schedule, const Action& action, int userReplica);
  bool findPeriod(const Schedule& schedule, int rank);

  std::int64_t minibatches_ = 0;
  std::int64_t period_ = 0;   ///< minibatches; 0: none
  std::int64_t repeated_ = 0; ///< the turns from here on come again in each period
  std::vector<Turn> turns_;
  std::vector<Lane> lanes_;
};

/// Where a rank is in its order: lets its transfers, and a team's computations, start one after the other.
class StartGate {
public:
  /// Before anything of a run is started: its order, which stays where it is, and its length.
  void open(const StartOrder& order, std::int64_t minibatches) {
    order_ = &order;
    minibatches_ = minibatches;
    next_ = started_ = 0;
  }
  /// Shortens the run.
  void limit(std::int64_t minibatches) { minibatches_ = minibatches; }

  /// Whether all that comes before the turn has been started. What has no turn (-1) may start at any time.
  bool mayStart(std::int64_t turn) {
    if (turn < 0) return true;
    while (next_ < turn && order_->at(next_).after >= minibatches_) ++next_;
    return next_ == turn;
  }
  /// The turn, or one half of it, has been started.
  void started(std::int64_t turn) {
    if (turn < 0 || ++started_ < order_->at(turn).halves) return;
    started_ = 0;
    ++next_;
  }
  /// Grows with every turn.
  std::int64_t next() const { return next_; }

private:
  const StartOrder* order_ = nullptr;
  std::atomic<std::int64_t> minibatches_{0};
  std::int64_t next_ = 0;
  int started_ = 0; ///< halves of it
};

} // namespace pdcrt
