// LINK: pdcPlanner
// Plans for schedules whose ranks host several stages.
#include "Rounds.h"
#include "Search/BalancedCut.h"
#include "pdc/Cost/CostModel.h"
#include "pdc/Cost/PlanVerifier.h"
#include "pdc/Planner/Planner.h"
#include "pdc/Predict/Simulate.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

using namespace pdc;

namespace {

class RandomGraphs {
public:
  explicit RandomGraphs(unsigned seed) : random_(seed) {}

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }

  /// A chain with skips, and now and then two nodes of one colour.
  CostGraph graph(std::int64_t nodes) {
    CostGraph graph;
    for (std::int64_t v = 0; v < nodes; ++v) {
      CostNode node;
      node.forwardMs = static_cast<double>(between(1, 8)) / 4;
      node.inputGradientMs = static_cast<double>(between(1, 8)) / 4;
      node.weightGradientMs = static_cast<double>(between(0, 8)) / 4;
      node.parameterBytes = node.gradientBytes = between(0, 1000);
      node.savedBytes = between(0, 500);
      node.scratchBytes = between(0, 300);
      node.handoverBytes = between(0, 200);
      graph.nodes.push_back(node);
      if (v + 1 == nodes) break;
      std::vector<std::int64_t> users = {v + 1};
      if (between(0, 3) == 0 && v + 2 < nodes) users.push_back(between(v + 2, nodes - 1));
      graph.tensors.push_back({"t" + std::to_string(v), v, users, between(1, 100), between(0, 7) > 0});
    }
    if (between(0, 2) == 0 && nodes > 3) {
      std::int64_t first = between(0, nodes - 3);
      graph.nodes[first].colour = graph.nodes[first + 2].colour = 5;
    }
    return graph;
  }

private:
  std::mt19937 random_;
};

CostGraph equalNodes(int count) {
  CostGraph graph;
  graph.model = "model";
  for (std::int64_t v = 0; v < count; ++v) {
    CostNode node;
    node.forwardMs = node.inputGradientMs = node.weightGradientMs = 1;
    node.savedBytes = 1000;
    graph.nodes.push_back(node);
    if (v + 1 < count) graph.tensors.push_back({"t" + std::to_string(v), v, {v + 1}, 0, true});
  }
  return graph;
}

Cluster clusterOf(std::int64_t devices) {
  Cluster cluster;
  cluster.levels.push_back({"machine", devices, 1e9, 0});
  cluster.device.name = "test";
  cluster.device.memoryBytes = std::int64_t{1} << 40;
  return cluster;
}

PlannerOptions optionsFor(const std::string& schedule, std::int64_t microbatches) {
  PlannerOptions options;
  options.schedule = schedule;
  options.microbatches = microbatches;
  return options;
}

/// The message and the help of what is refused.
std::string refusal(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options, ExitCode code) {
  Diagnostics diags(nullptr);
  EXPECT_FALSE(planPipeline(graph, cluster, options, diags));
  EXPECT_EQ(diags.exitCode(), code);
  if (diags.all().size() != 1) return std::to_string(diags.all().size()) + " messages";
  return diags.all()[0].message + "; " + (diags.all()[0].helps.empty() ? "" : diags.all()[0].helps[0]);
}

double workOf(const CostGraph& graph, std::int64_t from, std::int64_t to) {
  double ms = 0;
  for (std::int64_t v = from; v < to; ++v)
    ms += graph.nodes[v].forwardMs + graph.nodes[v].inputGradientMs + graph.nodes[v].weightGradientMs;
  return ms;
}

/// Longest interval, then bytes that cross its ends, in quarters of a ms and in bytes: exact.
std::pair<double, std::int64_t> costOf(const CostGraph& graph, const std::vector<std::int64_t>& ends) {
  std::pair<double, std::int64_t> cost;
  std::int64_t from = 0;
  for (std::int64_t end : ends) {
    cost.first = std::max(cost.first, workOf(graph, from, end));
    for (const CostTensor& tensor : graph.tensors)
      if (tensor.from < end && *std::max_element(tensor.to.begin(), tensor.to.end()) >= end)
        cost.second += tensor.bytes;
    from = end;
  }
  return cost;
}

} // namespace

TEST(BalancedCut, IsTheBestOfAll) {
  RandomGraphs random(1);
  for (int round = 0; round < rounds(500); ++round) {
    CostGraph graph = random.graph(random.between(1, 9));
    auto n = static_cast<std::int64_t>(graph.nodes.size());
    std::vector<std::int64_t> places = placesToCut(graph);
    int count = static_cast<int>(random.between(1, static_cast<std::int64_t>(places.size()) + 1));
    std::pair<double, std::int64_t> best{1e9, 0};
    std::vector<std::int64_t> ends;
    std::function<void(std::size_t)> choose = [&](std::size_t from) {
      if (static_cast<int>(ends.size()) + 1 == count) {
        std::vector<std::int64_t> all = ends;
        all.push_back(n);
        best = std::min(best, costOf(graph, all));
        return;
      }
      for (std::size_t i = from; i < places.size(); ++i) {
        ends.push_back(places[i]);
        choose(i + 1);
        ends.pop_back();
      }
    };
    choose(0);
    std::vector<std::int64_t> cut = balancedCut(graph, places, count);
    ASSERT_EQ(static_cast<int>(cut.size()), count);
    EXPECT_EQ(costOf(graph, cut), best) << "round " << round;
    for (std::size_t i = 0; i + 1 < cut.size(); ++i)
      EXPECT_TRUE(std::binary_search(places.begin(), places.end(), cut[i])) << "round " << round;
  }
}

TEST(BalancedCut, TearsNoColourApart) {
  CostGraph graph = equalNodes(6);
  graph.nodes[1].colour = graph.nodes[3].colour = 7;
  EXPECT_EQ(placesToCut(graph), (std::vector<std::int64_t>{1, 4, 5}));
}

TEST(LoopedPlan, RanksHostWhatTheScheduleSays) {
  Diagnostics diags(nullptr);
  PlannerOptions options = optionsFor("zb-v", 8);
  options.straight = true;
  Expected<Plan> plan = planPipeline(equalNodes(16), clusterOf(4), options, diags);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->stages.size(), 8u);
  ASSERT_EQ(plan->ranks.size(), 4u);
  for (int r = 0; r < 4; ++r) {
    ASSERT_EQ(plan->ranks[r].hosts.size(), 2u);
    EXPECT_EQ(plan->ranks[r].hosts[0].stage, r);
    EXPECT_EQ(plan->ranks[r].hosts[1].stage, 7 - r);
  }
  EXPECT_EQ(verifyPlan(equalNodes(16), *plan, options), "");
  // 16 nodes of 3 ms on 4 devices: the ranks begin one after the other, but then so with the next batch.
  EXPECT_NEAR(plan->timeMs, 12, 1e-9);
  EXPECT_NEAR(plan->lowerBoundMs, 12, 1e-9);
  EXPECT_TRUE(plan->optimal);

  options.schedule = "interleaved:2";
  Expected<Plan> looping = planPipeline(equalNodes(16), clusterOf(4), options, diags);
  ASSERT_TRUE(looping);
  EXPECT_EQ(looping->ranks[1].hosts[0].stage, 1);
  EXPECT_EQ(looping->ranks[1].hosts[1].stage, 5);
  EXPECT_NEAR(looping->timeMs, 12 * (1 + 3.0 / (2 * 8)), 1e-6); // (p - 1) / (v·m)
  EXPECT_FALSE(looping->optimal);
  EXPECT_EQ(verifyPlan(equalNodes(16), *looping, options), "");
}

TEST(LoopedPlan, HasCopiesWhereReplicasAreGiven) {
  Diagnostics diags(nullptr);
  PlannerOptions options = optionsFor("interleaved:2", 8);
  options.stageReplicas = {2, 2, 2, 2};
  Expected<Plan> plan = planPipeline(equalNodes(8), clusterOf(4), options, diags);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->ranks.size(), 4u);
  EXPECT_EQ(plan->ranks[3].hosts[0].stage, 1);
  EXPECT_EQ(plan->ranks[3].hosts[1].stage, 3);
  EXPECT_EQ(plan->ranks[3].hosts[1].replica, 1);
  EXPECT_EQ(verifyPlan(equalNodes(8), *plan, options), "");
}

TEST(LoopedPlan, ChoosesCopiesOfAGivenNumberOfStages) {
  Diagnostics diags(nullptr);
  PlannerOptions options = optionsFor("interleaved:2", 8);
  options.stageReplicas = {0, 0, 0, 0};
  Expected<Plan> plan = planPipeline(equalNodes(8), clusterOf(4), options, diags);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->stages.size(), 4u);
  EXPECT_EQ(plan->stages[0].replicas, 2);
  options.straight = true;
  plan = planPipeline(equalNodes(8), clusterOf(4), options, diags);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->stages.size(), 4u);
  EXPECT_EQ(plan->stages[0].replicas, 1);
}

TEST(LoopedPlan, FitsIntoMemoryOrSaysHowMuchWouldDo) {
  CostGraph graph = equalNodes(8);
  Cluster cluster = clusterOf(2);
  PlannerOptions options = optionsFor("zb-v", 8);
  options.straight = true;
  cluster.device.memoryBytes = 8001; // 4 minibatches with 2000 bytes, or one of 5
  EXPECT_EQ(
      refusal(graph, cluster, options, ExitCode::noPlan),
      "no plan fits: the smallest for --devices=2 takes 9.8 KiB on one device, the limit is 7.8 KiB; give devices "
      "with 9.8 KiB of memory");
  options.recompute = RecomputePolicy::automatic;
  Diagnostics diags(nullptr);
  Expected<Plan> plan = planPipeline(graph, cluster, options, diags);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->stages[0].recompute);
  EXPECT_EQ(verifyPlan(graph, *plan, options), "");
}

TEST(LoopedPlan, RefusesWhatItCannotPlan) {
  CostGraph graph = equalNodes(8);
  PlannerOptions options = optionsFor("zb-v", 8);
  options.straight = true;
  EXPECT_EQ(refusal(graph, clusterOf(5), options, ExitCode::noPlan),
            "the model can be cut into 8 stages at most, 'zb-v' needs 10; take --devices=4, or another schedule");
  EXPECT_EQ(refusal(graph, clusterOf(4), optionsFor("interleaved:2", 1), ExitCode::unsupported),
            "the microbatches of 'interleaved:2' must be a multiple of its 4 ranks, got 1; take --microbatches=4");
  options.warmupPolicy = WarmupPolicy::given;
  options.warmup = {1, 0};
  EXPECT_EQ(refusal(graph, clusterOf(2), options, ExitCode::unsupported),
            "how far the stages of 'zb-v' run ahead follows from its order; leave --warmup out");
  options = optionsFor("interleaved:2", 8);
  options.stageReplicas = {1, 1, 1};
  EXPECT_EQ(refusal(graph, clusterOf(2), options, ExitCode::unsupported),
            "every rank hosts 2 stages under 'interleaved:2', the replicas are for 3; give replicas for a multiple of "
            "that");
  options.stageReplicas = {1, 2, 1, 2};
  EXPECT_EQ(refusal(graph, clusterOf(4), options, ExitCode::unsupported),
            "the replicas of 'interleaved:2' are copies of the whole pipeline, got 1 and 2; replicate all stages "
            "equally, or take another schedule");
  Cluster unequal = clusterOf(2);
  DeviceKind fast = unequal.device;
  fast.speed = 2;
  unequal.devices = {{unequal.device, 1}, {fast, 1}};
  EXPECT_EQ(refusal(graph, unequal, optionsFor("zb-v", 8), ExitCode::unsupported),
            "'zb-v' places stages in turn, on devices that are equal; take equal devices, or another schedule");
}

/// Parameters of 1000 bytes at each node.
CostGraph withParameters(CostGraph graph) {
  for (CostNode& node : graph.nodes) node.parameterBytes = node.gradientBytes = 1000;
  return graph;
}

// Two ranks with 4 units of 2000 bytes: a half of weights, gradients and state, and two places for weights and
// gradients.
TEST(LoopedPlan, WeightsInShardsTakeTheMemoryOfTheirShareAndOfTwoUnits) {
  const CostGraph graph = withParameters(equalNodes(8));
  PlannerOptions options = optionsFor("bfs:4", 4);
  options.optimizerStatePerParameterByte = 2;
  options.stageReplicas = {2, 2, 2, 2};
  const auto bytesOf = [&](ShardPolicy shard) {
    Diagnostics diags(nullptr);
    options.shard = shard;
    Expected<Plan> plan = planPipeline(graph, clusterOf(2), options, diags);
    EXPECT_TRUE(plan);
    if (!plan) return std::int64_t{0};
    EXPECT_EQ(verifyPlan(graph, *plan, options), "");
    std::int64_t bytes = 0;
    for (const PlanStage& stage : plan->stages) bytes += stage.memoryBytes;
    return bytes - 2 * 8000; // slots for two minibatches
  };
  EXPECT_EQ(bytesOf(ShardPolicy::none), 4 * (2000 + 2000 + 4000));
  EXPECT_EQ(bytesOf(ShardPolicy::optimizer), 4 * (2000 + 2000 + 2000));
  EXPECT_EQ(bytesOf(ShardPolicy::weights), 4 * (1000 + 1000 + 2000) + 2 * (2000 + 2000));
}

// Four replicas in groups of two: a half of everything as with two replicas; a group that replicas cannot be is
// refused.
TEST(LoopedPlan, GroupsOfReplicasHaveEverythingTogether) {
  const CostGraph graph = withParameters(equalNodes(8));
  PlannerOptions options = optionsFor("bfs:4", 8);
  options.optimizerStatePerParameterByte = 2;
  options.shard = ShardPolicy::weights;
  options.shardDegree = 2;
  options.stageReplicas.assign(4, 4);
  Diagnostics diags(nullptr);
  Expected<Plan> plan = planPipeline(graph, clusterOf(4), options, diags);
  ASSERT_TRUE(plan);
  EXPECT_EQ(verifyPlan(graph, *plan, options), "");
  std::int64_t bytes = 0;
  for (const PlanStage& stage : plan->stages) {
    EXPECT_EQ(stage.owners(), 2);
    bytes += stage.memoryBytes;
  }
  EXPECT_EQ(bytes - 2 * 8000, 4 * (1000 + 1000 + 2000) + 2 * (2000 + 2000));
  options.stageReplicas.assign(4, 3);
  EXPECT_EQ(refusal(graph, clusterOf(3), options, ExitCode::usage),
            "--shard=weights:2: 3 replicas are no groups of 2; give a number that divides the replicas of each stage");
  // Without given replicas, those are taken that can be groups.
  options.stageReplicas.clear();
  options.schedule = "bfs:2";
  plan = planPipeline(graph, clusterOf(12), options, diags);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->stages[0].replicas == 1 || plan->stages[0].replicas % 2 == 0) << plan->stages[0].replicas;
}

TEST(LoopedPlan, WeightsOfOwnersStayWhole) {
  CostGraph graph = withParameters(equalNodes(8));
  graph.sharedParameters.push_back({"tied", {0, 7}, 500});
  PlannerOptions options = optionsFor("bfs:4", 4);
  options.stageReplicas = {2, 2, 2, 2};
  options.shard = ShardPolicy::weights;
  Diagnostics diags(nullptr);
  Expected<Plan> plan = planPipeline(graph, clusterOf(2), options, diags);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->stages[0].sharding, pdcrt::Sharding::optimizer);
  for (int s = 1; s < 4; ++s) EXPECT_EQ(plan->stages[s].sharding, pdcrt::Sharding::weights);
  EXPECT_EQ(verifyPlan(graph, *plan, options), "");
}

// The fastest of what fits: with room for all, no policy alone is faster; where only shards of weights fit, these.
TEST(LoopedPlan, ShardsOfWeightsAreTakenWhereOnlyTheyFit) {
  const CostGraph graph = withParameters(equalNodes(16));
  PlannerOptions options = optionsFor("bfs:8", 4);
  options.optimizerStatePerParameterByte = 2;
  options.stageReplicas.assign(8, 2);
  const auto planOf = [&](ShardPolicy shard, std::int64_t limit) {
    Diagnostics diags(nullptr);
    options.shard = shard;
    options.memoryBytes = limit;
    return planPipeline(graph, clusterOf(2), options, diags);
  };
  const Expected<Plan> best = planOf(ShardPolicy::automatic, 200000);
  ASSERT_TRUE(best);
  for (ShardPolicy shard : {ShardPolicy::none, ShardPolicy::optimizer, ShardPolicy::weights}) {
    const Expected<Plan> other = planOf(shard, 200000);
    ASSERT_TRUE(other);
    EXPECT_LE(best->timeMs, other->timeMs * (1 + 1e-9));
  }
  // 8 units of 4000 bytes in each, two places for 2000 of weights and of gradients, 32 slots of 1000.
  EXPECT_FALSE(planOf(ShardPolicy::optimizer, 72000));
  const Expected<Plan> shards = planOf(ShardPolicy::automatic, 72000);
  ASSERT_TRUE(shards);
  EXPECT_EQ(shards->stages[0].sharding, pdcrt::Sharding::weights);
  options.memoryBytes = 71999;
  EXPECT_EQ(refusal(graph, clusterOf(2), options, ExitCode::noPlan),
            "no plan fits: the smallest for --devices=2 takes 70.3 KiB on one device, the limit is 70.3 KiB; give "
            "devices with 70.3 KiB of memory");
  options.schedule = "1f1b-flush";
  options.shard = ShardPolicy::weights;
  EXPECT_EQ(refusal(graph, clusterOf(16), options, ExitCode::usage),
            "--shard=weights: under '1f1b-flush' a rank needs all weights of its stages all the time; take "
            "--schedule=bfs:V, under which a rank goes through V stages, or --shard=optimizer");
}

// The bound of a plan (costWithWarmup) and that of all plans (lowerBoundMs) hold, whatever the times are.
TEST(LoopedPlan, NoPlanBeatsItsBound) {
  RandomGraphs random(2);
  for (int round = 0; round < rounds(40); ++round) {
    CostGraph graph = random.graph(random.between(8, 16));
    Cluster cluster = clusterOf(random.between(1, 4));
    cluster.levels[0].bandwidthBytesPerS = static_cast<double>(random.between(20, 2000)) * 1e3;
    cluster.device.speed = static_cast<double>(random.between(1, 3));
    const char* names[] = {"zb-v", "interleaved:2", "interleaved:3", "zb-h1", "bfs:2", "bfs:3"};
    PlannerOptions options = optionsFor(names[round % 6], random.between(1, 2) * 12);
    options.optimizerStatePerParameterByte = 2;
    if (round % 6 > 3) {
      const ShardPolicy policies[] = {ShardPolicy::none, ShardPolicy::optimizer, ShardPolicy::weights};
      options.shard = policies[random.between(0, 2)];
      if (options.shard == ShardPolicy::weights && random.between(0, 1) > 0) {
        options.shardDegree = 2;
        cluster = clusterOf(4 * random.between(1, 2));
        cluster.levels[0].bandwidthBytesPerS = static_cast<double>(random.between(20, 2000)) * 1e3;
      }
      const auto stages = static_cast<std::size_t>(options.schedule->stagesPerRank);
      if (random.between(0, 1) > 0) options.stageReplicas.assign(stages, static_cast<int>(cluster.deviceCount()));
    }
    Diagnostics diags(nullptr);
    Expected<Plan> plan = planPipeline(graph, cluster, options, diags);
    if (!plan) {
      EXPECT_EQ(diags.exitCode(), ExitCode::noPlan);
      continue;
    }
    EXPECT_EQ(verifyPlan(graph, *plan, options), "") << "round " << round;
    Expected<pdcrt::Schedule> schedule = scheduleFor(*plan, diags);
    ASSERT_TRUE(schedule);
    double simulatedMs = simulate(*plan, *schedule).timePerMinibatchMs;
    EXPECT_LE(costWithWarmup(*plan, options).timeMs, simulatedMs * (1 + 1e-9)) << "round " << round;
    EXPECT_LE(plan->lowerBoundMs, simulatedMs * (1 + 1e-9)) << "round " << round;
  }
}
