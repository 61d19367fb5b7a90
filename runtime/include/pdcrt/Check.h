// The abstract machine that executes a schedule before anything is run: verifier and event-driven simulator in one.
// Standard library only; compiler and runtime share it.
//
// Rules of the machine:
// - A rank executes its list in order. Sends, receives and all-reduces are started and return at once; waits block.
// - A transfer starts when its send and its receive are both posted. There is no other buffer anywhere.
// - Per edge and direction each rank has one lane, which does its transfers in minibatch order, one at a time.
// - All-reduces have a lane of their own per stage and need every replica of the stage.
// Every event waits for all of a fixed set of others, so whether a schedule finishes does not depend on times.
//
// Besides, each rank's list is checked for what concerns this rank alone: data dependences, order, rings that are never
// overwritten while in use, weight versions, and that nothing is missing at the end.
#pragma once

#include "pdcrt/Schedule.h"

#include <functional>
#include <string>
#include <vector>

namespace pdcrt {

/// How long things take, in milliseconds; what is empty takes no time.
struct Times {
  std::function<double(const Action&)> computation;
  /// One minibatch over `edge`, alone on its link.
  std::function<double(const ScheduleEdge& edge, bool forward)> transfer;
  std::function<double(int stage)> allReduce;
  /// Ranks that can compute at once at full speed; more of them share the time equally. 0: every rank.
  int cores = 0;
  /// Whether each rank has one link out and one link in, which its transfers and all-reduces share equally.
  bool sharedLinks = false;
};

struct CheckOptions {
  const Times* times = nullptr; ///< nullptr: nothing takes time
  bool evaluation = false;      ///< execute the forward-only lists instead
  bool trace = false;           ///< fill CheckResult::trace
};

/// A computation, or a transfer (`action` is its send, `peerRank` the receiver), or an all-reduce (of replica 0).
struct TracedAction {
  int rank = 0;
  int peerRank = -1;
  Action action;
  double startMs = 0, endMs = 0;
};

/// What one stage replica held at most.
struct HostUse {
  Host host;
  std::int64_t inFlight = 0; ///< minibatches between forward and backward
  std::int64_t versions = 1; ///< weight versions alive
  double computeMs = 0;      ///< sum of its computations
};

struct CheckResult {
  bool passed = false;
  bool deadlock = false;
  /// Empty when it passed. For a deadlock, a table of the ranks with their last actions and whom each waits for.
  std::string problem;
  std::int64_t minibatches = 0; ///< of the run that was executed

  double finishMs = 0;
  /// Steady-state time per minibatch: the slope of stage 0's backwards over whole periods in the second half of the
  /// run, before the drain; finishMs / minibatches if the run is too short for that.
  double periodMs = 0;
  std::vector<HostUse> hosts;  ///< in order of (stage, replica)
  std::vector<Action> started; ///< transfers (as their sends) and all-reduces (once), in the order of starting: "@n"
  std::vector<TracedAction> trace;
};

/// Executes a run of `minibatches`. `schedule` must be well formed. Takes time proportional to the number of actions
/// (times the number of ranks when times are given).
CheckResult check(const Schedule& schedule, std::int64_t minibatches, const CheckOptions& options = {});

/// Executes every run shorter than the warm-up, every distinct drain after it, and one with two whole periods in the
/// steady state, and the evaluation of so many minibatches as well. Returns the first failure, or the longest run.
CheckResult checkEveryDrain(const Schedule& schedule);

/// After so many minibatches the schedule repeats itself: the least common multiple of the replica counts and of the
/// minibatches per update.
std::int64_t periodMinibatches(const Schedule& schedule);

/// Upper bound of the minibatches that are in the pipeline at once.
std::int64_t minibatchesInFlight(const Schedule& schedule);

} // namespace pdcrt
