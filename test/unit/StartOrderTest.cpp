// LINK: pdcSchedule pdcrt_base
// The order in which ranks start transfers, by executing the lists anew: each rank has one lane without buffers, in
// which it does one transfer after the other, in its order; a transfer is done when both ends have come to it. A rank
// may be a team: each member has a lane, and what they compute is done when all of them have come to it. Random
// pipelines under every schedule come to their end, of any length; where two turns of a member are swapped, they do
// not.
#include "machine/StartOrder.h"
#include "RandomPipeline.h"
#include "Rounds.h"
#include "pdc/Schedule/PipelineShape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

using namespace pdcrt;

namespace {

/// A transfer, an all-reduce or a computation: kind of its send, stage that sends, stage that receives, index, replica
/// of the user of shared parameters, or that computes; the member of each rank, or 0 where all members do it.
using Name = std::array<std::int64_t, 6>;

/// Two turns that one process takes for each other.
struct Swap {
  int process;
  std::int64_t turn, other;
};

class OneLane {
public:
  OneLane(const Schedule& schedule, const std::vector<StartOrder>& orders, std::int64_t minibatches, bool evaluation,
          std::optional<Swap> swap = {})
      : schedule_(schedule), members_(schedule.stages[0].team), orders_(orders), swap_(swap),
        gates_(schedule.ranks.size() * static_cast<std::size_t>(members_)), processes_(gates_.size()) {
    for (std::size_t p = 0; p < processes_.size(); ++p) {
      const int rank = static_cast<int>(p) / members_;
      gates_[p].open(orders[static_cast<std::size_t>(rank)], minibatches);
      processes_[p].list =
          evaluation ? expandEvaluation(schedule, rank, minibatches) : expand(schedule, rank, minibatches);
    }
  }

  /// Whether all lists come to their end.
  bool run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t p = 0; p < processes_.size(); ++p)
        for (Process& process = processes_[p]; process.executed < process.list.size() && execute(static_cast<int>(p));)
          moved = true, ++process.executed;
      for (const auto& [name, halves] : std::map(posted_)) moved |= start(name, halves);
    }
    return posted_.empty() && std::all_of(processes_.begin(), processes_.end(), [](const Process& process) {
             return process.executed == process.list.size();
           });
  }

  std::int64_t turns(int process) const { return gates_[static_cast<std::size_t>(process)].next(); }

  /// After run(): two turns of a process, one after the other, in which it met the same other one.
  std::optional<Swap> swappable(std::mt19937& random) const {
    std::vector<Swap> found;
    for (std::size_t p = 0; p < processes_.size(); ++p) {
      const std::map<std::int64_t, int>& peers = processes_[p].peers;
      auto previous = peers.end();
      for (auto at = peers.begin(); at != peers.end(); previous = at++)
        if (previous != peers.end() && at->second == previous->second && at->second != static_cast<int>(p))
          found.push_back({static_cast<int>(p), previous->first, at->first});
    }
    if (found.empty()) return std::nullopt;
    return found[random() % found.size()];
  }

private:
  struct Process {
    std::vector<Action> list;
    std::size_t executed = 0;
    std::map<std::int64_t, int> peers; ///< by turn: the other process of a transfer, or the next one of the team
  };
  struct Half {
    int process;
    std::int64_t turn;
  };

  int replicaAt(int rank, int stage) const {
    for (const Host& host : schedule_.ranks[static_cast<std::size_t>(rank)].hosts)
      if (host.stage == stage) return host.replica;
    return 0;
  }
  int replicas(int stage) const { return schedule_.stages[static_cast<std::size_t>(stage)].replicas; }

  int meet(int stage, ActionKind kind) const { return schedule_.stages[static_cast<std::size_t>(stage)].meetIn(kind); }

  /// What an action of the rank's member stands for, with the replica by which its order tells transfers apart.
  std::vector<std::pair<Name, int>> namesOf(int rank, std::int64_t member, const Action& action) const {
    if (isComputation(action.kind))
      return {{Name{static_cast<std::int64_t>(action.kind), action.stage, action.stage, action.index,
                    replicaAt(rank, action.stage), 0},
               0}};
    const bool sends = action.kind == ActionKind::sendForward || action.kind == ActionKind::sendBackward ||
                       action.kind == ActionKind::sendVersion || action.kind == ActionKind::sendPart;
    const auto kind = static_cast<std::int64_t>(action.kind) - (sends || isReduction(action.kind) ? 0 : 1);
    const std::int64_t from = sends ? action.stage : action.peer, to = sends ? action.peer : action.stage;
    if (isReduction(action.kind)) // of the replicas that meet in it
      return {
          {Name{kind, from, to, action.index, replicaAt(rank, action.stage) / meet(action.stage, action.kind), member},
           0}};
    if (!isTied(action.kind)) return {{Name{kind, from, to, action.index, 0, member}, 0}};
    const SharedEdge& edge =
        schedule_.shared[static_cast<std::size_t>(schedule_.sharedBetween(action.stage, action.peer))];
    const bool versions = action.kind == ActionKind::sendVersion || action.kind == ActionKind::receiveVersion;
    std::vector<std::pair<Name, int>> names;
    for (int q = 0; q < replicas(edge.user); ++q) {
      const bool owner = action.stage == edge.owner;
      if (owner ? q % replicas(edge.owner) != replicaAt(rank, edge.owner) : q != replicaAt(rank, edge.user)) continue;
      if (versions ? !schedule_.takesVersion(edge, q, action.index) : !schedule_.hasPart(edge, q, action.index))
        continue;
      names.push_back({Name{kind, from, to, action.index, q, member}, owner ? q : 0});
    }
    return names;
  }

  bool execute(int process) {
    const Process& at = processes_[static_cast<std::size_t>(process)];
    const Action& action = at.list[at.executed];
    const int rank = process / members_;
    if (action.kind == ActionKind::gradientNorm) return true; // norms go another way
    if (isReduction(action.kind) && replicas(action.stage) == 1) return true;
    const bool computes = isComputation(action.kind);
    if (computes && (members_ == 1 || isVersioned(action.kind))) {
      EXPECT_EQ(orders_[static_cast<std::size_t>(rank)].turn(action), -1) << toString(action);
      return true;
    }
    for (const auto& [name, replica] : namesOf(rank, process % members_, action)) {
      if (action.wait && done_.count(name) == 0) return false;
      if (action.wait) continue;
      // Whoever computes has come to it once, and goes on when all have done it.
      if (computes && (done_.count(name) > 0 || hasPosted(name, process))) return done_.count(name) > 0;
      std::int64_t turn = orders_[static_cast<std::size_t>(rank)].turn(action, replica);
      EXPECT_GE(turn, 0) << toString(action);
      if (swap_ && swap_->process == process)
        turn = turn == swap_->turn ? swap_->other : turn == swap_->other ? swap_->turn : turn;
      posted_[name].push_back({process, turn});
    }
    return !computes;
  }

  bool hasPosted(const Name& name, int process) const {
    const auto found = posted_.find(name);
    return found != posted_.end() && std::any_of(found->second.begin(), found->second.end(),
                                                 [&](const Half& half) { return half.process == process; });
  }

  /// How many must come to it.
  int needed(const Name& name) const {
    const auto kind = static_cast<ActionKind>(name[0]);
    if (isComputation(kind)) return members_;
    return isReduction(kind) ? meet(static_cast<int>(name[2]), kind) : 2;
  }

  /// Starts what all have posted, and come to, and so ends it.
  bool start(const Name& name, const std::vector<Half>& halves) {
    if (static_cast<int>(halves.size()) < needed(name)) return false;
    for (const Half& half : halves)
      if (!gates_[static_cast<std::size_t>(half.process)].mayStart(half.turn)) return false;
    const bool reduces = isReduction(static_cast<ActionKind>(name[0]));
    for (const Half& half : halves) {
      gates_[static_cast<std::size_t>(half.process)].started(half.turn);
      const Half& next = halves[(static_cast<std::size_t>(&half - halves.data()) + 1) % halves.size()];
      if (!reduces) processes_[static_cast<std::size_t>(half.process)].peers[half.turn] = next.process;
    }
    done_.insert(name);
    posted_.erase(name);
    return true;
  }

  const Schedule& schedule_;
  int members_; ///< of every rank
  const std::vector<StartOrder>& orders_;
  std::optional<Swap> swap_;
  std::vector<StartGate> gates_;   ///< by process
  std::vector<Process> processes_; ///< the members of a rank are neighbours
  std::map<Name, std::vector<Half>> posted_;
  std::set<Name> done_;
};

/// For every kind of plan, now and then with teams of two or three.
Schedule randomSchedule(std::mt19937& random) {
  Schedule schedule = pdc::buildSchedule(pdc::RandomPipeline(random).shape());
  const int team = std::max(1, static_cast<int>(random() % 5) - 1);
  for (ScheduleStage& stage : schedule.stages) stage.team = team;
  return schedule;
}

std::vector<StartOrder> ordersOf(const Schedule& schedule, std::int64_t minibatches) {
  std::vector<StartOrder> orders;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    orders.emplace_back(schedule, static_cast<int>(rank), minibatches);
  return orders;
}

TEST(StartOrder, NoRandomPipelineDeadlocksInOneLane) {
  std::mt19937 random(21);
  int periodic = 0, swapped = 0, plans = pdc::rounds(150), selfish = 0, shared = 0, teams = 0;
  for (int round = 0; round < plans; ++round) {
    const Schedule schedule = randomSchedule(random);
    const std::int64_t longest = 60 + static_cast<std::int64_t>(random() % 100);
    const std::vector<StartOrder> orders = ordersOf(schedule, longest);
    periodic += orders[0].isPeriodic();
    shared += !schedule.shared.empty();
    teams += schedule.stages[0].team > 1;
    // Its own length, a shorter one, which has the same order with gaps, and where there is a period a longer one.
    for (std::int64_t minibatches : {longest, 1 + static_cast<std::int64_t>(random() % 60), 2 * longest + 3}) {
      if (!orders[0].covers(minibatches)) continue;
      OneLane run(schedule, orders, minibatches, false);
      ASSERT_TRUE(run.run()) << "round " << round << ", " << minibatches << " minibatches\n" << toString(schedule);
      for (std::int64_t turn = 0; turn < run.turns(0); ++turn) selfish += orders[0].at(turn).halves == 2;
      const std::optional<Swap> swap = run.swappable(random);
      if (!swap) continue;
      ++swapped;
      ASSERT_FALSE(OneLane(schedule, orders, minibatches, false, swap).run())
          << "round " << round << ": process " << swap->process << " swaps " << swap->turn << " and " << swap->other
          << "\n"
          << toString(schedule);
    }
  }
  EXPECT_GT(periodic, plans / 2);
  EXPECT_GT(swapped, plans);
  EXPECT_GT(selfish, 0);
  EXPECT_GT(shared, plans / 20);
  EXPECT_GT(teams, plans / 3);
}

// As a schedule file may have them, for one length of a run.
TEST(StartOrder, ListsThatEndHaveNoPeriod) {
  std::mt19937 random(23);
  for (int round = 0; round < pdc::rounds(100); ++round) {
    Schedule schedule = randomSchedule(random);
    const std::int64_t minibatches = 1 + static_cast<std::int64_t>(random() % 30);
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      schedule.ranks[rank].start = expand(schedule, static_cast<int>(rank), minibatches);
      schedule.ranks[rank].repeat.clear();
    }
    const std::vector<StartOrder> orders = ordersOf(schedule, minibatches);
    for (const StartOrder& order : orders) EXPECT_FALSE(order.isPeriodic());
    ASSERT_TRUE(OneLane(schedule, orders, minibatches, false).run()) << toString(schedule);
  }
}

TEST(StartOrder, NoEvaluationDeadlocksInOneLane) {
  std::mt19937 random(22);
  for (int round = 0; round < pdc::rounds(100); ++round) {
    const Schedule schedule = randomSchedule(random);
    const std::int64_t minibatches = 1 + static_cast<std::int64_t>(random() % 30);
    std::vector<StartOrder> orders;
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
      orders.push_back(StartOrder::ofEvaluation(schedule, static_cast<int>(rank), minibatches));
    ASSERT_TRUE(OneLane(schedule, orders, minibatches, true).run()) << toString(schedule);
  }
}

TEST(StartOrder, OfALongRunIsOfAFewPeriods) {
  const Schedule schedule = pdc::buildSchedule(pdc::straightShape({{.replicas = 2, .warmup = 1}, {.replicas = 1}}));
  const StartOrder order(schedule, 2, std::int64_t{1} << 40);
  ASSERT_TRUE(order.isPeriodic());
  // The only replica of the last stage: receives, sends gradients, nothing to reduce.
  const std::int64_t far = (std::int64_t{1} << 39) + 1;
  const Action receive = {ActionKind::receiveForward, false, 1, 0, far},
               send = {ActionKind::sendBackward, false, 1, 0, far};
  EXPECT_GE(order.turn(receive), 2 * far - 8);
  EXPECT_LT(order.turn(receive), order.turn(send));
  EXPECT_EQ(order.at(order.turn(send)).after, far);
  EXPECT_EQ(order.turn({ActionKind::allReduce, false, 1, -1, 3}), -1);
}

} // namespace
