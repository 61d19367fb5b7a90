// LINK: pdcPlanner
// Which tensors cross encoded: against all choices, for the partition that is given and for all of them.
#include "../../lib/Planner/Codecs.h"
#include "pdc/Plan/Cluster.h"
#include "pdc/Planner/Planner.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

using namespace pdc;

namespace {

/// A chain with some skips, a codec for most tensors.
CostGraph randomGraph(std::mt19937& random, std::int64_t nodes) {
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  CostGraph graph;
  graph.model = "random";
  for (std::int64_t v = 0; v < nodes; ++v) {
    CostNode node;
    node.name = "n" + std::to_string(v);
    node.forwardMs = draw(1, 20);
    node.inputGradientMs = draw(1, 20);
    node.weightGradientMs = draw(1, 20);
    node.parameterBytes = node.gradientBytes = 1000;
    graph.nodes.push_back(node);
  }
  for (std::int64_t v = 0; v + 1 < nodes; ++v) {
    CostTensor tensor{.name = "t" + std::to_string(v), .from = v, .to = {v + 1}, .bytes = draw(1, 40) * 1000};
    if (v + 3 < nodes && draw(0, 2) == 0) tensor.to.push_back(v + 3);
    tensor.hasGradient = draw(0, 4) > 0;
    if (draw(0, 4) > 0) tensor.codec = {tensor.bytes / 4, draw(0, 30) / 10.0, draw(0, 30) / 10.0};
    graph.tensors.push_back(tensor);
  }
  return graph;
}

Cluster clusterOf(std::int64_t devices, double bytesPerMs) {
  Cluster cluster;
  cluster.levels = {{.name = "net", .count = devices, .bandwidthBytesPerS = 1e3 * bytesPerMs, .latencyS = 1e-5}};
  cluster.device.memoryBytes = std::int64_t{1} << 40;
  return cluster;
}

double timeMs(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options, const Partition& partition,
              const std::vector<bool>& coded) {
  const CostGraph encoded = withCodecs(graph, partition, coded);
  return costOf(describePartition(encoded, cluster, options, partition, false), options).timeMs;
}

/// The least over all choices.
double bestMs(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
              const Partition& partition) {
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t choice = 0; choice < std::size_t{1} << graph.tensors.size(); ++choice) {
    std::vector<bool> coded;
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) coded.push_back((choice >> i & 1) != 0);
    best = std::min(best, timeMs(graph, cluster, options, partition, coded));
  }
  return best;
}

std::vector<Partition> partitionsOf(std::int64_t nodes, std::int64_t devices) {
  std::vector<Partition> all;
  for (std::int64_t cuts = 0; cuts < std::int64_t{1} << (nodes - 1); ++cuts) {
    std::vector<std::int64_t> ends;
    for (std::int64_t v = 1; v < nodes; ++v)
      if (cuts >> (v - 1) & 1) ends.push_back(v);
    ends.push_back(nodes);
    if (static_cast<std::int64_t>(ends.size()) <= devices)
      all.push_back(partitionOfIntervals(ends, std::vector<int>(ends.size(), 1)));
  }
  return all;
}

PlannerOptions optionsOf(const char* schedule) {
  PlannerOptions options;
  options.schedule = schedule;
  options.straight = true;
  options.microbatches = 4;
  return options;
}

} // namespace

TEST(Codecs, AreChosenAsAllChoicesSay) {
  std::mt19937 random(1);
  int some = 0, none = 0;
  for (int i = 0; i < 120; ++i) {
    const CostGraph graph = randomGraph(random, 6);
    const Cluster cluster = clusterOf(3, i % 2 ? 500 : 5000);
    const PlannerOptions options = optionsOf(i % 3 ? "1f1b" : "1f1b-flush");
    const Partition partition = partitionOfIntervals({2, 4, 6}, {1, 1, 1});
    const std::vector<bool> coded = chooseCodecs(graph, cluster, options, partition);
    const double best = bestMs(graph, cluster, options, partition);
    ASSERT_NEAR(timeMs(graph, cluster, options, partition, coded), best, 1e-9 * best) << i;
    ++(std::count(coded.begin(), coded.end(), true) > 0 ? some : none);
  }
  EXPECT_GT(some, 10);
  EXPECT_GT(none, 10);
}

TEST(Codecs, PlansAreBetweenTheirBoundAndTheBestOfAll) {
  std::mt19937 random(2);
  int proven = 0;
  for (int i = 0; i < 40; ++i) {
    const CostGraph graph = randomGraph(random, 5);
    const Cluster cluster = clusterOf(3, i % 2 ? 500 : 5000);
    PlannerOptions options = optionsOf("1f1b");
    options.edgeCodec.policy = EdgeCodecPolicy::automatic;
    Diagnostics diags(nullptr);
    const Expected<Plan> plan = planPipeline(graph, cluster, options, diags);
    ASSERT_TRUE(plan);
    double best = std::numeric_limits<double>::infinity();
    for (const Partition& partition : partitionsOf(5, 3))
      best = std::min(best, bestMs(graph, cluster, options, partition));
    EXPECT_LE(plan->lowerBoundMs, best * (1 + 1e-9)) << i;
    EXPECT_GE(plan->timeMs, best * (1 - 1e-9)) << i;
    if (plan->optimal) {
      EXPECT_NEAR(plan->timeMs, best, 1e-9 * best) << i;
      ++proven;
    }
  }
  EXPECT_GT(proven, 5);
}

/// With several stages per rank: no slower than none and all, and in between where that is faster than both.
TEST(Codecs, OfLoopedSchedulesAreNoSlowerThanNoneAndAll) {
  std::mt19937 random(3);
  int between = 0;
  for (int i = 0; i < 60; ++i) {
    const CostGraph graph = randomGraph(random, 8);
    const Cluster cluster = clusterOf(2, i % 2 ? 500 : 5000);
    PlannerOptions options = optionsOf(i % 3 ? "interleaved:2" : "zb-v");
    std::vector<double> times;
    for (const EdgeCodecPolicy policy : {EdgeCodecPolicy::none, EdgeCodecPolicy::all, EdgeCodecPolicy::automatic}) {
      options.edgeCodec.policy = policy;
      Diagnostics diags(nullptr);
      const Expected<Plan> plan = planPipeline(graph, cluster, options, diags);
      ASSERT_TRUE(plan) << i;
      times.push_back(plan->timeMs);
      EXPECT_LE(plan->lowerBoundMs, plan->timeMs * (1 + 1e-9)) << i;
    }
    EXPECT_LE(times[2], std::min(times[0], times[1]) * (1 + 1e-9)) << i;
    between += times[2] < std::min(times[0], times[1]) * (1 - 1e-9);
  }
  EXPECT_GT(between, 5);
}

/// Over one link that is the bottleneck, a codec pays iff its time is less than that of the bytes that it saves.
TEST(Codecs, OfALoneEdgePayWhereTheLinkIsSlow) {
  CostGraph graph;
  graph.model = "two";
  for (const char* name : {"a", "b"}) {
    CostNode node;
    node.name = name;
    node.forwardMs = node.inputGradientMs = 1;
    graph.nodes.push_back(node);
  }
  graph.tensors.push_back({.name = "t", .from = 0, .to = {1}, .bytes = 1000000});
  graph.tensors.back().codec = {250000, 0.5, 0.5};
  const Partition partition = partitionOfIntervals({1, 2}, {1, 1});
  const PlannerOptions options = optionsOf("1f1b");
  // A device takes 2 ms, and 3 with the codec: the link must take longer than that without it.
  EXPECT_TRUE(chooseCodecs(graph, clusterOf(2, 1e6 / 3.1), options, partition)[0]);
  EXPECT_FALSE(chooseCodecs(graph, clusterOf(2, 1e6 / 2.9), options, partition)[0]);
}

TEST(Codecs, AreAllTakenWhereTheyAreAskedFor) {
  std::mt19937 random(3);
  const CostGraph graph = randomGraph(random, 6);
  PlannerOptions options = optionsOf("1f1b");
  options.stageReplicas = {1, 1, 1};
  options.edgeCodec = {EdgeCodecPolicy::all, {.alpha = 5, .columns = 2}};
  Diagnostics diags(nullptr);
  const Expected<Plan> plan = planPipeline(graph, clusterOf(3, 1e9), options, diags);
  ASSERT_TRUE(plan);
  ASSERT_FALSE(plan->tensors.empty());
  for (const PlanTensor& tensor : plan->tensors) {
    const auto of = std::find_if(graph.tensors.begin(), graph.tensors.end(),
                                 [&](const CostTensor& each) { return each.name == tensor.name; });
    EXPECT_EQ(tensor.codec.has_value(), of->codec.has_value());
    EXPECT_EQ(tensor.bytes, of->codec ? of->codec->bytes : of->bytes);
    if (tensor.codec) {
      EXPECT_EQ(toText(*tensor.codec), "int8,alpha=5,columns=2");
    }
  }
}

TEST(Codecs, AreWrittenAndReadInPlans) {
  EXPECT_EQ(edgeCodecFromText("int8"), EdgeCodec());
  EXPECT_EQ(edgeCodecFromText("int8,columns=0,alpha=0.5"), (EdgeCodec{.alpha = 0.5, .columns = 0}));
  for (const char* wrong : {"", "none", "auto", "int4", "int8,", "int8,alpha=-1", "int8,columns=1.5",
                            "int8,columns=99999999", "int8,beta=1"})
    EXPECT_FALSE(edgeCodecFromText(wrong)) << wrong;
  EXPECT_EQ(edgeCodecChoiceFromText("auto,alpha=3")->policy, EdgeCodecPolicy::automatic);
  EXPECT_EQ(edgeCodecChoiceFromText("auto,alpha=3")->codec.alpha, 3);
  EXPECT_FALSE(edgeCodecChoiceFromText("none,alpha=3"));
}
