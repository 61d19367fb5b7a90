// LINK: pdcPublished
// Operator placement: the published problems, what the definition says, what is refused, and what a time limit leaves.
#include "pdc/Published/Foreign.h"

#include "DnnPartitioning/Contract.h"
#include "DnnPartitioning/Model.h"
#include "DnnPartitioning/Solver.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <numeric>
#include <sstream>

using namespace pdc;

namespace {

struct Published {
  const char* file;
  double oneAccelerator, optimum;
};

class PublishedProblems : public testing::TestWithParam<Published> {};

/// ../shared/reference/dnn-partitioning.md
TEST_P(PublishedProblems, OptimumIsProven) {
  std::string path = std::string(PDC_SOURCE_DIR "/../shared/data/dnn-partitioning/") + GetParam().file + ".json";
  std::ifstream in(path);
  if (!in) GTEST_SKIP() << "no " << path;
  std::ostringstream text;
  text << in.rdbuf();
  Diagnostics diags(nullptr);
  Expected<DnnPartitioningProblem> problem = dnnPartitioningFromJson(text.str(), GetParam().file, diags);
  ASSERT_TRUE(problem);
  std::vector<std::int64_t> all(problem->nodes.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_NEAR(dnnPartitioningLoad(*problem, all, false), GetParam().oneAccelerator, 1e-3);

  Expected<Plan> plan = planDnnPartitioning(*problem, {}, diags);
  ASSERT_TRUE(plan);
  EXPECT_EQ(verifyDnnPartitioning(*problem, *plan), "");
  EXPECT_NEAR(plan->timeMs, GetParam().optimum, 1e-6);
  EXPECT_EQ(plan->lowerBoundMs, plan->timeMs);
  EXPECT_TRUE(plan->optimal);
  Expected<Plan> again = planDnnPartitioning(*problem, {}, diags);
  ASSERT_TRUE(again);
  EXPECT_EQ(toJson(*plan), toJson(*again));
}

std::string testName(const testing::TestParamInfo<Published>& published) {
  std::string name;
  for (char c : std::string(published.param.file)) name += std::isalnum(c) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(, PublishedProblems,
                         testing::Values(Published{"layer/bert24_inference", 92.406, 17.789906},
                                         Published{"layer/bert24_training", 217.813, 41.745813},
                                         Published{"layer/gnmt_inference", 182.563, 32.910658},
                                         Published{"layer/gnmt_training", 520.453, 107.004414},
                                         Published{"layer/resnet50_inference", 201.450, 33.774666},
                                         Published{"layer/resnet50_training", 462.381, 78.631813},
                                         Published{"operator/bert_l-3_inference", 49.353, 27.918568},
                                         Published{"operator/bert_l-3_training", 122.987, 65.303149}),
                         testName);

/// Nodes of time 4 (40 on a CPU) and size 1 in the order given, each edge with cost 1.
DnnPartitioningProblem makeProblem(std::int64_t nodes, std::vector<std::pair<int, int>> edges) {
  DnnPartitioningProblem problem;
  problem.name = "problem.json";
  problem.accelerators = 2;
  problem.acceleratorMemory = 10;
  for (std::int64_t v = 0; v < nodes; ++v) {
    DnnPartitioningNode node;
    node.id = v;
    node.name = "n" + std::to_string(v);
    node.acceleratorTime = 4;
    node.cpuTime = 40;
    node.size = 1;
    problem.nodes.push_back(node);
  }
  for (auto [from, to] : edges) problem.edges.push_back({from, to, 1});
  return problem;
}

Plan makePlan(std::vector<std::vector<std::int64_t>> stages, double time) {
  Plan plan;
  plan.timeMs = time;
  for (std::vector<std::int64_t>& nodes : stages) {
    PlanStage stage;
    stage.nodes = nodes;
    stage.device = "accelerator";
    plan.stages.push_back(stage);
  }
  return plan;
}

TEST(DnnPartitioningModel, TransfersOnceOutOfADeviceAndOnceIntoEach) {
  // n0 feeds n1 on its own device, and n2 and n3 on another.
  DnnPartitioningProblem problem = makeProblem(4, {{0, 1}, {0, 2}, {0, 3}});
  EXPECT_EQ(dnnPartitioningLoad(problem, {0, 1}, false), 8 + 1);
  EXPECT_EQ(dnnPartitioningLoad(problem, {2, 3}, false), 8 + 1);
  EXPECT_EQ(dnnPartitioningLoad(problem, {0, 1, 2, 3}, false), 16);
  EXPECT_EQ(dnnPartitioningLoad(problem, {0, 1}, true), 80);
}

TEST(DnnPartitioningModel, LayerFilesListBackwardEdgesForward) {
  // Two layers and their backward nodes n2, n3 in the colours of n0, n1.
  DnnPartitioningProblem layers = makeProblem(4, {{0, 1}, {2, 3}});
  for (int v : {2, 3}) layers.nodes[v].isBackward = true;
  for (int v = 0; v < 4; ++v) layers.nodes[v].colour = v % 2;
  EXPECT_TRUE(backwardListedForward(layers));
  DnnPartitioningProblem operators = layers;
  operators.edges[1] = {3, 2, 1};
  EXPECT_FALSE(backwardListedForward(operators));
  Diagnostics diags(nullptr);
  for (const DnnPartitioningProblem& problem : {layers, operators}) {
    Expected<Plan> plan = planDnnPartitioning(problem, {}, diags);
    ASSERT_TRUE(plan);
    ASSERT_EQ(plan->stages.size(), 2u);
    EXPECT_EQ(plan->stages[0].nodes, (std::vector<std::int64_t>{0, 2}));
    EXPECT_EQ(plan->timeMs, 8 + 1 + 1);
    EXPECT_EQ(plan->stages[0].forwardMs, 4);
    EXPECT_EQ(plan->stages[0].inputGradientMs, 4);
  }
}

TEST(DnnPartitioningVerifier, NamesWhatIsWrong) {
  DnnPartitioningProblem problem = makeProblem(3, {{0, 1}, {1, 2}});
  EXPECT_EQ(verifyDnnPartitioning(problem, makePlan({{0, 1}, {2}}, 9)), "");
  EXPECT_EQ(verifyDnnPartitioning(problem, makePlan({{0, 1}, {2}}, 8)), "the plan says 8, the largest load is 9");
  EXPECT_EQ(verifyDnnPartitioning(problem, makePlan({{0, 1}}, 9)), "node 'n2' is in no stage");
  EXPECT_EQ(verifyDnnPartitioning(problem, makePlan({{0, 1}, {1, 2}}, 9)), "node 'n1' is in two stages");
  EXPECT_EQ(verifyDnnPartitioning(problem, makePlan({{0, 1}, {3}}, 9)), "stage 1 has unknown node 3");
  EXPECT_EQ(verifyDnnPartitioning(problem, makePlan({{0}, {1}, {2}}, 6)), "3 accelerators, there are 2");
  EXPECT_EQ(verifyDnnPartitioning(problem, makePlan({{2}, {0, 1}}, 9)), "node 'n1' is in a later stage than 'n2'");
  EXPECT_EQ(verifyDnnPartitioning(problem, makePlan({{0, 2}, {1}}, 10)), "node 'n1' is in a later stage than 'n2'");
  Plan plan = makePlan({{0, 1}, {2}}, 9);
  plan.stages[0].device = "cpu";
  EXPECT_EQ(verifyDnnPartitioning(problem, plan), "1 CPUs, there are 0");
  plan.stages[0].device = "tpu";
  EXPECT_EQ(verifyDnnPartitioning(problem, plan), "unknown kind of device 'tpu'");
  plan.stages[0].device = "accelerator";
  plan.stages[0].replicas = 2;
  EXPECT_EQ(verifyDnnPartitioning(problem, plan), "a stage has several devices");

  DnnPartitioningProblem strict = problem;
  strict.acceleratorMemory = 1;
  EXPECT_EQ(verifyDnnPartitioning(strict, makePlan({{0, 1}, {2}}, 9)),
            "a stage takes 2 of memory, an accelerator has 1");
  strict = problem;
  strict.nodes[1].onAccelerator = false;
  EXPECT_EQ(verifyDnnPartitioning(strict, makePlan({{0, 1}, {2}}, 9)), "node 'n1' cannot be on an accelerator");
  strict = problem;
  strict.nodes[1].colour = strict.nodes[2].colour = 7;
  EXPECT_EQ(verifyDnnPartitioning(strict, makePlan({{0, 1}, {2}}, 9)), "node 'n2' is apart from its colour");
  strict = problem;
  for (DnnPartitioningNode& node : strict.nodes) node.isBackward = true;
  EXPECT_EQ(verifyDnnPartitioning(strict, makePlan({{0, 1}, {2}}, 9)), "node 'n2' is in a later stage than 'n1'");
}

TEST(DnnPartitioning, CpuTakesWhatItIsFasterAt) {
  DnnPartitioningProblem problem = makeProblem(3, {{0, 1}, {1, 2}});
  problem.cpus = 1;
  problem.nodes[0].cpuTime = 2;
  problem.nodes[0].onAccelerator = false;
  Diagnostics diags(nullptr);
  Expected<Plan> plan = planDnnPartitioning(problem, {}, diags);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->stages.at(0).device, "cpu");
  EXPECT_EQ(plan->timeMs, 4 + 1 + 1);
}

TEST(DnnPartitioning, ContractionUnderchargesACpuThatCouldSeparate) {
  // Without the CPU the two may always be together, since the transfer costs more than either takes; the CPU has time
  // for one of them.
  DnnPartitioningProblem problem = makeProblem(2, {{0, 1}});
  problem.edges[0].cost = 5;
  problem.nodes[0].cpuTime = problem.nodes[1].cpuTime = 6;
  problem.accelerators = 1;
  problem.cpus = 1;
  placement::Instance instance = placement::makeInstance(problem);
  auto amount = [&](double time) { return instance.timeScale.amount(time); };
  EXPECT_EQ(placement::contract(instance, amount(5), {1, 1}).classes.size(), 1u);
  placement::Instance undercharged = placement::contract(instance, amount(6));
  ASSERT_EQ(undercharged.classes.size(), 1u);
  EXPECT_EQ(undercharged.classes[0].cpuTime, amount(6));
  EXPECT_EQ(placement::contract(instance, amount(6), {1, 1}).classes.size(), 2u);
  instance.cpus = 0;
  EXPECT_EQ(placement::contract(instance, amount(6), {1, 1}).classes.size(), 1u);
}

TEST(DnnPartitioning, ContractionAsksOnlyForTheNeighbour) {
  // n0 -> n2, n1 -> n2, n2 -> n3, and n0 -> n3 too: n3 has two predecessors, n1 one successor.
  DnnPartitioningProblem problem = makeProblem(4, {{0, 2}, {1, 2}, {2, 3}, {0, 3}});
  problem.nodes[1].acceleratorTime = problem.nodes[3].acceleratorTime = 0.5;
  placement::Instance instance = placement::contract(placement::makeInstance(problem), placement::never);
  ASSERT_EQ(instance.classes.size(), 3u);
  EXPECT_EQ(instance.classes[1].nodes, (std::vector<std::int64_t>{1, 2}));
}

TEST(DnnPartitioning, ContractionLeavesRoomInMemory) {
  DnnPartitioningProblem problem = makeProblem(3, {{0, 1}, {1, 2}});
  problem.nodes[1].acceleratorTime = 0;
  placement::Instance instance = placement::makeInstance(problem);
  EXPECT_EQ(placement::contract(instance, instance.timeScale.amount(9)).classes.size(), 2u);
  instance.memory = instance.sizeScale.amount(2);
  EXPECT_EQ(placement::contract(instance, instance.timeScale.amount(9)).classes.size(), 3u);
}

std::string refusal(const DnnPartitioningProblem& problem, ExitCode exitCode, const PlannerOptions& options = {}) {
  Diagnostics diags(nullptr);
  EXPECT_FALSE(planDnnPartitioning(problem, options, diags));
  EXPECT_EQ(diags.exitCode(), exitCode);
  return diags.all().size() == 1 ? toString(diags.all()[0]) : std::to_string(diags.all().size()) + " errors";
}

TEST(DnnPartitioningErrors, OutputHasOneCost) {
  DnnPartitioningProblem problem = makeProblem(3, {{0, 1}, {0, 2}});
  problem.edges[1].cost = 2.5;
  EXPECT_EQ(refusal(problem, ExitCode::invalidInput),
            "problem.json:n0: error: edges out of the node cost 1 and 2.5\n"
            "help: give all edges out of a node the cost of its output; it is transferred once\n");
}

TEST(DnnPartitioningErrors, SumsAreNumbers) {
  DnnPartitioningProblem problem = makeProblem(2, {{0, 1}});
  problem.nodes[0].cpuTime = problem.nodes[1].cpuTime = 1.7e308;
  EXPECT_EQ(refusal(problem, ExitCode::invalidInput),
            "problem.json: error: the times and costs add up to more than 1.79769e+308\nhelp: use a larger unit\n");
  problem = makeProblem(2, {{0, 1}});
  problem.nodes[0].size = problem.nodes[1].size = 1.7e308;
  EXPECT_EQ(refusal(problem, ExitCode::invalidInput),
            "problem.json: error: the sizes add up to more than 1.79769e+308\nhelp: use a larger unit\n");
}

TEST(DnnPartitioning, MemoryWithoutEndNeverBinds) {
  DnnPartitioningProblem problem = makeProblem(3, {{0, 1}, {1, 2}});
  problem.acceleratorMemory = std::numeric_limits<double>::max();
  Diagnostics diags(nullptr);
  Expected<Plan> plan = planDnnPartitioning(problem, {}, diags);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->timeMs, 9);
}

TEST(DnnPartitioningErrors, TooLittleMemorySaysHowMuchWouldDo) {
  DnnPartitioningProblem problem = makeProblem(5, {{0, 1}, {1, 2}, {2, 3}, {3, 4}});
  problem.acceleratorMemory = 2;
  EXPECT_EQ(refusal(problem, ExitCode::noPlan),
            "problem.json: error: the nodes have a size of 5, 2 accelerators have 2 each\n"
            "help: set maxSizePerFPGA to 3\nhelp: or set maxFPGAs to 3\n");
  problem.acceleratorMemory = 0.5; // no number of accelerators would do
  EXPECT_EQ(refusal(problem, ExitCode::noPlan),
            "problem.json: error: the nodes have a size of 5, 2 accelerators have 0.5 each\n"
            "help: set maxSizePerFPGA to 3\n");
  problem.acceleratorMemory = 10;
  EXPECT_EQ(refusal(problem, ExitCode::noPlan, {.memoryBytes = 1}),
            "problem.json: error: the nodes have a size of 5, 2 accelerators have 1 each\n"
            "help: set maxSizePerFPGA to 3\nhelp: or set maxFPGAs to 5\n");
}

TEST(DnnPartitioningErrors, NodeWithoutADeviceIsNamed) {
  DnnPartitioningProblem problem = makeProblem(2, {{0, 1}});
  problem.nodes[1].onAccelerator = false;
  EXPECT_EQ(refusal(problem, ExitCode::noPlan),
            "problem.json:n1: error: no accelerator can compute the node, and there are 0 CPUs\n"
            "help: set maxCPUs to 1\n");
}

TEST(DnnPartitioning, TimeLimitLeavesAPlanAndItsGap) {
  // Eighteen independent chains of three: 4^18 down-sets, more than can be searched.
  DnnPartitioningProblem problem = makeProblem(54, {});
  for (int v = 0; v < 54; ++v) {
    problem.nodes[v].acceleratorTime = 1 + v * 7 % 5;
    if (v % 3) problem.edges.push_back({v - 1, v, 1.0 + (v - 1) % 4});
  }
  problem.acceleratorMemory = 100;
  problem.accelerators = 4;
  Diagnostics diags(nullptr);
  PlannerOptions options;
  options.timeLimitS = 0.05;
  Expected<Plan> plan = planDnnPartitioning(problem, options, diags);
  ASSERT_TRUE(plan);
  EXPECT_EQ(verifyDnnPartitioning(problem, *plan), "");
  EXPECT_LE(plan->lowerBoundMs, plan->timeMs);
  EXPECT_EQ(plan->optimal, plan->lowerBoundMs == plan->timeMs);
  EXPECT_LT(plan->gap(), 0.25);
}

} // namespace
