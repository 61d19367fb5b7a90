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

/// One direction of one link, and how long a transfer alone would keep it busy.
struct LinkUse {
  int link = 0;
  double ms = 0;
};

/// What one transfer or all-reduce takes: first the latency, then `aloneMs` at least, and more where the links that it
/// uses are shared. Those who use a link at the same time get equal parts of it; the slowest of its links decides.
struct Load {
  double latencyMs = 0;
  double aloneMs = 0;
  std::vector<LinkUse> links;
};

/// How long things take, in milliseconds; what is empty takes no time.
struct Times {
  std::function<double(const Action&)> computation;
  /// One minibatch over `edge`, alone on its link.
  std::function<double(const ScheduleEdge& edge, bool forward)> transfer;
  std::function<double(int stage)> allReduce;
  /// Ranks that can compute at once at full speed; more of them share the time equally. 0: every rank.
  int cores = 0;
  /// By rank: the group with which it shares cores, and by group: how many (0: every rank has its own). Empty: all
  /// ranks are one group.
  std::vector<int> coreGroup, groupCores;
  /// Whether each rank has one link out and one link in, which its transfers and all-reduces share equally.
  bool sharedLinks = false;
  /// A network with `links` links, instead of transfer, allReduce and sharedLinks. The load is empty when they are
  /// called; they fill it in.
  int links = 0;
  std::function<void(const ScheduleEdge& edge, bool forward, int fromRank, int toRank, Load&)> transferLoad;
  std::function<void(int stage, Load&)> allReduceLoad;
  /// Shared parameters (`version`) or the gradients of their uses between replicas of owner and user.
  std::function<void(const SharedEdge& edge, bool version, int fromRank, int toRank, Load&)> sharedLoad;
};

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

/// Shows that runs of every length work: those shorter than the warm-up, and every drain. Not by executing them all:
///
/// 1. A run of T minibatches is the endless run without some of its actions, and what is left waits for nothing else
///    than before: both ends of a transfer, all parts of an all-reduce, and everything before them in their lanes are
///    left out together, and what a rank does stays in order. So a circle of waits in the run of T is one in every
///    longer run and in the endless one, and so is a broken rule (buffers, versions, order) of a rank.
/// 2. Without a deadlock the endless run, if no forward of a minibatch >= c may start, comes to one definite halt,
///    whatever the order of execution. When the halts for c and for c + P are the same but for P minibatches, all later
///    ones are too, and the endless run never stops.
///
/// So it executes the endless run, a period P = periodMinibatches() at a time, until two halts agree; checks the rules
/// of each rank for as long; and executes an evaluation. On failure it returns the shortest run that fails.
///
/// `proven` says whether the halts agreed within `mostActions`; where not, because replica counts have a large common
/// multiple, what was executed (CheckResult::minibatches) has passed, and nothing more is known.
CheckResult checkEveryDrain(const Schedule& schedule, std::int64_t mostActions = 100'000'000);

/// After so many minibatches the schedule repeats itself: the least common multiple of the replica counts and of the
/// minibatches per update.
std::int64_t periodMinibatches(const Schedule& schedule);

/// Upper bound of the minibatches that are in the pipeline at once.
std::int64_t minibatchesInFlight(const Schedule& schedule);

} // namespace pdcrt
