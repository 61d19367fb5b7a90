// LINK: pdcPlanner
// The planner against the definition and against trying every plan.
#include "pdc/Planner/Planner.h"
#include "Rounds.h"

#include "pdc/Cost/PlanVerifier.h"
#include "pdc/Schedule/PlanSchedule.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

using namespace pdc;

namespace {

class RandomGraphs {
public:
  explicit RandomGraphs(unsigned seed) : random_(seed) {}

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  double time() { return static_cast<double>(between(1, 40)) / 4; }

  CostGraph graph(std::int64_t nodes, bool chain) {
    CostGraph graph;
    for (std::int64_t v = 0; v < nodes; ++v) {
      CostNode node;
      node.name = "node" + std::to_string(v);
      node.forwardMs = time();
      node.inputGradientMs = time();
      node.weightGradientMs = between(0, 1) ? time() : 0;
      node.updateMs = static_cast<double>(between(0, 4)) / 8;
      node.parameterBytes = node.gradientBytes = between(0, 3) * 100;
      node.savedBytes = between(0, 5) * 100;
      node.scratchBytes = between(0, 2) * 50;
      node.handoverBytes = between(0, 2) * 30;
      graph.nodes.push_back(node);
    }
    for (std::int64_t v = 0; v + 1 < nodes; ++v) {
      CostTensor tensor;
      tensor.from = v;
      tensor.to = {v + 1};
      if (!chain)
        for (std::int64_t user = v + 2; user < nodes; ++user)
          if (between(0, 3) == 0) tensor.to.push_back(user);
      tensor.name = "t" + std::to_string(v);
      tensor.bytes = between(0, 8) * 100;
      tensor.hasGradient = between(0, 4) > 0;
      if (between(0, 2) == 0) // some users have no part of its gradient
        for (std::int64_t user : tensor.to)
          if (between(0, 1) == 0) tensor.gradientFrom.push_back(user);
      graph.tensors.push_back(tensor);
    }
    if (between(0, 2) == 0) {
      std::int64_t first = between(0, nodes - 1), last = between(first, nodes - 1);
      graph.nodes[first].colour = graph.nodes[last].colour = 0;
    }
    return graph;
  }

  Cluster cluster(std::int64_t devices) {
    Cluster cluster;
    cluster.levels.push_back({"machine", devices, static_cast<double>(between(1, 10)) * 1e5, 1e-5});
    cluster.device.name = "test";
    cluster.device.memoryBytes = 1 << 30;
    return cluster;
  }

  PlannerOptions options() {
    PlannerOptions options;
    options.sync = between(0, 1) ? SyncPolicy::overlap : SyncPolicy::barrier;
    options.weights = between(0, 3) ? pdcrt::WeightPolicy::stash : pdcrt::WeightPolicy::latest;
    options.warmupPolicy = between(0, 2) ? WarmupPolicy::hide : WarmupPolicy::paper;
    options.straight = between(0, 3) == 0;
    options.optimizerStatePerParameterByte = static_cast<double>(between(0, 2));
    return options;
  }

private:
  std::mt19937 random_;
};

CostGraph chain(const std::vector<double>& times, std::int64_t bytes) {
  CostGraph graph;
  for (std::size_t v = 0; v < times.size(); ++v) {
    CostNode node;
    node.name = "node" + std::to_string(v);
    node.forwardMs = times[v] / 3;
    node.inputGradientMs = node.weightGradientMs = times[v] / 3;
    graph.nodes.push_back(node);
    auto index = static_cast<std::int64_t>(v);
    if (v + 1 < times.size()) graph.tensors.push_back({"t" + std::to_string(v), index, {index + 1}, bytes, true});
  }
  return graph;
}

Cluster fastCluster(std::int64_t devices) {
  Cluster cluster;
  cluster.levels.push_back({"machine", devices, 1e12, 0});
  cluster.device.name = "test";
  cluster.device.memoryBytes = std::int64_t{1} << 40;
  return cluster;
}

} // namespace

// The optimum of PipeDream's problem on small graphs, with memory limits that exclude some plans, or all of them.
TEST(Planner, EqualsBruteForce) {
  RandomGraphs random(1);
  int infeasible = 0, limited = 0, replicated = 0;
  for (int round = 0; round < rounds(150); ++round) {
    CostGraph graph = random.graph(random.between(1, 7), round % 2 == 0);
    Cluster cluster = random.cluster(random.between(1, 4));
    PlannerOptions options = random.options();
    std::optional<PlanCost> unlimited = bruteForce(graph, cluster, options);
    ASSERT_TRUE(unlimited);
    if (random.between(0, 1)) {
      cluster.device.memoryBytes = unlimited->peakMemoryBytes * random.between(20, 99) / 100;
      ++limited;
    }
    std::optional<PlanCost> expected = bruteForce(graph, cluster, options);
    Diagnostics diags(nullptr);
    Expected<Plan> plan = planPipeline(graph, cluster, options, diags);
    ASSERT_EQ(static_cast<bool>(plan), expected.has_value()) << "round " << round;
    if (!plan) {
      ++infeasible;
      EXPECT_EQ(diags.exitCode(), ExitCode::noPlan);
      continue;
    }
    EXPECT_EQ(verifyPlan(graph, *plan, options), "") << "round " << round;
    // What the search returned is the bound; the stated time may be what the simulator made of it.
    EXPECT_NEAR(plan->lowerBoundMs, expected->timeMs, 1e-9 * expected->timeMs) << "round " << round;
    EXPECT_GE(plan->timeMs, expected->timeMs * (1 - 1e-9)) << "round " << round;
    for (const PlanStage& stage : plan->stages) replicated += stage.replicas > 1;
  }
  EXPECT_GT(infeasible, 0);
  EXPECT_GT(limited, 0);
  EXPECT_GT(replicated, 0);
}

TEST(Planner, EqualsBruteForceWithBatches) {
  RandomGraphs random(4);
  int open = 0; // bounds below the optimum, where the search has ended early
  for (int round = 0; round < rounds(20); ++round) {
    CostGraph graph = random.graph(random.between(1, 5), false);
    Cluster cluster = random.cluster(random.between(1, 4));
    PlannerOptions options;
    options.schedule = std::array{"1f1b-flush", "gpipe", "2bw", "zb-h1"}[round % 4];
    options.microbatches = random.between(1, 6);
    std::optional<PlanCost> expected = bruteForce(graph, cluster, options);
    Diagnostics diags(nullptr);
    Expected<Plan> plan = planPipeline(graph, cluster, options, diags);
    ASSERT_TRUE(plan && expected);
    EXPECT_EQ(verifyPlan(graph, *plan, options), "") << "round " << round;
    EXPECT_LE(plan->lowerBoundMs, expected->loadMs * (1 + 1e-6)) << "round " << round;
    // What a batch of uneven length costs a 2bw pipeline, the simulator knows alone.
    const double slack = options.schedule->inFlightFitsBatch ? 0.05 : 1e-6;
    open += plan->lowerBoundMs < expected->loadMs * (1 - slack);
    EXPECT_LE(plan->timeMs, 1.002 * expected->loadMs) << "round " << round;
  }
  EXPECT_LE(open, rounds(20) / 100);
}

TEST(Planner, CostModelEqualsTheDefinition) {
  RandomGraphs random(2);
  for (int round = 0; round < rounds(500); ++round) {
    CostGraph graph = random.graph(random.between(2, 9), false);
    Cluster cluster = random.cluster(16);
    if (random.between(0, 2) == 0) cluster.device.cores = 2;
    cluster.device.speed = static_cast<double>(random.between(1, 4)) / 2;
    PlannerOptions options = random.options();
    std::vector<std::int64_t> ends;
    std::vector<int> replicas;
    for (std::int64_t end = 1; end <= static_cast<std::int64_t>(graph.nodes.size()); ++end)
      if (end == static_cast<std::int64_t>(graph.nodes.size()) || random.between(0, 1)) {
        ends.push_back(end);
        replicas.push_back(static_cast<int>(random.between(1, 3)));
      }
    cluster.levels[0].count = 32; // more than nine stages of three replicas
    Plan plan = describePartition(graph, cluster, options, partitionOfIntervals(ends, replicas));
    PlanCost cost = costOf(plan, options);
    for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = cost.warmup[s];
    PlanCost definition = evaluateByDefinition(graph, plan, options);
    EXPECT_NEAR(cost.timeMs, definition.timeMs, 1e-9 * cost.timeMs) << "round " << round;
    EXPECT_EQ(cost.peakMemoryBytes, definition.peakMemoryBytes) << "round " << round;
  }
}

TEST(Planner, CutsAChainWhereItBalances) {
  Diagnostics diags(nullptr);
  PlannerOptions options;
  options.straight = true;
  Expected<Plan> plan = planPipeline(chain({3, 1, 1, 1, 3, 3}, 8), fastCluster(4), options, diags);
  ASSERT_TRUE(plan);
  EXPECT_NEAR(plan->timeMs, 3, 1e-6);
  ASSERT_EQ(plan->stages.size(), 4u);
  EXPECT_EQ(plan->stages[1].nodes, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(plan->gap(), 0);
}

TEST(Planner, CutsForGivenReplicas) {
  Diagnostics diags(nullptr);
  PlannerOptions options;
  options.stageReplicas = {2, 1};
  Expected<Plan> plan = planPipeline(chain({2, 2, 1, 1}, 8), fastCluster(3), options, diags);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->stages.size(), 2u);
  EXPECT_EQ(plan->stages[0].replicas, 2);
  EXPECT_EQ(plan->stages[0].nodes.size(), 2u);
  EXPECT_EQ(plan->stages[0].syncDelay, 1);
  EXPECT_NEAR(plan->timeMs, 2, 1e-6);
}

TEST(Planner, ChoosesReplicasOfAGivenNumberOfStages) {
  Diagnostics diags(nullptr);
  PlannerOptions options;
  options.stageReplicas = {0, 0};
  CostGraph graph = chain({2, 2, 1, 1}, 8);
  graph.nodes[0].colour = graph.nodes[1].colour = 0;
  graph.nodes[2].colour = graph.nodes[3].colour = 1;
  Expected<Plan> plan = planPipeline(graph, fastCluster(6), options, diags);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->stages.size(), 2u);
  EXPECT_EQ(plan->stages[0].replicas, 4);
  EXPECT_EQ(plan->stages[1].replicas, 2);
  EXPECT_NEAR(plan->timeMs, 1, 1e-6);
  EXPECT_EQ(plan->gap(), 0);

  options.stageReplicas = {0, 1};
  plan = planPipeline(graph, fastCluster(6), options, diags);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->stages[0].replicas, 2); // more are no faster
  EXPECT_EQ(plan->stages[1].replicas, 1);

  options.stageReplicas = {0, 0, 0};
  EXPECT_FALSE(planPipeline(graph, fastCluster(6), options, diags)); // three stages would tear a colour apart
  EXPECT_EQ(diags.exitCode(), ExitCode::noPlan);
}

TEST(Planner, GivenWarmupSaysHowManyStagesThereAre) {
  Diagnostics diags(nullptr);
  PlannerOptions options;
  options.warmupPolicy = WarmupPolicy::given;
  options.warmup = {3, 1, 0};
  Expected<Plan> plan = planPipeline(chain(std::vector<double>(60, 1), 8), fastCluster(8), options, diags);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->stages.size(), 3u);
  for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(plan->stages[s].warmup, options.warmup[s]);

  options.stageReplicas = {1, 1};
  ASSERT_FALSE(planPipeline(chain({1, 1, 1}, 8), fastCluster(8), options, diags));
  EXPECT_EQ(diags.exitCode(), ExitCode::usage);
}

TEST(Planner, KeepsAColourInOneStage) {
  CostGraph graph = chain({1, 1, 1, 1}, 8);
  graph.nodes[1].colour = graph.nodes[3].colour = 5;
  Diagnostics diags(nullptr);
  PlannerOptions options;
  options.straight = true;
  Expected<Plan> plan = planPipeline(graph, fastCluster(4), options, diags);
  ASSERT_TRUE(plan);
  EXPECT_NEAR(plan->timeMs, 3, 1e-6);
  EXPECT_EQ(verifyPlan(graph, *plan, options), "");
}

TEST(Planner, FlushingBatchIsWhatTheSimulatorExecutes) {
  Diagnostics diags(nullptr);
  PlannerOptions options;
  options.schedule = "1f1b-flush";
  options.microbatches = 4;
  options.straight = true;
  Expected<Plan> plan = planPipeline(chain({3, 3, 3}, 0), fastCluster(3), options, diags);
  ASSERT_TRUE(plan);
  // Bubble (p - 1) / m: a batch takes m + p - 1 = 6 times F + B.
  EXPECT_NEAR(plan->timeMs * 4, 6 * 3, 1e-6);
  EXPECT_NEAR(plan->lowerBoundMs, plan->timeMs, 1e-6);
}

TEST(Planner, GPipeKeepsAWholeBatch) {
  Diagnostics diags(nullptr);
  PlannerOptions options;
  options.schedule = "gpipe";
  options.microbatches = 6;
  options.straight = true;
  Expected<Plan> plan = planPipeline(chain({3, 3, 3}, 0), fastCluster(3), options, diags);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->stages.size(), 3u);
  for (const PlanStage& stage : plan->stages) EXPECT_EQ(stage.warmup, 5);
  // Bubble (p - 1) / m, as 1f1b-flush: 8 times F + B, here of 3 ms a stage.
  EXPECT_NEAR(plan->timeMs * 6, 8 * 3, 1e-6);
}

TEST(Planner, TwoBufferedWeightsHaveNoBubble) {
  Diagnostics diags(nullptr);
  PlannerOptions options;
  options.schedule = "2bw";
  options.microbatches = 6;
  options.straight = true;
  CostGraph graph = chain({3, 3, 3}, 0);
  for (CostNode& node : graph.nodes) node.parameterBytes = node.gradientBytes = 1000;
  Expected<Plan> plan = planPipeline(graph, fastCluster(3), options, diags);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->stages.size(), 3u);
  EXPECT_NEAR(plan->timeMs, 3, 1e-2);
  // Two versions of the weights and one accumulator.
  for (const PlanStage& stage : plan->stages) EXPECT_GE(stage.memoryBytes, 3000);
  EXPECT_EQ(plan->stages[2].memoryBytes, 3000 + 2 * plan->stages[2].warmup);
}

TEST(Planner, CoresBoundTheTime) {
  Diagnostics diags(nullptr);
  PlannerOptions options;
  options.straight = true;
  Cluster cluster = fastCluster(4);
  cluster.device.cores = 2;
  Expected<Plan> plan = planPipeline(chain({1, 1, 1, 1}, 0), cluster, options, diags);
  ASSERT_TRUE(plan);
  EXPECT_NEAR(plan->timeMs, 2, 1e-2);
}

/// The first number of devices for which there is a plan: as planning says of every number up to six.
TEST(Planner, FindsTheFewestDevices) {
  RandomGraphs random(11);
  int some = 0, none = 0;
  for (int i = 0; i < 60; ++i) {
    const CostGraph graph = random.graph(random.between(2, 6), i % 2 == 0);
    PlannerOptions options = random.options();
    options.schedule = i % 5 == 0 ? "interleaved:2" : "1f1b";
    options.warmupPolicy = WarmupPolicy::hide;
    options.memoryBytes = random.between(5, 40) * 100;
    std::optional<std::int64_t> expected;
    for (std::int64_t devices = 1; devices <= 6 && !expected; ++devices) {
      Cluster cluster = random.cluster(devices);
      Diagnostics ignored(nullptr);
      if (planPipeline(graph, cluster, options, ignored)) expected = devices;
    }
    EXPECT_EQ(fewestDevices(graph, random.cluster(random.between(1, 3)), options, 6), expected) << i;
    ++(expected && *expected > 1 ? some : none);
  }
  EXPECT_GT(some, 5);
  EXPECT_GT(none, 5);
}

TEST(Planner, SaysHowMuchMemoryWouldDo) {
  CostGraph graph = chain({1, 1}, 8);
  for (CostNode& node : graph.nodes) node.parameterBytes = node.gradientBytes = std::int64_t{3} << 30;
  Cluster cluster = fastCluster(1);
  cluster.device.memoryBytes = std::int64_t{8} << 30;
  Diagnostics diags(nullptr);
  ASSERT_FALSE(planPipeline(graph, cluster, {}, diags));
  ASSERT_EQ(diags.all().size(), 1u);
  EXPECT_EQ(diags.exitCode(), ExitCode::noPlan);
  EXPECT_EQ(diags.all()[0].message,
            "no plan fits: the smallest for --devices=1 takes 12.0 GiB on one device, the limit is 8.0 GiB");
  EXPECT_EQ(diags.all()[0].helps[0], "give devices with 12.0 GiB of memory, or take --devices=2");
}

TEST(Planner, RefusesWhatItCannotPlan) {
  auto messageOf = [](const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options) {
    Diagnostics diags(nullptr);
    EXPECT_FALSE(planPipeline(graph, cluster, options, diags));
    return diags.all().empty() ? "" : diags.all()[0].message;
  };
  PlannerOptions replicas;
  replicas.stageReplicas = {2, 2};
  EXPECT_EQ(messageOf(chain({1, 1}, 0), fastCluster(3), replicas), "the stages need 4 devices, there are 3");
  replicas.stageReplicas = {1, 1, 1};
  EXPECT_EQ(messageOf(chain({1, 1}, 0), fastCluster(3), replicas),
            "the model has 2 fusion groups, too few for 3 stages");
  EXPECT_EQ(messageOf({}, fastCluster(2), {}), "expected a graph with at least one node, got none");
  PlannerOptions given;
  given.stageReplicas = {1, 1};
  given.warmupPolicy = WarmupPolicy::given;
  given.warmup = {0, 1};
  EXPECT_EQ(messageOf(chain({1, 1}, 0), fastCluster(2), given),
            "no partition satisfies the given stages, colours and warm-up on 2 devices");
}

TEST(Planner, IsDeterministic) {
  RandomGraphs random(3);
  CostGraph graph = random.graph(12, false);
  Cluster cluster = random.cluster(6);
  Diagnostics diags(nullptr);
  Expected<Plan> one = planPipeline(graph, cluster, {}, diags), two = planPipeline(graph, cluster, {}, diags);
  ASSERT_TRUE(one && two);
  EXPECT_EQ(toJson(*one), toJson(*two));
}

// The verifier must notice what is wrong, or the tests above mean nothing.
TEST(PlanVerifier, FindsMistakes) {
  CostGraph graph = chain({2, 2, 1, 1}, 8);
  Diagnostics diags(nullptr);
  PlannerOptions options;
  options.straight = true;
  Expected<Plan> good = planPipeline(graph, fastCluster(3), options, diags);
  ASSERT_TRUE(good);
  ASSERT_EQ(verifyPlan(graph, *good, options), "");
  auto broken = [&](auto change) {
    Plan plan = *good;
    change(plan);
    return verifyPlan(graph, plan, options);
  };
  EXPECT_EQ(broken([](Plan& p) { p.stages[2].nodes.pop_back(); }), "node 3 is in no stage");
  EXPECT_EQ(broken([](Plan& p) { p.stages[1].nodes.push_back(0); }), "node 0 is in two stages");
  EXPECT_EQ(broken([](Plan& p) { std::swap(p.stages[0].nodes, p.stages[2].nodes); }),
            "tensor 't0' goes to an earlier stage");
  EXPECT_EQ(broken([](Plan& p) { p.ranks[1].devices = {0}; }), "device 0 does not exist or is used twice");
  EXPECT_NE(broken([](Plan& p) { p.timeMs /= 2; }), "");
  EXPECT_NE(broken([](Plan& p) { p.stages[0].memoryBytes += 1; }), "");
  CostGraph coloured = graph;
  coloured.nodes.front().colour = coloured.nodes.back().colour = 7;
  EXPECT_EQ(verifyPlan(coloured, *good, options), "colour 7 is in two stages");
}
