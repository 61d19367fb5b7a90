// LINK: pdcSchedule pdcrt_base
// The order in which ranks start transfers, by executing the lists anew: each rank has one lane without buffers, in
// which it does one transfer after the other, in its order; a transfer is done when both ends have come to it. Random
// pipelines under every schedule come to their end, of any length; where two turns of a rank are swapped, they do not.
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

/// A transfer or an all-reduce: kind of its send, stage that sends, stage that receives, index, replica of the user of
/// shared parameters.
using Name = std::array<std::int64_t, 5>;

/// Two turns that one rank takes for each other.
struct Swap {
  int rank;
  std::int64_t turn, other;
};

class OneLane {
public:
  OneLane(const Schedule& schedule, const std::vector<StartOrder>& orders, std::int64_t minibatches, bool evaluation,
          std::optional<Swap> swap = {})
      : schedule_(schedule), orders_(orders), swap_(swap), gates_(schedule.ranks.size()),
        ranks_(schedule.ranks.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      gates_[r].open(orders[r], minibatches);
      const int rank = static_cast<int>(r);
      ranks_[r].list = evaluation ? expandEvaluation(schedule, rank, minibatches) : expand(schedule, rank, minibatches);
    }
  }

  /// Whether all lists come to their end.
  bool run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r)
        for (Rank& rank = ranks_[r]; rank.executed < rank.list.size() && execute(static_cast<int>(r));)
          moved = true, ++rank.executed;
      for (const auto& [name, halves] : std::map(posted_)) moved |= start(name, halves);
    }
    return posted_.empty() && std::all_of(ranks_.begin(), ranks_.end(),
                                          [](const Rank& rank) { return rank.executed == rank.list.size(); });
  }

  std::int64_t turns(int rank) const { return gates_[static_cast<std::size_t>(rank)].next(); }

  /// After run(): two turns of a rank, one after the other, of transfers with the same other rank.
  std::optional<Swap> swappable(std::mt19937& random) const {
    std::vector<Swap> found;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      auto previous = ranks_[r].peers.end();
      for (auto at = ranks_[r].peers.begin(); at != ranks_[r].peers.end(); previous = at++)
        if (previous != ranks_[r].peers.end() && at->second == previous->second && at->second != static_cast<int>(r))
          found.push_back({static_cast<int>(r), previous->first, at->first});
    }
    if (found.empty()) return std::nullopt;
    return found[random() % found.size()];
  }

private:
  struct Rank {
    std::vector<Action> list;
    std::size_t executed = 0;
    std::map<std::int64_t, int> peers; ///< by turn: the other rank of a transfer
  };
  struct Half {
    int rank;
    std::int64_t turn;
  };

  int replicaAt(int rank, int stage) const {
    for (const Host& host : schedule_.ranks[static_cast<std::size_t>(rank)].hosts)
      if (host.stage == stage) return host.replica;
    return 0;
  }
  int replicas(int stage) const { return schedule_.stages[static_cast<std::size_t>(stage)].replicas; }

  /// The transfers that an action of the rank stands for, with the replica by which its order tells them apart.
  std::vector<std::pair<Name, int>> namesOf(int rank, const Action& action) const {
    const bool sends = action.kind == ActionKind::sendForward || action.kind == ActionKind::sendBackward ||
                       action.kind == ActionKind::sendVersion || action.kind == ActionKind::sendPart;
    const auto kind = static_cast<std::int64_t>(action.kind) - (sends || isReduction(action.kind) ? 0 : 1);
    const std::int64_t from = sends ? action.stage : action.peer, to = sends ? action.peer : action.stage;
    if (!isTied(action.kind)) return {{Name{kind, from, to, action.index, 0}, 0}};
    const SharedEdge& edge =
        schedule_.shared[static_cast<std::size_t>(schedule_.sharedBetween(action.stage, action.peer))];
    const bool versions = action.kind == ActionKind::sendVersion || action.kind == ActionKind::receiveVersion;
    std::vector<std::pair<Name, int>> names;
    for (int q = 0; q < replicas(edge.user); ++q) {
      const bool owner = action.stage == edge.owner;
      if (owner ? q % replicas(edge.owner) != replicaAt(rank, edge.owner) : q != replicaAt(rank, edge.user)) continue;
      if (versions ? !schedule_.takesVersion(edge, q, action.index) : !schedule_.hasPart(edge, q, action.index))
        continue;
      names.push_back({Name{kind, from, to, action.index, q}, owner ? q : 0});
    }
    return names;
  }

  bool execute(int rank) {
    const Rank& at = ranks_[static_cast<std::size_t>(rank)];
    const Action& action = at.list[at.executed];
    if (isComputation(action.kind) || action.kind == ActionKind::gradientNorm) return true; // norms go another way
    if (action.kind == ActionKind::allReduce && replicas(action.stage) == 1) return true;
    for (const auto& [name, replica] : namesOf(rank, action)) {
      if (action.wait && done_.count(name) == 0) return false;
      if (action.wait) continue;
      std::int64_t turn = orders_[static_cast<std::size_t>(rank)].turn(action, replica);
      EXPECT_GE(turn, 0) << toString(action);
      if (swap_ && swap_->rank == rank)
        turn = turn == swap_->turn ? swap_->other : turn == swap_->other ? swap_->turn : turn;
      posted_[name].push_back({rank, turn});
    }
    return true;
  }

  /// Starts what all have posted, and come to, and so ends it.
  bool start(const Name& name, const std::vector<Half>& halves) {
    const bool reduces = static_cast<ActionKind>(name[0]) == ActionKind::allReduce;
    if (static_cast<int>(halves.size()) < (reduces ? replicas(static_cast<int>(name[2])) : 2)) return false;
    for (const Half& half : halves)
      if (!gates_[static_cast<std::size_t>(half.rank)].mayStart(half.turn)) return false;
    for (const Half& half : halves) {
      gates_[static_cast<std::size_t>(half.rank)].started(half.turn);
      if (!reduces)
        ranks_[static_cast<std::size_t>(half.rank)].peers[half.turn] = halves[&half == &halves[0] ? 1 : 0].rank;
    }
    done_.insert(name);
    posted_.erase(name);
    return true;
  }

  const Schedule& schedule_;
  const std::vector<StartOrder>& orders_;
  std::optional<Swap> swap_;
  std::vector<StartGate> gates_;
  std::vector<Rank> ranks_;
  std::map<Name, std::vector<Half>> posted_;
  std::set<Name> done_;
};

std::vector<StartOrder> ordersOf(const Schedule& schedule, std::int64_t minibatches) {
  std::vector<StartOrder> orders;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    orders.emplace_back(schedule, static_cast<int>(rank), minibatches);
  return orders;
}

TEST(StartOrder, NoRandomPipelineDeadlocksInOneLane) {
  std::mt19937 random(21);
  int periodic = 0, swapped = 0, plans = pdc::rounds(150), selfish = 0, shared = 0;
  for (int round = 0; round < plans; ++round) {
    const Schedule schedule = pdc::buildSchedule(pdc::RandomPipeline(random).shape());
    const std::int64_t longest = 60 + static_cast<std::int64_t>(random() % 100);
    const std::vector<StartOrder> orders = ordersOf(schedule, longest);
    periodic += orders[0].isPeriodic();
    shared += !schedule.shared.empty();
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
          << "round " << round << ": rank " << swap->rank << " swaps " << swap->turn << " and " << swap->other << "\n"
          << toString(schedule);
    }
  }
  EXPECT_GT(periodic, plans / 2);
  EXPECT_GT(swapped, plans);
  EXPECT_GT(selfish, 0);
  EXPECT_GT(shared, plans / 20);
}

// As a schedule file may have them, for one length of a run.
TEST(StartOrder, ListsThatEndHaveNoPeriod) {
  std::mt19937 random(23);
  for (int round = 0; round < pdc::rounds(100); ++round) {
    Schedule schedule = pdc::buildSchedule(pdc::RandomPipeline(random).shape());
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
    const Schedule schedule = pdc::buildSchedule(pdc::RandomPipeline(random).shape());
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
