// The machine of pdcrt/Machine.h: all ranks with their lists, lanes and all-reduces, and the clock.
#pragma once

#include "Clock.h"
#include "Parts.h"

#include <array>
#include <deque>
#include <optional>
#include <unordered_map>

namespace pdcrt {

/// The lanes of reductions that a stage may have, and which is that of a kind.
inline constexpr std::size_t reductionLanes = 5;
constexpr std::size_t laneNumber(ActionKind kind) {
  return static_cast<std::size_t>(kindRow(kind).lane) - static_cast<std::size_t>(ActionLane::allReduce);
}
static_assert(laneNumber(ActionKind::gradientNorm) == reductionLanes - 1);

class Machine {
public:
  Machine(const Schedule& schedule, std::int64_t minibatches, const CheckOptions& options, CheckResult& result);

  void run();

  /// Executes whatever can be without starting a forward of a minibatch >= gate; without time.
  Halt runTo(std::int64_t gate);

  /// For pictures: executes as far as the ranks come, rank r at most executed[r] actions, and calls nothing wrong.
  /// Returns since when each rank does nothing more.
  std::vector<double> runUntil(const std::vector<std::int64_t>& executed);

private:
  /// One end of the transfers between two replicas' stages, at one replica. Posts and transfers are in order.
  struct Lane {
    std::int64_t posted; ///< minibatch (or version) that is posted next
    std::int64_t next;   ///< that is transferred next
    double started = 0;  ///< when the transfer before `next` started
    bool busy = false;
  };
  /// All transfers of one edge in one direction.
  struct Channel {
    int edge; ///< in edges, or in shared
    bool shared, forward;
    int source, target;                             ///< stages
    ActionKind send;                                ///< which action of the source starts a transfer
    Routing from, to;                               ///< of source and target
    std::vector<Lane> sending = {}, receiving = {}; ///< by replica; of the user, for shared parameters
    Load load = {}; ///< of every transfer, once one is known, if there is one pair of ranks
    bool loadKnown = false;
  };
  /// A lane of reductions: those of one kind of one stage, or of one group of its replicas, or the norms over all
  /// stages.
  struct Reductions {
    ActionKind kind;
    int stage;                   ///< of norms over all stages: -1
    std::vector<int> ranks = {}; ///< that host the replicas which take part
    std::deque<int> posted = {}; ///< replicas that posted version started + 1, started + 2, …
    std::int64_t started = 0, done = 0;
    double startedMs = 0; ///< the newest
    bool busy = false;
  };
  /// Something under way that is not a computation.
  struct Task {
    bool allReduce = false;
    int channel = 0; ///< or index into reductions_
    int lane = 0;    ///< of shared parameters: replica of the user
    std::int64_t index = 0;
    double startMs = 0;
  };
  struct Rank {
    explicit Rank(ListCursor cursor) : list(std::move(cursor)) {}
    ListCursor list;
    Action action; ///< being computed
    bool computing = false, queued = false, blocked = false;
    std::int64_t most = endless; ///< actions that it executes
    double since = 0;            ///< of the computation, or of being blocked
    double durationMs = 0;       ///< of the computation, on cores of its own
    RankUse use;
    bool begun = false; ///< has computed something
  };
  /// All that decides what happens next, relative to the moment and to `base`: two that are equal have equal futures.
  struct Snapshot {
    std::int64_t base = 0; ///< the last whole period of which every stage is done with the first minibatch
    double ms = 0;
    std::vector<std::int64_t> counts; ///< how far lists, lanes and all-reduces are, and what is under way
    std::vector<double> left;         ///< of what is under way
  };
  /// What may be a cycle of the steady state, while it is executed.
  struct Cycle {
    Snapshot begin;
    std::int64_t minibatches = 0;
    std::vector<RankUse> uses;      ///< by rank, at its begin
    std::vector<TracedAction> told; ///< since then, of the ranks of CheckOptions::retoldRanks
  };
  /// Where an action finds its channel.
  struct Port {
    ActionKind kind;
    int peer, channel;
  };

  void addChannel(int edge, bool shared, bool forward);
  int channelOf(const Action& action) const;
  bool isServed(const Channel& channel, int q, std::int64_t version) const;
  void moveOn(Channel& channel, Lane& lane, int q, bool receiving, std::int64_t Lane::*counter);
  std::pair<int, int> endsOf(const Channel& channel, std::int64_t index, int q) const;

  void passTime();
  void settle();
  void wake(int rank);
  void advance(int rank);
  bool isDone(int rank, const Action& action, double* startedMs) const;
  void account(int rank, double startedMs);
  void post(int rank, const Action& action);
  int replicaAt(int rank, int stage) const;
  void startTransfer(int channel, std::int64_t index, int lane);
  void loadOf(const Channel& channel, std::int64_t index, int lane, Load& load) const;
  void postReduction(int rank, const Action& action);
  void addReductions();
  std::size_t reductionOf(int rank, const Action& action) const;
  int groupOf(int which) const;
  std::pair<int, Action> missingPart(int rank, const Action& action) const;
  void startReduction(int which);
  void compute(int rank, const Action& action);
  void doneWithInput(std::int64_t minibatch);
  void finishComputation(int rank);
  void finish(const Task& task);
  void begin(const Task& task, const Load& load);
  Action actionOf(const Task& task) const;
  void tell(const TracedAction& traced);

  void lookForSteadyState();
  Snapshot snapshot() const;
  static bool isSame(const Snapshot& before, const Snapshot& after);
  std::int64_t versionsIn(std::int64_t minibatches, int stage) const;
  std::int64_t countIn(std::int64_t minibatches, const Reductions& lane) const;

  bool isCycleOver(const Snapshot& now);
  void beginCycle(Snapshot now, std::int64_t minibatches);
  std::int64_t repeatable(std::int64_t cycle) const;
  void repeat(std::int64_t cycles, double cycleMs);
  void tellAgain(std::int64_t cycles, double cycleMs);
  void conclude();
  double period() const;

  std::pair<int, std::string> reasonOf(int rank) const;
  std::string picture() const;

  const Schedule& schedule_;
  std::int64_t minibatches_;
  Times times_;
  CheckOptions options_;
  CheckResult& result_;
  Clock clock_;
  std::int64_t gate_ = endless;
  std::int64_t periodMinibatches_, inFlight_; ///< of the schedule

  std::vector<std::vector<int>> rankOf_;                    ///< by stage and replica
  std::vector<std::vector<Port>> ports_;                    ///< by stage
  std::vector<std::vector<std::pair<int, int>>> replicaOf_; ///< by rank: hosted stages with their replicas
  std::vector<int> firstHost_;                              ///< by stage: of its replicas in CheckResult::hosts
  std::vector<Channel> channels_;
  std::vector<Reductions> reductions_;
  std::vector<std::array<std::size_t, reductionLanes>> lanes_; ///< by stage and laneNumber(): the first in reductions_
  std::vector<Rank> ranks_;
  std::vector<int> stagesLeft_;   ///< by minibatch: not done with it
  std::vector<double> inputDone_; ///< by minibatch: when the last stage was done with it; -1 before
  std::int64_t inputs_ = 0;       ///< minibatches that every stage is done with, in order
  bool newPeriod_ = false;        ///< inputs_ has come to another period since the last snapshot
  bool looking_;                  ///< for the steady state
  std::unordered_map<std::size_t, std::int64_t> basesOf_; ///< by the hash of a snapshot's counts: its last base
  std::optional<Cycle> cycle_;
  std::vector<Task> tasks_; ///< by the number of the flow
  std::deque<int> ready_;   ///< ranks that may be able to go on
  Load load_;
};

/// Calls visit(lane) for the replicas of the user to which an action on tied parameters applies, at replica `mine`.
template <class Visit>
void forEachServed(const Schedule& schedule, const SharedEdge& edge, const Action& action, int mine, Visit visit) {
  if (action.stage == edge.user) return visit(mine);
  for (int q = mine; q < schedule.stages[edge.user].replicas; q += schedule.stages[edge.owner].replicas) visit(q);
}

/// Picture.cpp: a table of ranks and one cycle. `waitsFor[r]` < 0 where rank r has finished.
struct BlockedRank {
  std::string hosts, last, waitsIn, reason;
  int waitsFor = -1;
};
std::string pictureOf(std::int64_t minibatches, const std::vector<BlockedRank>& ranks);

/// Picture.cpp: the ranks on a cycle of `waitsFor`; without one, the finished rank that the others wait for.
std::vector<int> cycleOf(const std::vector<BlockedRank>& ranks);

} // namespace pdcrt
