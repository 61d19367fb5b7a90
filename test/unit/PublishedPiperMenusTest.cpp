// LINK: pdcPublished
// Piper's menus as splits: the cost model `pdc` against Piper's definition, term by term, and each planner's best plan
// against the other's.
#include "PublishedPiperProblems.h"
#include "Rounds.h"
#include "pdc/Cost/PlanVerifier.h"
#include "pdc/Published/PiperMenus.h"

#include "Piper/BruteForce.h"
#include "Piper/Definition.h"
#include "Search/Solver.h"
#include "pdc/Published/Foreign.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

using namespace pdc;

namespace {

/// What memory is multiplied by, so that buffers for what travels, which Piper does not count, weigh nothing; and what
/// travels, so that its units are whole.
constexpr double memoryScale = 1 << 30, trafficScale = 1 << 8;

/// A problem whose batch is long enough that no plan is simulated.
PiperProblem scaled(PiperProblem problem, bool keepsChoices) {
  problem.degreesDivideMicrobatches = false;
  const double longer = 300.0 / static_cast<double>(problem.microbatches);
  problem.microbatches = 300;
  problem.bandwidth *= trafficScale;
  // Half a unit of memory more than all sums that fit.
  problem.memoryBytes = (problem.memoryBytes + 0.5) * memoryScale;
  for (PiperEdge& edge : problem.edges) edge.bytes *= trafficScale;
  for (PiperNode& node : problem.nodes)
    for (auto& [degree, choices] : node.choices) {
      if (!keepsChoices) choices.resize(1);
      for (PiperChoice& choice : choices) {
        choice.memoryA *= memoryScale;
        choice.memoryB *= memoryScale;
        choice.parameterBytes = std::round(choice.parameterBytes * longer) * trafficScale;
        for (auto* sync : {&choice.syncForward, &choice.syncBackward})
          for (auto& [id, bytes] : *sync) bytes *= trafficScale;
      }
    }
  return problem;
}

void offerEverywhere(PiperProblem& problem) {
  for (PiperNode& node : problem.nodes)
    for (const PiperNode& other : problem.nodes)
      for (const auto& [degree, choices] : other.choices)
        if (!node.choices.contains(degree)) node.choices[degree] = node.choices.at(1);
}

void forgetSync(PiperProblem& problem) {
  for (PiperNode& node : problem.nodes)
    for (auto& [degree, choices] : node.choices)
      for (PiperChoice& choice : choices) {
        choice.syncForward.clear();
        choice.syncBackward.clear();
      }
}

PlannerOptions optionsOf(const PiperProblem& problem) {
  PlannerOptions options;
  options.schedule = "2bw";
  options.microbatches = problem.microbatches;
  options.warmupPolicy = WarmupPolicy::paper;
  return options;
}

PiperMenus menusFor(const PiperProblem& problem, int between) {
  Diagnostics diags(nullptr);
  Expected<PiperMenus> menus = menusOf(problem, between, diags);
  EXPECT_TRUE(menus) << (diags.all().empty() ? "" : toString(diags.all()[0]));
  return menus ? *std::move(menus) : PiperMenus{};
}

/// Stages of consecutive nodes.
Partition randomPartition(const PiperProblem& problem, const PiperMenus& menus, RandomProblems& random) {
  Partition partition;
  std::int64_t left = problem.devices;
  for (std::int64_t v = 0; v < std::ssize(menus.nodes); ++v) {
    PartitionStage stage;
    stage.split = static_cast<int>(random.between(0, menus.graph.splits() - 1));
    stage.team = menus.graph.in(stage.split).split.members;
    if (v == 0) stage.split = 0, stage.team = menus.graph.split.members;
    if (v == 0 || (random.between(0, 1) && left >= stage.team)) {
      stage.replicas = static_cast<int>(random.between(1, std::min<std::int64_t>(left / stage.team, 3)));
      left -= stage.replicas * stage.team;
      partition.stages.push_back(stage);
    }
    partition.stages.back().nodes.push_back(v);
  }
  return partition;
}

/// The time of Piper's definition with other bytes of edges: what `pdc` sends over a border. From the problem alone.
double timeWithBorders(const PiperProblem& problem, const PiperMenus& menus, const Partition& partition,
                       const Plan& plan) {
  const std::vector<PiperStageCost> costs = piperStageCosts(problem, plan);
  std::vector<double> bytes(costs.size(), 0);
  std::map<std::int64_t, std::pair<std::size_t, const PiperChoice*>> at; // by node: its stage and choice
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (std::size_t i = 0; i < plan.stages[s].nodes.size(); ++i) {
      const PiperNode& node = problem.nodes[static_cast<std::size_t>(plan.stages[s].nodes[i])];
      for (const PiperChoice& choice : node.choices.at(plan.stages[s].tensorParallel))
        if (choice.id == plan.stages[s].choices[i]) at[plan.stages[s].nodes[i]] = {s, &choice};
    }
  const auto carried = [&](const PiperEdge& edge, const PiperChoice& tail, const PiperChoice& head) {
    const auto sync = [&](const std::map<std::int64_t, double>& table, std::int64_t node) {
      const auto entry = table.find(problem.nodes[static_cast<std::size_t>(node)].id);
      return entry == table.end() ? 0 : entry->second;
    };
    return edge.bytes + (sync(tail.syncBackward, edge.to) + sync(head.syncForward, edge.from)) / 2;
  };
  /// Between different splits: what the first of them that has bytes of it carries.
  const auto whole = [&](const PiperEdge& edge) {
    const auto choiceIn = [&](int split, std::int64_t node) -> const PiperChoice& {
      const auto v =
          static_cast<std::size_t>(std::find(menus.nodes.begin(), menus.nodes.end(), node) - menus.nodes.begin());
      return problem.nodes[static_cast<std::size_t>(node)].choices.at(
          menus.graph.in(split).split.members)[menus.taken[static_cast<std::size_t>(split)][v]];
    };
    double size = 0;
    for (int split = 0; split < menus.graph.splits() && size == 0; ++split)
      size = carried(edge, choiceIn(split, edge.from), choiceIn(split, edge.to));
    return size;
  };
  for (const PiperEdge& edge : problem.edges) {
    const auto& [from, tail] = at.at(edge.from);
    const auto& [to, head] = at.at(edge.to);
    if (from == to) continue;
    const int t = plan.stages[from].tensorParallel, u = plan.stages[to].tensorParallel;
    if (partition.stages[from].split == partition.stages[to].split) {
      bytes[from] += 2 * carried(edge, *tail, *head);
      bytes[to] += 2 * carried(edge, *tail, *head);
    } else { // member 0 of the one serves members 0, t, 2t, … of the other
      bytes[from] += whole(edge) * (1 + std::ceil(1.0 * u / t));
      bytes[to] += whole(edge) * (1 + std::ceil(1.0 * t / u));
    }
  }
  double most = 0;
  for (std::size_t s = 0; s < costs.size(); ++s) {
    const double d = plan.stages[s].replicas;
    most = std::max(most, (bytes[s] / d + costs[s].resyncBytes) / problem.bandwidth + costs[s].compute / d);
  }
  return most;
}

double peakOf(const PiperProblem& problem, const Plan& plan) {
  double peak = 0;
  for (const PiperStageCost& cost : piperStageCosts(problem, plan)) peak = std::max(peak, cost.memoryBytes);
  return peak;
}

Plan planOf(const PiperProblem& problem, const PiperMenus& menus, const Partition& partition,
            const PlannerOptions& options) {
  return piperPlanOf(problem, menus, describePartition(menus.graph, menus.cluster, options, partition), false);
}

bool hasOneDegree(const Plan& plan) {
  return std::all_of(plan.stages.begin(), plan.stages.end(),
                     [&](const PlanStage& stage) { return stage.tensorParallel == plan.stages[0].tensorParallel; });
}

} // namespace

TEST(PlannerPiperMenus, CostModelEqualsPipersDefinitionTermByTerm) {
  RandomProblems random(3);
  int equal = 0, mixed = 0;
  for (int round = 0; round < rounds(3000); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    PiperProblem problem = scaled(random.problem(7), true);
    offerEverywhere(problem);
    problem.memoryBytes = 1e15;
    const PiperMenus menus = menusFor(problem, 1);
    const PlannerOptions options = optionsOf(problem);
    const Partition partition = randomPartition(problem, menus, random);
    const PlanCost cost = CostModel(menus.graph, menus.cluster, options).costOf(partition);
    ASSERT_TRUE(cost.feasible);
    const Plan plan = planOf(problem, menus, partition, options);
    ASSERT_NEAR(cost.timeMs, 1e3 * timeWithBorders(problem, menus, partition, plan), 1e-9 * cost.timeMs);
    std::vector<PiperStageCost> costs = piperStageCosts(problem, plan);
    for (std::size_t s = 0; s < costs.size(); ++s) EXPECT_EQ(cost.warmup[s] + 1, costs[s].inFlight);
    // Buffers of what travels, by less than a byte of the problem as it was; bytes rounded up, and parameters within b.
    const double peak = peakOf(problem, plan);
    EXPECT_GE(static_cast<double>(cost.peakMemoryBytes), peak);
    EXPECT_LE(static_cast<double>(cost.peakMemoryBytes), std::max(peak, memoryScale) + memoryScale);
    const bool isEqual = std::abs(1e3 * plan.timeMs - cost.timeMs) <= 1e-9 * cost.timeMs;
    equal += isEqual && plan.stages.size() > 1;
    mixed += !hasOneDegree(plan);
    if (HasFailure()) return;
  }
  EXPECT_GT(equal, rounds(3000) / 20);
  EXPECT_GT(mixed, rounds(3000) / 10);
}

// Where no border divides unlike teams both models say the same, so both planners do. Else a border costs `pdc` no
// less.
TEST(PlannerPiperMenus, NeitherPlannersBestPlanBeatsTheOthers) {
  RandomProblems random(11);
  int none = 0, equal = 0, divided = 0, several = 0, open = 0;
  const int count = rounds(400);
  for (int round = 0; round < count; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    PiperProblem problem = scaled(random.problem(5), false);
    offerEverywhere(problem);
    forgetSync(problem);
    const PiperMenus menus = menusFor(problem, 0);
    const PlannerOptions options = optionsOf(problem);
    Diagnostics diags(nullptr);
    const Expected<Plan> theirs = planPiper(problem, {}, diags);
    const std::optional<PiperOptimum> tried = bruteForcePiper(problem);
    const std::optional<Solution> ours = solve(menus.graph, menus.cluster, options);
    ASSERT_EQ(static_cast<bool>(theirs), tried.has_value());
    ASSERT_EQ(static_cast<bool>(theirs), ours.has_value());
    if (!ours) {
      ++none;
      continue;
    }
    const double bestMs = 1e3 * tried->tps, slack = 1e-9 * bestMs;
    // Ours as theirs.
    const Plan plan = planOf(problem, menus, ours->partition, options);
    ASSERT_TRUE(std::isfinite(plan.timeMs)) << piperPlanErrors(problem, plan);
    EXPECT_GE(1e3 * plan.timeMs, bestMs - slack);
    EXPECT_LE(1e3 * plan.timeMs, ours->cost.timeMs + slack);
    // Theirs as ours.
    const PlanCost as = CostModel(menus.graph, menus.cluster, options).costOf(partitionOf(menus, *theirs));
    ASSERT_TRUE(as.feasible);
    EXPECT_GE(as.timeMs, ours->cost.timeMs - slack);
    EXPECT_LE(ours->lowerBoundMs, as.timeMs + slack);
    if (hasOneDegree(*theirs)) {
      EXPECT_NEAR(as.timeMs, bestMs, slack);
      EXPECT_NEAR(ours->cost.timeMs, bestMs, slack);
    }
    open += ours->lowerBoundMs < ours->cost.timeMs - slack;
    equal += std::abs(ours->cost.timeMs - bestMs) <= slack;
    divided += plan.stages[0].tensorParallel > 1;
    several += plan.stages.size() > 1;
    if (HasFailure()) return;
  }
  EXPECT_GT(none, count / 50);
  EXPECT_GT(equal, count / 2);
  EXPECT_GT(divided, count / 20);
  EXPECT_GT(several, count / 4);
  EXPECT_EQ(open, 0);
}

TEST(PlannerPiperMenus, PlansOfAllMenusAreNoBetterThanTheBestChoices) {
  RandomProblems random(19);
  int best = 0, count = 0;
  for (int round = 0; round < rounds(80); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    PiperProblem problem = scaled(random.problem(5), true);
    offerEverywhere(problem);
    const PiperMenus menus = menusFor(problem, 3);
    const PlannerOptions options = optionsOf(problem);
    const std::optional<PiperOptimum> tried = bruteForcePiper(problem);
    const std::optional<Solution> ours = solve(menus.graph, menus.cluster, options);
    if (!ours) continue;
    ASSERT_TRUE(tried);
    const Plan described = describePartition(menus.graph, menus.cluster, options, ours->partition);
    const Plan kept = piperPlanOf(problem, menus, described, false),
               chosen = piperPlanOf(problem, menus, described, true);
    ASSERT_EQ(piperPlanErrors(problem, kept), "");
    ASSERT_EQ(piperPlanErrors(problem, chosen), "");
    EXPECT_LE(chosen.timeMs, kept.timeMs * (1 + 1e-12));
    EXPECT_GE(chosen.timeMs, tried->tps * (1 - 1e-12));
    best += chosen.timeMs <= tried->tps * (1 + 1e-9);
    ++count;
    if (HasFailure()) return;
  }
  EXPECT_GT(count, rounds(80) / 2);
  EXPECT_GT(best, count / 2);
}

namespace {

PiperChoice choice(const std::string& id, double time, double memoryA) {
  PiperChoice result;
  result.id = id;
  result.time = time;
  result.memoryA = memoryA;
  result.parameterBytes = 1 << 20;
  return result;
}

/// Four nodes, given in the order 3, 2, 1, 0 of the chain, each with three choices for one device.
PiperProblem fourNodes() {
  PiperProblem problem;
  problem.name = "four.json";
  problem.devices = 4;
  problem.microbatches = 8;
  problem.bandwidth = 1e6;
  problem.memoryBytes = 1e9;
  for (std::int64_t v = 0; v < 4; ++v) {
    PiperNode node;
    node.id = v;
    node.name = "v" + std::to_string(v);
    node.choices[1] = {choice("middle", 2, 20), choice("fast", 1, 30), choice("small", 3, 10)};
    problem.nodes.push_back(node);
    if (v > 0) problem.edges.push_back({v, v - 1, 96});
  }
  return problem;
}

} // namespace

TEST(PlannerPiperMenus, WaysSpreadTheSmallestChoiceEvenly) {
  const PiperProblem problem = fourNodes();
  const PiperMenus menus = menusFor(problem, 1);
  EXPECT_EQ(menus.nodes, (std::vector<std::int64_t>{3, 2, 1, 0}));
  ASSERT_EQ(menus.graph.splits(), 3);
  EXPECT_EQ(toText(menus.graph.in(2).split), "none#2");
  EXPECT_EQ(menus.taken[0], (std::vector<std::size_t>{1, 1, 1, 1}));
  EXPECT_EQ(menus.taken[1], (std::vector<std::size_t>{1, 2, 1, 2}));
  EXPECT_EQ(menus.taken[2], (std::vector<std::size_t>{2, 2, 2, 2}));
  EXPECT_EQ(menus.graph.in(1).nodes[1].savedBytes, 10);
  EXPECT_DOUBLE_EQ(menus.graph.nodes[0].forwardMs + 2 * menus.graph.nodes[0].inputGradientMs, 1e3);
  // 96 is 3 times 32.
  EXPECT_EQ(menus.graph.tensors[0].bytes, 3);
  EXPECT_DOUBLE_EQ(menus.cluster.device.coreSPerByte, 32 / 1e6);
}

TEST(PlannerPiperMenus, RefusesWhatIsNoProblem) {
  const auto errorOf = [](const PiperProblem& problem) {
    Diagnostics diags(nullptr);
    EXPECT_FALSE(menusOf(problem, 0, diags));
    EXPECT_EQ(diags.exitCode(), ExitCode::invalidInput);
    return diags.all().empty() ? "" : toString(diags.all()[0]);
  };
  PiperProblem problem = fourNodes();
  problem.nodes[1].choices = {{2, {choice("only", 1, 1)}}};
  EXPECT_EQ(errorOf(problem), "four.json: error: no tensor-parallel degree of at most 4 is offered by all 4 nodes\n"
                              "help: give every node choices for one degree\n");
  problem = fourNodes();
  problem.nodes[2].choices[1][1].id = "small";
  EXPECT_EQ(errorOf(problem), "four.json:v2: error: two choices for tensor-parallel degree 1 have the id 'small'\n");
}

// Each node runs by its choice in the plan, so Piper's plan is the same under `pdc` where no border is unlike.
TEST(PlannerPiperMenus, APlanOfTheProblemHasItsOwnChoices) {
  PiperProblem problem = fourNodes();
  problem.memoryBytes = 4.05 * (1 << 20); // nothing else makes it choose
  for (PiperNode& node : problem.nodes)
    for (PiperChoice& each : node.choices[1]) each.memoryB = 1 << 20, each.memoryA *= 1 << 10;
  problem.devices = 1;
  Diagnostics diags(nullptr);
  const Expected<Plan> theirs = planPiper(problem, {}, diags);
  ASSERT_TRUE(theirs);
  const PiperMenus menus = menusOfPlan(problem, *theirs);
  const PlannerOptions options = optionsOf(problem);
  const PlanCost cost = CostModel(menus.graph, menus.cluster, options).costOf(partitionOf(menus, *theirs));
  EXPECT_NEAR(cost.timeMs, 1e3 * theirs->timeMs, 1e-9 * cost.timeMs);
  EXPECT_GT(theirs->timeMs, 4); // not the fastest of each
  EXPECT_LT(theirs->timeMs, 12);
}
