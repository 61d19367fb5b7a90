// LINK: pdcPublished
// The cost models `sosp19` and `pipedream-2018`: the definition on examples done by hand, the planner against the
// recurrence evaluated over everything, and what they refuse.
#include "PipeDream/Sosp19.h"
#include "Rounds.h"

#include "PipeDream/Sosp19BruteForce.h"
#include "PlannerScale.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <sstream>

using namespace pdc;

namespace {

Cluster clusterOf(std::vector<std::int64_t> counts, std::vector<double> bandwidths) {
  return test::scaleCluster(std::move(counts), std::move(bandwidths));
}

/// A chain of nodes with these times (ms), parameters and tensors (bytes).
CostGraph chainOf(std::vector<double> times, std::vector<std::int64_t> parameters, std::vector<std::int64_t> tensors) {
  CostGraph graph;
  graph.model = "chain";
  for (std::size_t v = 0; v < times.size(); ++v) {
    CostNode node;
    node.name = "node" + std::to_string(v);
    node.forwardMs = times[v];
    node.parameterBytes = parameters[v];
    graph.nodes.push_back(node);
  }
  for (std::size_t v = 0; v + 1 < times.size(); ++v)
    graph.tensors.push_back(
        {"t" + std::to_string(v), static_cast<std::int64_t>(v), {static_cast<std::int64_t>(v) + 1}, tensors[v], true});
  return graph;
}

PublishedOptions optionsFor(const std::string& costModel) {
  PublishedOptions options;
  options.costModel = costModel;
  return options;
}

Plan planFor(const CostGraph& graph, const Cluster& cluster, const std::string& costModel = "sosp19") {
  Diagnostics diags(nullptr);
  Expected<Plan> plan = planSosp19(graph, cluster, optionsFor(costModel), diags);
  EXPECT_TRUE(plan) << (diags.all().empty() ? "" : diags.all().front().message);
  return plan ? *plan : Plan();
}

Plan nested(std::vector<std::pair<std::vector<std::int64_t>, std::vector<PlanNest>>> stages,
            const std::string& costModel = "sosp19") {
  Plan plan;
  plan.costModel = costModel;
  for (auto& [nodes, nest] : stages) {
    PlanStage& stage = plan.stages.emplace_back();
    stage.nodes = nodes;
    stage.nest = nest;
    for (const PlanNest& level : nest) stage.replicas *= level.replicas;
  }
  return plan;
}

// 3 devices over 1000 bytes/ms: nodes 0, 1 replicated twice, node 2 alone.
// Stage 0: max(8, 2·1·1000/1000)/2 = 4; the cut 2·500/1000 = 1; stage 1: 3.
TEST(Sosp19Definition, FlatExampleByHand) {
  CostGraph graph = chainOf({6, 2, 3}, {600, 400, 9000}, {100, 500});
  Cluster cluster = clusterOf({3}, {1e6});
  EXPECT_DOUBLE_EQ(sosp19TimeOf(graph, cluster, nested({{{0, 1}, {{0, 2}}}, {{2}, {{1, 1}}}})), 4);
  graph.nodes[0].parameterBytes = 5600; // 2·1·6000/1000/2 = 6 > 4
  EXPECT_DOUBLE_EQ(sosp19TimeOf(graph, cluster, nested({{{0, 1}, {{0, 2}}}, {{2}, {{1, 1}}}})), 6);
  // 4·(2-1)/2 · 6000/1000 = 12, inside 1/2
  EXPECT_DOUBLE_EQ(sosp19TimeOf(graph, cluster, nested({{{0, 1}, {{0, 2}}}, {{2}, {{1, 1}}}}, "pipedream-2018")), 6);
  // 4·(3-1)/3 · 15000/1000 / 3 = 40/3 against 2·2·15000/1000 / 3 = 20
  EXPECT_DOUBLE_EQ(sosp19TimeOf(graph, cluster, nested({{{0, 1, 2}, {{0, 3}}}}, "pipedream-2018")), 40.0 / 3);
  EXPECT_DOUBLE_EQ(sosp19TimeOf(graph, cluster, nested({{{0, 1, 2}, {{0, 3}}}})), 20);
}

// Two servers of two devices. Both servers run the inner pipeline 0 | 1, so its cut, its computation and its
// synchronisation count half: max(max(4, 6, 2·100/10), 2·1·100/1) / 2 = 100; with a faster link outside 10.
TEST(Sosp19Definition, HierarchicalExampleByHand) {
  CostGraph graph = chainOf({4, 6}, {40, 60}, {100});
  Plan plan = nested({{{0}, {{0, 2}, {0, 1}}}, {{1}, {{0, 2}, {1, 1}}}});
  EXPECT_DOUBLE_EQ(sosp19TimeOf(graph, clusterOf({2, 2}, {1e4, 1e3}), plan), 100);
  EXPECT_DOUBLE_EQ(sosp19TimeOf(graph, clusterOf({2, 2}, {1e4, 1e5}), plan), 10);
}

// A tensor that skips a stage crosses both cuts, and once however many use it.
TEST(Sosp19Definition, ATensorCrossesEveryCutOnItsWayOnce) {
  CostGraph graph = chainOf({1, 1, 1}, {0, 0, 0}, {0, 0});
  graph.tensors.push_back({"skip", 0, {1, 2}, 5000, true});
  EXPECT_DOUBLE_EQ(sosp19TimeOf(graph, clusterOf({2}, {1e6}), nested({{{0, 1}, {{0, 1}}}, {{2}, {{1, 1}}}})), 10);
  EXPECT_DOUBLE_EQ(sosp19TimeOf(graph, clusterOf({2}, {1e6}), nested({{{0}, {{0, 1}}}, {{1, 2}, {{1, 1}}}})), 10);
}

TEST(Sosp19Definition, RefusesWhatTheRecurrenceDoesNotAllow) {
  CostGraph graph = chainOf({1, 1}, {0, 0}, {0});
  Cluster cluster = clusterOf({3}, {1e6});
  auto time = [&](const Plan& plan) { return sosp19TimeOf(graph, cluster, plan); };
  EXPECT_TRUE(std::isfinite(time(nested({{{0}, {{0, 1}}}, {{1}, {{1, 2}}}}))));
  EXPECT_TRUE(std::isinf(time(nested({{{0}, {{0, 1}}}, {{1}, {{1, 1}}}})))) << "a device unused";
  EXPECT_TRUE(std::isinf(time(nested({{{0}, {{0, 2}}}, {{1}, {{1, 2}}}})))) << "a device used twice";
  EXPECT_TRUE(std::isinf(time(nested({{{1}, {{0, 1}}}, {{0}, {{1, 2}}}})))) << "a tensor goes backwards";
  EXPECT_TRUE(std::isinf(time(nested({{{0}, {{0, 3}}}})))) << "a node missing";
  EXPECT_TRUE(std::isinf(time(nested({{{0, 1}, {{0, 1}}}, {{1}, {{1, 2}}}})))) << "a node twice";
  EXPECT_TRUE(std::isinf(time(nested({{{0}, {{0, 1}}}, {{1}, {{2, 2}}}})))) << "a stage left out";
  EXPECT_TRUE(std::isinf(time(nested({{{0}, {{0, 3}}}, {{1}, {{0, 3}}}})))) << "two stages on the same devices";
  EXPECT_TRUE(std::isinf(time(nested({{{0}, {}}, {{1}, {}}})))) << "no nest";
  graph.nodes[0].colour = graph.nodes[1].colour = 7;
  EXPECT_TRUE(std::isinf(time(nested({{{0}, {{0, 1}}}, {{1}, {{1, 2}}}})))) << "a colour torn apart";
}

class RandomInstances {
public:
  explicit RandomInstances(unsigned seed) : random_(seed) {}

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }

  CostGraph graph() {
    CostGraph graph;
    std::int64_t nodes = between(1, 8), density = between(1, 6);
    std::int64_t heaviest = between(0, 2) ? 1000 : 10, largest = between(0, 2) ? 1000 : 10;
    bool isChain = between(0, 3) == 0;
    for (std::int64_t v = 0; v < nodes; ++v) {
      CostNode node;
      node.name = "node" + std::to_string(v);
      node.forwardMs = static_cast<double>(between(0, between(0, 3) ? 20 : 200)) / 8;
      node.inputGradientMs = static_cast<double>(between(0, 20)) / 8;
      node.weightGradientMs = static_cast<double>(between(0, 20)) / 8;
      node.parameterBytes = between(0, 3) ? between(0, heaviest) : 0;
      graph.nodes.push_back(node);
    }
    for (std::int64_t v = 0; v + 1 < nodes; ++v)
      for (int tensors = 0; tensors < 2; ++tensors) {
        CostTensor tensor{"", v, {}, between(0, largest), true};
        if (isChain && tensors == 0) tensor.to.push_back(v + 1);
        for (std::int64_t user = v + 1 + (isChain && tensors == 0); user < nodes; ++user)
          if (between(0, density) == 0) tensor.to.push_back(user);
        if (!tensor.to.empty() && (tensors == 0 || between(0, 3) == 0)) graph.tensors.push_back(tensor);
      }
    if (between(0, 3) == 0) {
      graph.nodes[static_cast<std::size_t>(between(0, nodes - 1))].colour = 3;
      graph.nodes[static_cast<std::size_t>(between(0, nodes - 1))].colour = 3;
    }
    if (between(0, 3) == 0) {
      std::int64_t first = between(0, nodes - 1), last = between(first, nodes - 1);
      graph.sharedParameters.push_back({"tied", {first, last}, between(1, heaviest)});
    }
    return graph;
  }

  Cluster cluster(bool flat) {
    std::vector<std::int64_t> counts;
    std::vector<double> bandwidths;
    std::int64_t levels = flat ? 1 : between(1, 3);
    for (std::int64_t k = 0; k < levels; ++k) {
      counts.push_back(between(1, levels == 1 ? 7 : 4));
      bandwidths.push_back(static_cast<double>(between(1, 40)) * 1e4);
    }
    Cluster cluster = clusterOf(counts, bandwidths);
    cluster.device.speed = between(0, 3) ? 1 : 2;
    return cluster;
  }

private:
  std::mt19937_64 random_;
};

void compareWithTheRecurrence(const std::string& costModel, unsigned seed, int count) {
  RandomInstances instances(seed);
  for (int round = 0; round < count; ++round) {
    CostGraph graph = instances.graph();
    Cluster cluster = instances.cluster(costModel == "pipedream-2018");
    Plan plan = planFor(graph, cluster, costModel);
    double best = sosp19BruteForce(graph, cluster, costModel);
    ASSERT_NEAR(plan.timeMs, best, 1e-12 * best) << "round " << round << "\n" << toJson(graph) << toJson(cluster);
    ASSERT_EQ(sosp19TimeOf(graph, cluster, plan), plan.timeMs) << "round " << round;
    ASSERT_TRUE(plan.optimal) << "round " << round;
    ASSERT_EQ(plan.lowerBoundMs, plan.timeMs);
  }
}

// The full count: PDC_TEST_ROUNDS=80 (100,000 for the two together).
TEST(Sosp19Planner, FindsTheOptimumOfTheRecurrence) {
  compareWithTheRecurrence("sosp19", 1, rounds(1000));
}

TEST(Sosp19Planner, FindsTheOptimumOfTheRecurrenceOf2018) {
  compareWithTheRecurrence("pipedream-2018", 2, rounds(250));
}

// The bound of the relaxation and a plan that attains it, at the size of the largest clusters. Weight-heavy chains need
// the search from both sides, slow networks that along possible counts.
TEST(Sosp19Planner, ProvesTenThousandNodesOnSixteenThousandDevices) {
  for (const std::string& kind : test::scaleKinds) {
    CostGraph graph = test::scaleGraph(kind, 10'000);
    Plan plan = planFor(graph, test::scaleCluster());
    EXPECT_TRUE(plan.optimal) << kind;
    EXPECT_EQ(sosp19TimeOf(graph, plan.cluster, plan), plan.timeMs) << kind;
  }
  Plan slow = planFor(test::scaleGraph("blocks", 10'000), test::scaleCluster({8, 16, 128}, {30e9, 2.5e9, 0.5e9}));
  EXPECT_TRUE(slow.optimal);
}

// A source, two branches of four nodes, a sink; tensors are large but in the middle of each branch. The cheap and even
// cut takes half of each branch: no prefix of the file's order, nor of any that follows one branch after the other.
TEST(Sosp19Planner, CutsThroughBranches) {
  CostGraph graph;
  for (int v = 0; v < 10; ++v) {
    CostNode node;
    node.name = "node" + std::to_string(v);
    node.forwardMs = 1;
    node.parameterBytes = 10'000'000;
    graph.nodes.push_back(node);
  }
  graph.tensors.push_back({"source", 0, {1, 5}, 100'000, true});
  for (std::int64_t v : {1, 2, 3, 5, 6, 7}) graph.tensors.push_back({"", v, {v + 1}, v % 4 == 2 ? 10 : 100'000, true});
  for (std::int64_t v : {4, 8}) graph.tensors.push_back({"", v, {9}, 100'000, true});
  Plan plan = planFor(graph, clusterOf({2}, {1e6}));
  EXPECT_TRUE(plan.optimal);
  EXPECT_DOUBLE_EQ(plan.timeMs, 5);
  ASSERT_EQ(plan.stages.size(), 2u);
  EXPECT_EQ(plan.stages[0].nodes, (std::vector<std::int64_t>{0, 1, 2, 5, 6}));
}

TEST(Sosp19Planner, SaysItsGapWhenItMustStop) {
  CostGraph graph = test::scaleGraph("vgg", 5000);
  PublishedOptions options = optionsFor("sosp19");
  options.timeLimitS = 1e-9;
  Diagnostics diags(nullptr);
  Expected<Plan> plan = planSosp19(graph, test::scaleCluster(), options, diags);
  ASSERT_TRUE(plan);
  EXPECT_FALSE(plan->optimal);
  EXPECT_GT(plan->lowerBoundMs, 0);
  EXPECT_LT(plan->lowerBoundMs, plan->timeMs);
  EXPECT_EQ(sosp19TimeOf(graph, plan->cluster, *plan), plan->timeMs);
}

TEST(Sosp19Planner, TheSameInputGivesTheSameBytes) {
  RandomInstances instances(5);
  for (int round = 0; round < 20; ++round) {
    CostGraph graph = instances.graph();
    Cluster cluster = instances.cluster(false);
    EXPECT_EQ(toJson(planFor(graph, cluster)), toJson(planFor(graph, cluster)));
  }
}

// Every device hosts exactly one replica, and reading the plan's JSON back finds nothing wrong with it.
TEST(Sosp19Planner, PlansAreWhole) {
  RandomInstances instances(6);
  for (int round = 0; round < 50; ++round) {
    Plan plan = planFor(instances.graph(), instances.cluster(false));
    std::vector<int> hosts(static_cast<std::size_t>(plan.cluster.deviceCount()), 0);
    for (const PlanRank& rank : plan.ranks) ++hosts[static_cast<std::size_t>(rank.devices.at(0))];
    EXPECT_EQ(hosts, std::vector<int>(hosts.size(), 1));
    std::ostringstream errors;
    Diagnostics diags(&errors);
    Expected<Plan> read = planFromJson(toJson(plan), "plan.json", diags);
    ASSERT_TRUE(read) << errors.str();
    EXPECT_EQ(toJson(*read), toJson(plan));
  }
}

struct Refusal {
  const char* what;
  const char* message;
};

class Sosp19Refusals : public testing::TestWithParam<Refusal> {};

TEST_P(Sosp19Refusals, SayWhy) {
  CostGraph graph = chainOf({1, 1}, {0, 0}, {0});
  Cluster cluster = clusterOf({4}, {1e6});
  PublishedOptions options = optionsFor("sosp19");
  std::string what = GetParam().what;
  if (what == "no nodes") graph = {};
  if (what == "levels of 2018") cluster = clusterOf({2, 2}, {1e6, 1e6}), options.costModel = "pipedream-2018";
  if (what == "bandwidth") cluster.levels[0].bandwidthBytesPerS = 0;
  if (what == "unequal") {
    cluster.devices = {{cluster.device, 2}, {cluster.device, 2}};
    cluster.devices[1].device.speed = 0.5;
  }
  if (what == "memory") options.memoryBytes = 1000;
  if (what == "schedule") options.schedule = "1f1b-flush";
  if (what == "straight") options.straight = true;
  if (what == "replicas") options.stageReplicas = {2, 2};
  if (what == "recompute") options.recompute = RecomputePolicy::all;
  Diagnostics diags(nullptr);
  EXPECT_FALSE(planSosp19(graph, cluster, options, diags));
  ASSERT_EQ(diags.all().size(), 1u);
  EXPECT_EQ(diags.all().front().message, GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    All, Sosp19Refusals,
    testing::Values(
        Refusal{"no nodes", "expected a graph with at least one node, got none"},
        Refusal{"levels of 2018", "the cost model 'pipedream-2018' is for one level of devices, got 2"},
        Refusal{"bandwidth", "expected a bandwidth above 0 between 4 components, got 0"},
        Refusal{"unequal", "the cost model 'sosp19' is for equal devices, got speeds 1 and 0.5"},
        Refusal{"memory", "the cost model 'sosp19' defines no memory, got a limit of 1000 bytes"},
        Refusal{"schedule", "the cost model 'sosp19' is that of the schedule '1f1b', got '1f1b-flush'"},
        Refusal{"straight",
                "the cost model 'sosp19' chooses the replicas so that every device is used, got fixed ones"},
        Refusal{"replicas",
                "the cost model 'sosp19' chooses the replicas so that every device is used, got fixed ones"},
        Refusal{"recompute", "the cost model 'sosp19' does not know recomputation, got 'all'"}),
    [](const testing::TestParamInfo<Refusal>& refusal) {
      std::string name = refusal.param.what;
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

} // namespace
