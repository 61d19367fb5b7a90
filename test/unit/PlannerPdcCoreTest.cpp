// LINK: pdcPlanner
// Where bytes take time of the core that computes: stage times worked out by hand, and what the planner makes of them.
#include "pdc/Cost/CostModel.h"
#include "pdc/Planner/Planner.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

using namespace pdc;

namespace {

/// Two nodes of 30 ms and 24 ms with 4,000 bytes of parameters each; 1,000 bytes and their gradient pass between them.
CostGraph twoNodes() {
  CostGraph graph;
  for (double ms : {10.0, 8.0}) {
    CostNode node;
    node.name = "node" + std::to_string(graph.nodes.size());
    node.forwardMs = ms;
    node.inputGradientMs = 2 * ms;
    node.parameterBytes = node.gradientBytes = 4000;
    graph.nodes.push_back(node);
  }
  CostTensor tensor;
  tensor.name = "between";
  tensor.to = {1};
  tensor.bytes = 1000;
  graph.tensors.push_back(tensor);
  return graph;
}

Cluster twoCores(double coreSPerByte) {
  Cluster cluster;
  cluster.levels.push_back({"network", 2, 1e9, 0});
  cluster.device.name = "cpu";
  cluster.device.memoryBytes = 1 << 30;
  cluster.device.coreSPerByte = coreSPerByte;
  return cluster;
}

Plan planned(const Cluster& cluster) {
  Diagnostics diags(nullptr);
  Expected<Plan> plan = planPipeline(twoNodes(), cluster, {}, diags);
  EXPECT_TRUE(plan);
  return plan ? *plan : Plan();
}

constexpr double msPerByte = 1e-3;

} // namespace

TEST(PlannerPdcCore, TransfersLengthenForwardAndBackwardAtBothEnds) {
  const Partition straight = partitionOfIntervals({1, 2}, {1, 1});
  const Plan plan = describePartition(twoNodes(), twoCores(1e-3 * msPerByte), {}, straight);
  EXPECT_DOUBLE_EQ(plan.stages[0].forwardMs, 10 + 1);
  EXPECT_DOUBLE_EQ(plan.stages[0].inputGradientMs, 20 + 1);
  EXPECT_DOUBLE_EQ(plan.stages[1].forwardMs, 8 + 1);
  EXPECT_DOUBLE_EQ(plan.stages[1].inputGradientMs, 16 + 1);
  EXPECT_EQ(plan.stages[0].updateMs, 0);
}

TEST(PlannerPdcCore, AllReducesLengthenTheUpdate) {
  Cluster cluster = twoCores(1e-3 * msPerByte);
  const Partition parallel = partitionOfIntervals({2}, {2});
  const Plan plan = describePartition(twoNodes(), cluster, {}, parallel);
  EXPECT_DOUBLE_EQ(plan.stages[0].allReduceCoreMs, msPerByte * 2 * 8000) << "each sends and receives all of it once";
  EXPECT_EQ(plan.stages[0].updateMs, plan.stages[0].allReduceCoreMs);
  EXPECT_EQ(plan.stages[0].forwardMs, 18);
  EXPECT_EQ(plan.stages[0].exposedSyncMs, 0) << "the link takes 0.008 ms, in which the core works";
  cluster.device.speed = 2;
  EXPECT_DOUBLE_EQ(describePartition(twoNodes(), cluster, {}, parallel).stages[0].updateMs, 8);
}

TEST(PlannerPdcCore, UpdatesTakeMoreWhereReplicasAddUpGradients) {
  CostGraph graph = twoNodes();
  graph.nodes[0].updateMs = 2, graph.nodes[0].lateUpdateMs = 5;
  const Partition straight = partitionOfIntervals({1, 2}, {1, 1}), parallel = partitionOfIntervals({2}, {2});
  EXPECT_EQ(describePartition(graph, twoCores(0), {}, straight).stages[0].updateMs, 2);
  EXPECT_EQ(describePartition(graph, twoCores(0), {}, parallel).stages[0].updateMs, 7);
}

TEST(PlannerPdcCore, DataParallelismIsLeftWhereItTakesTheCore) {
  const Plan parallel = planned(twoCores(0)), straight = planned(twoCores(1e-3 * msPerByte));
  ASSERT_EQ(parallel.stages.size(), 1u);
  EXPECT_EQ(parallel.stages[0].replicas, 2);
  ASSERT_EQ(straight.stages.size(), 2u);
  EXPECT_DOUBLE_EQ(straight.timeMs, 32);
  EXPECT_TRUE(straight.optimal);
}

TEST(PlannerPdcCore, ChunksOfARankSendEachOtherNothing) {
  PlannerOptions options;
  options.schedule = "interleaved:2";
  options.microbatches = 4;
  Cluster one = twoCores(1e-3 * msPerByte);
  one.levels[0].count = 1;
  const Plan plan = describePartition(twoNodes(), one, options, partitionOfIntervals({1, 2}, {1, 1}));
  EXPECT_EQ(plan.stages[0].forwardMs, 10);
  EXPECT_EQ(plan.stages[1].inputGradientMs, 16);
}
