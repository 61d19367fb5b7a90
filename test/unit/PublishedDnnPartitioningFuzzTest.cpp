// LINK: pdcPublished
// Operator placement against trying every plan, on random problems of up to eight nodes.
#include "Rounds.h"
#include "pdc/Published/Foreign.h"

#include "DnnPartitioning/BruteForce.h"
#include "DnnPartitioning/Contract.h"
#include "DnnPartitioning/Model.h"
#include "DnnPartitioning/Search.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>
#include <sstream>

using namespace pdc;

namespace {

class RandomProblems {
public:
  explicit RandomProblems(std::uint64_t seed) : random_(seed) {}

  DnnPartitioningProblem problem() {
    DnnPartitioningProblem problem;
    problem.name = "random";
    problem.accelerators = between(0, 4);
    problem.cpus = between(problem.accelerators == 0 ? 1 : 0, 2);
    if (oneIn(2)) problem.cpus = problem.accelerators == 0 ? 1 : 0;
    switch (between(0, 3)) {
    case 0: addNodes(problem, between(1, 8), 0); break;
    case 1: addMirrored(problem); break;
    case 2: addNodes(problem, between(1, 8), 2); break;
    case 3: addResidual(problem); break;
    }
    addCosts(problem);
    return problem;
  }

private:
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  bool oneIn(int n) { return between(1, n) == 1; }

  void addEdge(DnnPartitioningProblem& problem, std::int64_t from, std::int64_t to) {
    problem.edges.push_back({from, to, 0});
  }

  /// A random graph, one node in `backwardOneIn` (if positive) of the backward, some colours.
  void addNodes(DnnPartitioningProblem& problem, std::int64_t nodes, int backwardOneIn) {
    for (std::int64_t v = 0; v < nodes; ++v) {
      DnnPartitioningNode node;
      node.isBackward = backwardOneIn > 0 && oneIn(backwardOneIn);
      if (oneIn(6)) node.colour = between(0, 2);
      problem.nodes.push_back(node);
    }
    int sparse = static_cast<int>(between(1, 4));
    for (std::int64_t a = 0; a < nodes; ++a)
      for (std::int64_t b = a + 1; b < nodes; ++b)
        if (oneIn(sparse) && !(problem.nodes[a].isBackward && !problem.nodes[b].isBackward)) addEdge(problem, a, b);
  }

  /// A chain in which outputs skip some nodes. What is on a skipped path often has one neighbour, and the tensor that
  /// skips it touches what lies behind that: where a contraction that assumes too much goes wrong.
  void addResidual(DnnPartitioningProblem& problem) {
    std::int64_t nodes = between(4, 8);
    problem.nodes.resize(static_cast<std::size_t>(nodes));
    problem.accelerators = between(2, 5);
    problem.cpus = oneIn(4) ? 1 : 0;
    for (std::int64_t v = 0; v + 1 < nodes; ++v) addEdge(problem, v, v + 1);
    for (std::int64_t v = 0; v + 2 < nodes; ++v)
      if (oneIn(3)) addEdge(problem, v, between(v + 2, nodes - 1));
  }

  /// A forward and its backward in one colour each, as the published training files have them.
  void addMirrored(DnnPartitioningProblem& problem) {
    std::int64_t layers = between(1, 4);
    addNodes(problem, layers, 0);
    bool listedForward = oneIn(2);
    std::vector<DnnPartitioningEdge> edges = problem.edges;
    for (std::int64_t v = 0; v < layers; ++v) {
      DnnPartitioningNode node;
      node.isBackward = true;
      node.colour = oneIn(8) ? -1 : 10 + v;
      problem.nodes.push_back(node);
      problem.nodes[v].colour = node.colour;
    }
    // What a forward saves for any backward.
    for (std::int64_t from = 0; from < layers && !listedForward; ++from)
      for (std::int64_t to = 0; to < layers; ++to)
        if (oneIn(2)) addEdge(problem, from, layers + to);
    for (const DnnPartitioningEdge& edge : edges) {
      std::int64_t from = layers + edge.from, to = layers + edge.to;
      if (!listedForward) std::swap(from, to);
      addEdge(problem, from, to);
    }
  }

  void addCosts(DnnPartitioningProblem& problem) {
    bool coarse = oneIn(2); // many ties
    auto time = [&] { return coarse ? static_cast<double>(between(0, 3)) : static_cast<double>(between(0, 80)) / 8; };
    bool memoryMatters = oneIn(3), halfDear = oneIn(2);
    for (std::size_t v = 0; v < problem.nodes.size(); ++v) {
      DnnPartitioningNode& node = problem.nodes[v];
      node.id = static_cast<std::int64_t>(v);
      node.name = "n" + std::to_string(v);
      node.acceleratorTime = oneIn(3) ? 0 : oneIn(4) ? 4 * time() : time();
      node.cpuTime = oneIn(4) ? time() : 3 * node.acceleratorTime;
      node.onAccelerator = problem.cpus == 0 || !oneIn(12);
      if (problem.cpus == 0 && oneIn(200)) node.onAccelerator = false;
      node.size = memoryMatters ? static_cast<double>(between(0, 4)) : 1;
    }
    problem.acceleratorMemory = memoryMatters ? static_cast<double>(between(4, 12)) : 100;
    std::vector<double> costs(problem.nodes.size());
    for (double& cost : costs) cost = oneIn(5) ? 0 : halfDear ? 2 * time() : time() / 2;
    for (DnnPartitioningEdge& edge : problem.edges) edge.cost = costs[static_cast<std::size_t>(edge.from)];
  }

  std::mt19937_64 random_;
};

std::string show(const DnnPartitioningProblem& problem) {
  std::ostringstream text;
  text << problem.accelerators << " accelerators of " << problem.acceleratorMemory << ", " << problem.cpus << " CPUs\n";
  for (const DnnPartitioningNode& node : problem.nodes)
    text << node.name << (node.isBackward ? " backward" : "") << (node.onAccelerator ? "" : " CPU only") << " time "
         << node.acceleratorTime << " CPU time " << node.cpuTime << " size " << node.size << " colour " << node.colour
         << "\n";
  for (const DnnPartitioningEdge& edge : problem.edges)
    text << "n" << edge.from << " -> n" << edge.to << " cost " << edge.cost << "\n";
  return text.str();
}

TEST(DnnPartitioningFuzz, ObjectiveIsThatOfTryingEveryPlan) {
  RandomProblems random(20201206);
  int planned = 0, several = 0, onCpu = 0;
  for (int round = 0; round < rounds(5000); ++round) {
    DnnPartitioningProblem problem = random.problem();
    std::optional<double> best = bruteForceDnnPartitioning(problem);
    Diagnostics diags(nullptr);
    Expected<Plan> plan = planDnnPartitioning(problem, {}, diags);
    ASSERT_EQ(static_cast<bool>(plan), best.has_value()) << "round " << round << "\n" << show(problem);
    if (!plan) {
      ASSERT_EQ(diags.exitCode(), ExitCode::noPlan) << show(problem);
      continue;
    }
    ASSERT_EQ(verifyDnnPartitioning(problem, *plan), "") << "round " << round << "\n" << show(problem);
    ASSERT_EQ(plan->timeMs, *best) << "round " << round << "\n" << show(problem); // eighths: sums are exact
    ASSERT_EQ(plan->lowerBoundMs, *best);
    ASSERT_TRUE(plan->optimal);
    ++planned;
    several += plan->stages.size() > 1;
    for (const PlanStage& stage : plan->stages) onCpu += stage.device == "cpu" && plan->stages.size() > 1;
  }
  EXPECT_GT(several, planned / 3) << "most problems should be worth a split";
  EXPECT_GT(onCpu, planned / 50) << "CPUs should matter";
}

TEST(DnnPartitioningFuzz, EveryBoundTellsTheTruth) {
  RandomProblems random(99);
  for (int round = 0; round < rounds(2000); ++round) {
    DnnPartitioningProblem problem = random.problem();
    std::optional<double> best = bruteForceDnnPartitioning(problem);
    if (!best) continue;
    placement::Instance instance = placement::makeInstance(problem);
    placement::States states = *placement::States::all(instance, {});
    placement::Search search(instance, states, placement::Clock::time_point::max());
    placement::Amount optimum = instance.timeScale.amount(*best);
    for (int eighths = 0; eighths <= 16; ++eighths) {
      placement::Amount bound = optimum / 8 * eighths - (eighths == 8);
      if (search.run(bound) == placement::Search::Answer::infeasible) {
        ASSERT_LT(bound, optimum) << show(problem);
        ASSERT_LT(bound, search.proven()) << show(problem);
        ASSERT_LE(search.proven(), optimum) << "round " << round << "\n" << show(problem);
      } else {
        ASSERT_GE(bound, search.value()) << show(problem);
        ASSERT_GE(search.value(), optimum) << show(problem);
      }
    }
  }
}

/// All ways to put the classes of an instance on devices in order, each class only where `allowed` says.
class Placements {
public:
  Placements(const placement::Instance& instance, std::vector<std::vector<int>> allowed)
      : instance_(instance), allowed_(std::move(allowed)), deviceOf_(instance.classes.size()) {}

  /// Calls `visit(deviceOf)` for each until it returns true; whether it did.
  template <class Visit>
  bool any(Visit&& visit, std::size_t next = 0) {
    if (next == deviceOf_.size()) return visit(deviceOf_);
    for (int device : allowed_[next]) {
      deviceOf_[next] = device;
      bool inOrder = true;
      for (auto [from, to] : instance_.edges)
        if (to == static_cast<int>(next)) inOrder = inOrder && deviceOf_[from] <= device; // numbered topologically
      if (inOrder && any(visit, next + 1)) return true;
    }
    return false;
  }

private:
  const placement::Instance& instance_;
  std::vector<std::vector<int>> allowed_;
  std::vector<int> deviceOf_;
};

std::vector<placement::Amount> loadsOf(const placement::Instance& instance, const std::vector<int>& deviceOf) {
  std::vector<placement::Amount> loads;
  for (int device = 0; device < 3; ++device) {
    placement::Stage stage;
    for (std::size_t c = 0; c < deviceOf.size(); ++c)
      if (deviceOf[c] == device) stage.classes.push_back(static_cast<int>(c));
    loads.push_back(loadOf(instance, stage));
  }
  return loads;
}

/// More than that the optimum stays: for every plan on three accelerators there is one with merged classes, each on
/// the device of one of its members, in which no device has a larger load.
TEST(DnnPartitioningFuzz, ContractionRaisesNoLoadOfAnyPlan) {
  RandomProblems random(7);
  int merging = 0;
  for (int round = 0; round < rounds(3000); ++round) {
    DnnPartitioningProblem problem = random.problem();
    for (DnnPartitioningNode& node : problem.nodes) node.onAccelerator = true;
    problem.cpus = 0;
    problem.accelerators = 3;
    problem.acceleratorMemory = 1000;
    placement::Instance fine = placement::makeInstance(problem), coarse = placement::contract(fine, placement::never);
    if (coarse.classes.size() == fine.classes.size() || fine.classes.size() > 6) continue;
    ++merging;
    std::vector<int> fineOfNode(problem.nodes.size());
    for (std::size_t c = 0; c < fine.classes.size(); ++c)
      for (std::int64_t v : fine.classes[c].nodes) fineOfNode[v] = static_cast<int>(c);
    bool failed = Placements(fine, {fine.classes.size(), {0, 1, 2}}).any([&](const std::vector<int>& deviceOf) {
      std::vector<placement::Amount> before = loadsOf(fine, deviceOf);
      std::vector<std::vector<int>> allowed(coarse.classes.size());
      for (std::size_t c = 0; c < coarse.classes.size(); ++c) {
        std::set<int> devices;
        for (std::int64_t v : coarse.classes[c].nodes) devices.insert(deviceOf[fineOfNode[v]]);
        allowed[c].assign(devices.begin(), devices.end());
      }
      return !Placements(coarse, allowed).any([&](const std::vector<int>& merged) {
        std::vector<placement::Amount> after = loadsOf(coarse, merged);
        return after[0] <= before[0] && after[1] <= before[1] && after[2] <= before[2];
      });
    });
    ASSERT_FALSE(failed) << "round " << round << "\n" << show(problem);
  }
  EXPECT_GT(merging, rounds(3000) / 20);
}

TEST(DnnPartitioningFuzz, HelpOfAnInfeasibleProblemIsTheSmallestThatWouldDo) {
  RandomProblems random(4);
  int seen = 0;
  for (int round = 0; round < rounds(5000); ++round) {
    DnnPartitioningProblem problem = random.problem();
    problem.cpus = 0;
    problem.accelerators = std::max<std::int64_t>(problem.accelerators, 1);
    for (DnnPartitioningNode& node : problem.nodes) node.onAccelerator = true;
    Diagnostics diags(nullptr);
    if (planDnnPartitioning(problem, {}, diags)) continue;
    ++seen;
    ASSERT_EQ(diags.exitCode(), ExitCode::noPlan);
    auto feasible = [](const DnnPartitioningProblem& changed) {
      return bruteForceDnnPartitioning(changed).has_value();
    };
    const std::vector<std::string>& helps = diags.all().at(0).helps;
    ASSERT_FALSE(helps.empty());
    DnnPartitioningProblem larger = problem;
    ASSERT_EQ(std::sscanf(helps[0].c_str(), "set maxSizePerFPGA to %lf", &larger.acceleratorMemory), 1) << helps[0];
    ASSERT_TRUE(feasible(larger)) << show(problem) << helps[0];
    larger.acceleratorMemory -= 0.5;
    ASSERT_FALSE(feasible(larger)) << show(problem) << helps[0];
    DnnPartitioningProblem more = problem;
    more.accelerators = static_cast<std::int64_t>(problem.nodes.size());
    ASSERT_EQ(feasible(more), helps.size() == 2) << show(problem);
    if (helps.size() < 2) continue;
    ASSERT_EQ(std::sscanf(helps[1].c_str(), "or set maxFPGAs to %ld", &more.accelerators), 1) << helps[1];
    ASSERT_TRUE(feasible(more)) << show(problem) << helps[1];
    --more.accelerators;
    ASSERT_FALSE(feasible(more)) << show(problem) << helps[1];
  }
  EXPECT_GT(seen, 50);
}

} // namespace
