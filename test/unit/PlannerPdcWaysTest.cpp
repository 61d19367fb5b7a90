// LINK: pdcPlanner
// What SolverWays proves of the way to a stage, against every chain of down-sets.
#include "PlannerPdcInstances.h"
#include "Rounds.h"
#include "Search/Ways.h"

#include <gtest/gtest.h>

#include <iterator>
#include <set>

using namespace pdc;

namespace {

constexpr double never = -1e300;

/// Computation on the longest way of a value from stage 0 to each stage, and of a gradient back from it, by edges of
/// stages: a value goes to each stage that uses it, its gradient comes back from each of them to the one before.
std::vector<double> waysOf(const CostGraph& graph, const std::vector<int>& stageOf, int stages) {
  std::vector<double> forwardMs(static_cast<std::size_t>(stages), 0), backwardMs = forwardMs;
  for (std::size_t v = 0; v < graph.nodes.size(); ++v) {
    forwardMs[stageOf[v]] += graph.nodes[v].forwardMs;
    backwardMs[stageOf[v]] += graph.nodes[v].inputGradientMs + graph.nodes[v].weightGradientMs;
  }
  std::vector<double> there(forwardMs.size(), never), back = there;
  there[0] = back[0] = 0;
  for (int s = 0; s < stages; ++s)
    for (const CostTensor& tensor : graph.tensors) {
      std::set<int> users;
      for (std::int64_t to : tensor.to) users.insert(stageOf[static_cast<std::size_t>(to)]);
      const int from = stageOf[static_cast<std::size_t>(tensor.from)];
      if (!users.contains(s) || s == from) continue;
      there[s] = std::max(there[s], there[from] + forwardMs[from]);
      std::set<int> parts = {from}; // of the gradient
      for (std::int64_t user : tensor.gradientUsers()) parts.insert(stageOf[static_cast<std::size_t>(user)]);
      if (!parts.contains(s)) continue;
      const int before = *std::prev(parts.find(s));
      back[s] = std::max(back[s], back[before] + backwardMs[before]);
    }
  for (std::size_t s = 0; s < there.size(); ++s) there[s] += back[s];
  return there;
}

class Chains {
public:
  Chains(const CostGraph& graph, const SolverProblem& problem, const States& states)
      : graph_(graph), problem_(problem), states_(states) {}

  /// Compares with every chain of at most `most` stages.
  void compare(int most) {
    most_ = most;
    ways_.emplace(problem_, states_, most);
    chain_ = {0};
    extend();
  }

  int known = 0; ///< stages of which something was proven

private:
  void extend() {
    const int last = chain_.back();
    if (last == states_.last()) return check();
    if (static_cast<int>(chain_.size()) > most_) return;
    for (int next = last + 1; next < states_.size(); ++next) {
      if (!states_.precedes(last, next)) continue;
      chain_.push_back(next);
      extend();
      chain_.pop_back();
    }
  }

  void check() {
    std::vector<int> stageOf(graph_.nodes.size(), 0);
    const int stages = static_cast<int>(chain_.size()) - 1;
    for (int s = stages; s > 0; --s)
      states_.set(chain_[s]).forEach([&](std::size_t block) {
        for (std::int64_t v : problem_.blocks[block].nodes) stageOf[static_cast<std::size_t>(v)] = s - 1;
      });
    const std::vector<double> ways = waysOf(graph_, stageOf, stages);
    for (int s = 0; s < stages; ++s) {
      const double least = ways_->before(chain_[s], chain_[s + 1]);
      known += least > 0;
      ASSERT_LE(least, std::max(ways[s], 0.0) * (1 + 1e-9)) << "stage " << s << " of " << stages;
    }
  }

  const CostGraph& graph_;
  const SolverProblem& problem_;
  const States& states_;
  int most_ = 0;
  std::optional<SolverWays> ways_;
  std::vector<int> chain_;
};

CostNode node(double ms) {
  CostNode node;
  node.forwardMs = ms;
  node.inputGradientMs = ms;
  return node;
}

} // namespace

TEST(PlannerPdcWays, NoChainOfStagesHasAShorterWay) {
  RandomInstances random(5);
  int known = 0;
  for (int round = 0; round < rounds(150); ++round) {
    const CostGraph graph = random.graph();
    const SolverProblem problem = SolverProblem::of(graph);
    const States states(problem, 300);
    if (!states.isComplete()) continue;
    Chains chains(graph, problem, states);
    for (int most = 1; most <= 7; most += 1 + most / 4) chains.compare(most);
    known += chains.known;
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(known, rounds(150));
}

// Two branches of ten blocks: two stages cannot tear them apart, so both are on the way to what joins them.
TEST(PlannerPdcWays, FewStagesHaveBothBranchesOnTheWay) {
  CostGraph graph;
  graph.nodes.assign(12, node(1));
  for (std::int64_t v = 1; v < 11; ++v) {
    graph.tensors.push_back({"in" + std::to_string(v), v > 2 ? v - 2 : 0, {v}, 1, true});
    if (v > 8) graph.tensors.push_back({"out" + std::to_string(v), v, {11}, 1, true});
  }
  const SolverProblem problem = SolverProblem::of(graph);
  const States states(problem, 300);
  const int beforeLast = states.last() - 1;
  ASSERT_EQ(states.set(beforeLast).size(), 11U);
  EXPECT_EQ(SolverWays(problem, states, 2).before(beforeLast, states.last()), 22);
  EXPECT_EQ(SolverWays(problem, states, 12).before(beforeLast, states.last()), 12); // the longest path
}
