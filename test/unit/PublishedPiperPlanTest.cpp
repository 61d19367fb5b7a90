// LINK: pdcPublished
// Cost model `piper`: the published results, what the plan verifier says, and what goes wrong.
#include "pdc/Published/Foreign.h"

#include "Piper/Definition.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

using namespace pdc;

namespace {

constexpr double gibibyte = 1 << 30;

PiperChoice choice(const std::string& id, double time, double a, double b, double parameters = 0) {
  PiperChoice result;
  result.id = id;
  result.time = time;
  result.parameterBytes = parameters;
  result.memoryA = a;
  result.memoryB = b;
  return result;
}

/// A chain of equal nodes: 4 s with 10·y + 2 bytes, or 5 s with 2·y + 6; on two devices half as long.
PiperProblem chain(std::int64_t nodes) {
  PiperProblem problem;
  problem.name = "chain.json";
  problem.devices = 4;
  problem.microbatches = 12;
  problem.bandwidth = 100;
  problem.memoryBytes = 1000;
  for (std::int64_t v = 0; v < nodes; ++v) {
    PiperNode node;
    node.id = v;
    node.name = "layer" + std::to_string(v);
    node.choices[1] = {choice("keep", 4, 10, 2), choice("recompute", 5, 2, 6)};
    node.choices[2] = {choice("keep", 2.5, 5, 1)};
    problem.nodes.push_back(node);
    if (v > 0) problem.edges.push_back({v - 1, v, 5});
  }
  return problem;
}

Plan planOf(const PiperProblem& problem, const PlannerOptions& options = {}) {
  Diagnostics diags(nullptr);
  Expected<Plan> plan = planPiper(problem, options, diags);
  EXPECT_TRUE(plan) << (diags.all().empty() ? "" : toString(diags.all()[0]));
  return plan ? *plan : Plan{};
}

/// The diagnostics of a problem without a plan, as printed.
std::string errorOf(const PiperProblem& problem, ExitCode code, const PlannerOptions& options = {}) {
  Diagnostics diags(nullptr);
  EXPECT_FALSE(planPiper(problem, options, diags));
  EXPECT_EQ(diags.exitCode(), code);
  return diags.all().empty() ? "" : toString(diags.all()[0]);
}

} // namespace

// TPS that the program released with the paper finds (data and settings: reference/piper.md of the data folder), where
// 0 stands for none. With degrees that divide N, as it demands, its plans are optimal.
TEST(PlannerPiper, FindsWhatThePublishedPlannerFinds) {
  std::filesystem::path file = PDC_SOURCE_DIR "/../shared/data/piper/bert32a100.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  Diagnostics diags(nullptr);
  Expected<PiperProblem> problem = piperFromJson(text.str(), "bert32a100.json", diags);
  ASSERT_TRUE(problem);
  problem->bandwidth = 25 * gibibyte;
  problem->microbatches = 1920;
  struct Row {
    double gibibytes;
    std::int64_t devices;
    double tps;
  };
  for (const Row& row : {Row{2, 8, 0},
                         {2, 32, 0.0665495},
                         {2, 64, 0.0320300812},
                         {2, 128, 0.0151464079},
                         {2, 512, 0.00366752626},
                         {2, 1024, 0.00184063152},
                         {2, 2048, 0.000927184153},
                         {8, 8, 0.16585575},
                         {8, 32, 0.0415154504},
                         {8, 64, 0.0202005503},
                         {8, 512, 0.00256112785},
                         {8, 2048, 0.000703591184},
                         {80, 8, 0.122007269},
                         {80, 64, 0.015650178},
                         {80, 512, 0.00227252011},
                         {80, 2048, 0.00066371274}}) {
    SCOPED_TRACE(std::to_string(row.gibibytes) + " GiB, " + std::to_string(row.devices) + " devices");
    problem->memoryBytes = row.gibibytes * gibibyte;
    problem->devices = row.devices;
    Expected<Plan> plan = planPiper(*problem, {}, diags);
    ASSERT_EQ(static_cast<bool>(plan), row.tps > 0);
    if (!plan) continue;
    EXPECT_EQ(piperPlanErrors(*problem, *plan), "");
    EXPECT_TRUE(plan->optimal);
    EXPECT_NEAR(plan->timeMs, row.tps, 1e-8 * row.tps);

    problem->degreesDivideMicrobatches = false;
    Plan free = planOf(*problem);
    problem->degreesDivideMicrobatches = true;
    EXPECT_TRUE(free.optimal);
    EXPECT_LE(free.timeMs, plan->timeMs * (1 + 1e-12));
  }
}

// One device, so one stage: a knapsack with many nodes, some alike, against a table over bytes.
TEST(PlannerPiper, KnapsackAgainstATableOverMemory) {
  std::mt19937 random(5);
  auto between = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  for (int round = 0; round < 200; ++round) {
    PiperProblem problem;
    problem.devices = problem.microbatches = 1;
    problem.bandwidth = 1;
    int nodes = between(1, 60), kinds = between(1, nodes), most = between(2, 4), memory = 0;
    std::vector<std::vector<PiperChoice>> lists;
    for (int v = 0; v < nodes; ++v) {
      PiperNode node;
      node.id = v;
      int kind = between(0, kinds - 1);
      while (static_cast<int>(lists.size()) <= kind) {
        lists.emplace_back();
        for (int c = 0; c < most; ++c)
          lists.back().push_back(
              choice(std::to_string(c), 10 + 10 * c + between(0, 9), 0, 45 - 10 * c + between(0, 9)));
      }
      node.choices[1] = lists[static_cast<std::size_t>(kind)];
      node.choices[1][0].time += between(0, 3);
      for (PiperChoice& each : node.choices[1]) { // one sample in flight: a + b counts
        each.memoryA = between(0, 2);
        each.memoryB -= each.memoryA;
      }
      problem.nodes.push_back(node);
      if (v > 0) problem.edges.push_back({v - 1, v, 0});
      memory += between(20, 50);
    }
    problem.memoryBytes = memory;

    std::vector<double> least(static_cast<std::size_t>(memory) + 1, 0); // of the nodes so far, by memory allowed
    for (const PiperNode& node : problem.nodes) {
      std::vector<double> next(least.size(), std::numeric_limits<double>::infinity());
      for (const PiperChoice& each : node.choices.at(1))
        for (auto takes = static_cast<std::size_t>(each.memoryA + each.memoryB), m = takes; m < least.size(); ++m)
          next[m] = std::min(next[m], least[m - takes] + each.time);
      least = next;
    }
    Diagnostics diags(nullptr);
    Expected<Plan> plan = planPiper(problem, {}, diags);
    ASSERT_EQ(static_cast<bool>(plan), least.back() < std::numeric_limits<double>::infinity());
    if (!plan) continue;
    EXPECT_EQ(piperPlanErrors(problem, *plan), "");
    EXPECT_EQ(plan->timeMs, least.back()) << "round " << round;
  }
}

// What prunes a label, that the nodes left need more devices than are left, must raise the lower bound no further than
// to where it would not.
TEST(PlannerPiper, WorkLeftBoundsWhatIsProven) {
  PiperProblem problem = chain(2);
  problem.devices = 2;
  problem.microbatches = 3; // no stage on both devices
  problem.nodes[0].choices = {{1, {choice("only", 10, 1, 1)}}};
  problem.nodes[1].choices = {{1, {choice("only", 1, 1, 1)}}};
  problem.edges[0].bytes = 0;
  Plan plan = planOf(problem);
  EXPECT_EQ(plan.timeMs, 10);
  EXPECT_TRUE(plan.optimal);
}

TEST(PlannerPiper, MemoryMakesOneOfTwoEqualNodesRecompute) {
  PiperProblem problem = chain(2);
  problem.devices = 1;
  problem.memoryBytes = 20; // 12 + 12 is too much, 12 + 8 fits
  Plan plan = planOf(problem);
  ASSERT_EQ(plan.stages.size(), 1u);
  EXPECT_EQ(plan.timeMs, 9);
  EXPECT_EQ(plan.stages[0].memoryBytes, 20);
}

TEST(PlannerPiper, TensorParallelismOnlyWhereOffered) {
  PiperProblem problem = chain(2);
  problem.microbatches = 2;
  problem.bandwidth = 1e9;
  problem.memoryBytes = 11; // no two nodes on one device
  Plan plan = planOf(problem);
  ASSERT_EQ(plan.stages.size(), 2u);
  EXPECT_EQ(plan.stages[0].tensorParallel, 2);
  problem.nodes[0].choices.erase(2);
  plan = planOf(problem);
  EXPECT_EQ(plan.stages[0].tensorParallel, 1);
}

TEST(PlannerPiper, StraightPlansDoNotReplicate) {
  PlannerOptions options;
  options.straight = true;
  for (const PlanStage& stage : planOf(chain(3), options).stages) EXPECT_EQ(stage.replicas, 1);
  EXPECT_GT(planOf(chain(3), options).timeMs, planOf(chain(3)).timeMs);
}

TEST(PlannerPiper, DegreesDivideTheMicrobatchesIfAsked) {
  PiperProblem problem = chain(1);
  problem.devices = 4;
  problem.microbatches = 9;
  EXPECT_EQ(planOf(problem).stages[0].replicas, 3);
  problem.degreesDivideMicrobatches = false;
  EXPECT_EQ(planOf(problem).stages[0].replicas, 4);
}

TEST(PlannerPiper, SameProblemSameBytes) {
  EXPECT_EQ(toJson(planOf(chain(6))), toJson(planOf(chain(6))));
}

TEST(PlannerPiper, PlansAreReadBack) {
  Plan plan = planOf(chain(4));
  Diagnostics diags(nullptr);
  Expected<Plan> again = planFromJson(toJson(plan), "plan.json", diags);
  ASSERT_TRUE(again) << toString(diags.all()[0]);
  EXPECT_EQ(piperPlanErrors(chain(4), *again), "");
}

TEST(PlannerPiper, TimeLimitKeepsAProvenGap) {
  PiperProblem problem = chain(40);
  problem.devices = 64;
  double optimum = planOf(problem).timeMs;
  PlannerOptions options;
  options.timeLimitS = 1e-9;
  Plan plan = planOf(problem, options);
  EXPECT_EQ(piperPlanErrors(problem, plan), "");
  EXPECT_FALSE(plan.optimal);
  EXPECT_GT(plan.lowerBoundMs, 0);
  EXPECT_LE(plan.lowerBoundMs, optimum);
  EXPECT_GE(plan.timeMs, optimum);
}

TEST(PlannerPiper, NodesThatTakeNoTime) {
  PiperProblem problem = chain(3);
  for (PiperNode& node : problem.nodes) node.choices = {{1, {choice("free", 0, 1, 1)}}};
  Plan plan = planOf(problem);
  EXPECT_EQ(plan.timeMs, 0);
  EXPECT_TRUE(plan.optimal);
}

TEST(PlannerPiper, MemoryWithoutEnd) {
  PiperProblem problem = chain(3);
  problem.memoryBytes = 1e300;
  EXPECT_TRUE(planOf(problem).optimal);
  for (PiperNode& node : problem.nodes)
    for (auto& [t, choices] : node.choices) choices[0].memoryB = 1e299;
  EXPECT_TRUE(planOf(problem).optimal);
  problem.memoryBytes = 1;
  errorOf(problem, ExitCode::noPlan);
}

// 16,384 down-sets of nodes without edges are not searched; plans along some orders are, with what is proven.
TEST(PlannerPiper, TooManyDownSetsLeaveAGap) {
  PiperProblem problem = chain(14);
  problem.edges.clear();
  for (std::size_t v = 0; v < 14; ++v) problem.nodes[v].choices[1][0].time = 1 + static_cast<double>(v);
  Plan plan = planOf(problem);
  EXPECT_EQ(piperPlanErrors(problem, plan), "");
  EXPECT_GE(plan.gap(), 0);
  EXPECT_LT(plan.gap(), 0.2);
  EXPECT_GT(plan.lowerBoundMs, 0);
  problem.memoryBytes = 5;
  EXPECT_EQ(
      errorOf(problem, ExitCode::noPlan)
          .find("chain.json: error: no plan was found that fits into 5 bytes of memory on each of 4 devices\n"
                "note: the graph has more than 2048 down-sets; only plans along a few topological orders were tried\n"),
      0u);
}

TEST(PlannerPiper, NoPlanSaysWhatWouldDo) {
  PiperProblem problem = chain(4);
  problem.devices = 2;
  problem.memoryBytes = 17;
  EXPECT_EQ(errorOf(problem, ExitCode::noPlan),
            "chain.json: error: no plan fits into 17 bytes of memory on each of 2 devices\n"
            "help: give --memory=20 (20 bytes), the least that does on as many devices\n"
            "help: give --devices=3, the fewest that do with as much memory\n");
  problem.memoryBytes = 20;
  EXPECT_LE(planOf(problem).stages[0].memoryBytes, 20);
  problem.memoryBytes = 19;
  errorOf(problem, ExitCode::noPlan);
  problem.memoryBytes = 17;
  problem.devices = 3;
  planOf(problem);
}

TEST(PlannerPiper, NoPlanOnAnyNumberOfDevices) {
  PiperProblem problem = chain(2);
  problem.memoryBytes = 5;
  PlannerOptions options;
  EXPECT_EQ(errorOf(problem, ExitCode::noPlan, options),
            "chain.json: error: no plan fits into 5 bytes of memory on each of 4 devices\n"
            "help: give --memory=10 (10 bytes), the least that does on as many devices\n");
  options.memoryBytes = 10; // overrides the problem's
  EXPECT_TRUE(planOf(problem, options).optimal);
}

TEST(PlannerPiper, NoCommonDegree) {
  PiperProblem problem = chain(1);
  problem.nodes[0].choices.erase(1);
  problem.devices = 1;
  EXPECT_EQ(errorOf(problem, ExitCode::noPlan),
            "chain.json: error: no plan fits into 1000 bytes of memory on each of 1 device\n"
            "help: give --devices=2, the fewest that do with as much memory\n");
}

TEST(PlannerPiper, RefusesWhatIsNoProblem) {
  PiperProblem problem = chain(2);
  problem.edges.push_back({1, 0, 0});
  EXPECT_EQ(errorOf(problem, ExitCode::invalidInput),
            "chain.json: error: expected a graph without cycles, got one with a cycle\n");
  problem = chain(2);
  problem.nodes[1].choices[1][1].id = "keep";
  EXPECT_EQ(errorOf(problem, ExitCode::invalidInput),
            "chain.json:layer1: error: two choices for tensor-parallel degree 1 have the id 'keep'\n");
  problem = chain(0);
  EXPECT_EQ(errorOf(problem, ExitCode::invalidInput),
            "chain.json: error: expected a problem with at least one node, got none\n");
  problem = chain(1);
  problem.bandwidth = 0;
  EXPECT_EQ(errorOf(problem, ExitCode::invalidInput), "chain.json: error: expected a bandwidth above 0, got 0\n");
  problem = chain(1);
  problem.devices = 0;
  EXPECT_EQ(errorOf(problem, ExitCode::invalidInput),
            "chain.json: error: expected at least one device and one microbatch, got 0 and 12\n");
}

TEST(PlannerPiper, VerifierNamesWhatIsWrong) {
  PiperProblem problem = chain(2);
  Plan plan;
  plan.stages.resize(2);
  for (int s = 0; s < 2; ++s) {
    plan.stages[s].nodes = {s};
    plan.stages[s].choices = {"keep"};
    plan.stages[s].replicas = 2;
  }
  // Stage 0: y = 2, memory 22; edge: 2·5 bytes; (10/2)/100 + 4/2.
  plan.timeMs = 2.05;
  EXPECT_EQ(piperPlanErrors(problem, plan), "");
  EXPECT_EQ(piperTimeOf(problem, plan), 2.05);
  std::vector<PiperStageCost> costs = piperStageCosts(problem, plan);
  EXPECT_EQ(costs[0].memoryBytes, 22);
  EXPECT_EQ(costs[1].memoryBytes, 12);

  auto errorsOf = [&](auto change) {
    Plan bad = plan;
    change(bad);
    return piperPlanErrors(problem, bad);
  };
  EXPECT_EQ(errorsOf([](Plan& p) { p.timeMs = 2; }), "its time is 2, by definition 2.0499999999999998\n");
  EXPECT_EQ(errorsOf([](Plan& p) { p.stages.pop_back(); }), "node 1 is in no stage\n");
  EXPECT_EQ(errorsOf([](Plan& p) { p.stages[1].nodes = {0}; }),
            "stage 1: node 0 is in two places\nnode 1 is in no stage\n");
  EXPECT_EQ(errorsOf([](Plan& p) { p.stages[1].nodes = {7}; }),
            "stage 1: node 7 does not exist, there are 2\nnode 1 is in no stage\n");
  EXPECT_EQ(errorsOf([](Plan& p) { p.stages[1].choices = {"swap"}; }),
            "stage 1: node 1 has no choice 'swap' for t = 1\n");
  EXPECT_EQ(errorsOf([](Plan& p) { p.stages[1].choices = {}; }), "stage 1: 1 nodes, but choices for 0\n");
  EXPECT_EQ(errorsOf([](Plan& p) { p.stages[0].replicas = 0; }), "stage 0: degrees are at least 1, got d = 0, t = 1\n");
  EXPECT_EQ(errorsOf([](Plan& p) { std::swap(p.stages[0], p.stages[1]); }),
            "edge 0 -> 1 goes back from stage 1 to 0\n");
  EXPECT_EQ(errorsOf([](Plan& p) { p.stages.emplace_back(); }), "stage 2: has no nodes\n");
  problem.devices = 3;
  EXPECT_EQ(piperPlanErrors(problem, plan), "uses 4 devices, there are 3\n");
  problem.devices = 4;
  problem.microbatches = 3;
  EXPECT_EQ(piperPlanErrors(problem, plan),
            "stage 0: d = 2 does not divide N = 3\nstage 1: d = 2 does not divide N = 3\n"
            "the degrees d add up to 4, more than N = 3\n");
  problem.microbatches = 12;
  problem.memoryBytes = 21;
  EXPECT_EQ(piperPlanErrors(problem, plan), "stage 0: takes 22 bytes, the limit is 21\n");
  EXPECT_EQ(piperTimeOf(problem, plan), std::numeric_limits<double>::infinity());
}
