// The abstract machine that executes a schedule before anything is run. Verify.h proves with it that a schedule cannot
// deadlock; Simulate.h gives its actions times. Standard library only; compiler and runtime share it.
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

struct Times; // Simulate.h

/// A computation, or a transfer (`action` is its send, `peerRank` the receiver), or an all-reduce (of replica 0); or,
/// if asked for, a wait that has blocked.
struct TracedAction {
  int rank = 0;
  int peerRank = -1;
  Action action;
  double startMs = 0, endMs = 0;
};

struct CheckOptions {
  const Times* times = nullptr; ///< nullptr: nothing takes time
  bool evaluation = false;      ///< execute the forward-only lists instead
  bool trace = false;           ///< fill CheckResult::trace
  bool order = true;            ///< fill CheckResult::started
  bool picture = true;          ///< draw what is wrong, and not only say it
  bool waits = false;           ///< trace and tell waits, too
  bool rules = true;            ///< check what concerns each rank alone, and fill CheckResult::hosts
  /// Stop when the steady state has been reached, `minibatches` at the latest: for those who want the period only.
  bool untilSteady = false;
  /// Execute every period of a long run. Otherwise, where neither order nor trace nor rules are asked for, the periods
  /// of a steady state that repeats itself exactly are not executed but reckoned (CheckResult::repeated).
  bool everyPeriod = false;
  std::function<void(const TracedAction&)> observe = {}; ///< told of everything that ends, in this order
  /// Told, besides, of everything of the ranks below retoldRanks that was not executed but reckoned.
  std::function<void(const TracedAction&)> retell = {};
  int retoldRanks = 0;
};

/// What one stage replica held at most.
struct HostUse {
  Host host;
  std::int64_t inFlight = 0; ///< minibatches between forward and backward
  std::int64_t versions = 1; ///< weight versions alive
  double computeMs = 0;      ///< sum of its computations
};

/// How one rank spent the time until finishMs; the parts add up to it.
struct RankUse {
  double computeMs = 0;           ///< computing, as if it had the cores for itself
  double sharedMs = 0;            ///< more, because ranks share cores
  double transferMs = 0;          ///< waiting for transfers that were under way
  double allReduceMs = 0;         ///< waiting for all-reduces that were under way
  double fillMs = 0;              ///< waiting for other ranks before its first computation
  double waitingMs = 0;           ///< waiting for other ranks later: what it waits for had not started
  double endedMs = 0;             ///< after its last action
  double firstMs = 0, lastMs = 0; ///< from its first computation to the end of its last action
};

struct CheckResult {
  bool passed = false;
  bool deadlock = false;
  /// Empty when it passed. Else what is wrong, then a grid of who does what when, with the spot in brackets; for a
  /// deadlock, before it, a table of the ranks with their last actions and whom each waits for.
  std::string problem;
  std::int64_t minibatches = 0; ///< of the run that was executed
  /// Of checkEveryDrain: whether the runs that were executed prove all others (see there).
  bool proven = false;

  /// Cycles of the steady state that were not executed, because they repeat the one before them: all times and uses are
  /// those of the whole run.
  struct Repeated {
    std::int64_t from = 0, cycle = 0, cycles = 0; ///< first minibatch; minibatches of a cycle; so many
  };
  Repeated repeated;

  double finishMs = 0;
  /// Steady-state time per minibatch: the slope of stage 0's backwards over whole periods in the second half of the
  /// run, before the drain; finishMs / minibatches if the run is too short for that.
  double periodMs = 0;
  bool steady = false;         ///< stage 0 was seen to repeat itself exactly; periodMs is then the limit
  std::vector<HostUse> hosts;  ///< in order of (stage, replica), if rules were checked
  std::vector<RankUse> ranks;  ///< if times were given
  std::vector<Action> started; ///< transfers (as their sends) and all-reduces (once), in the order of starting: "@n"
  std::vector<TracedAction> trace;
};

/// Executes a run of `minibatches`. `schedule` must be well formed. Takes time proportional to the number of actions
/// (see everyPeriod), and memory proportional to the number of ranks (and of minibatches, eight bytes each).
CheckResult check(const Schedule& schedule, std::int64_t minibatches, const CheckOptions& options = {});

/// After so many minibatches the schedule repeats itself: the least common multiple of the lengths of all routes (the
/// replica counts, where replicas take turns) and of the minibatches per update.
std::int64_t periodMinibatches(const Schedule& schedule);

/// Upper bound of the minibatches that are in the pipeline at once.
std::int64_t minibatchesInFlight(const Schedule& schedule);

} // namespace pdcrt
