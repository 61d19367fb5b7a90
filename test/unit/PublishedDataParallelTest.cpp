// LINK: pdcPublished
// One stage on all devices: the formulas of each cost model, by hand.
#include "pdc/Published/DataParallel.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

using namespace pdc;

namespace {

/// Two nodes, 12 ms of computation and 4000 bytes of parameters in all.
CostGraph twoNodes() {
  CostGraph graph;
  graph.nodes.push_back(
      {.name = "a", .forwardMs = 2, .inputGradientMs = 1, .weightGradientMs = 1, .parameterBytes = 1000});
  graph.nodes.push_back(
      {.name = "b", .forwardMs = 4, .inputGradientMs = 2, .weightGradientMs = 2, .parameterBytes = 3000});
  graph.tensors.push_back({"t", 0, {1}, 10, true});
  return graph;
}

Cluster devices(std::vector<ClusterLevel> levels) {
  Cluster cluster;
  cluster.levels = std::move(levels);
  cluster.device.memoryBytes = 1; // what is compared with need not fit
  return cluster;
}

double timeOf(const Cluster& cluster, const char* costModel) {
  PublishedOptions options;
  options.costModel = costModel;
  return dataParallelTime(twoNodes(), cluster, options).value_or(-1);
}

} // namespace

TEST(DataParallel, OnOneLevel) {
  const Cluster four = devices({{"machine", 4, 1e6, 0}}); // 4000 bytes take 4 ms
  EXPECT_DOUBLE_EQ(timeOf(four, "sosp19"), 2 * 3 * 4.0 / 4) << "the synchronisation hides the computation";
  EXPECT_DOUBLE_EQ(timeOf(four, "pipedream-2018"), 12.0 / 4);
  EXPECT_DOUBLE_EQ(timeOf(four, "pipedream-code"), (12 + 4 * 3 * 4.0 / 4) / 4);
  EXPECT_DOUBLE_EQ(timeOf(four, "pdc"), (12 + 2 * 3.0 / 4 * 4) / 4) << "an only stage waits for its ring";
}

TEST(DataParallel, OnTwoLevels) {
  const Cluster eight = devices({{"server", 4, 1e6, 0}, {"rack", 2, 1e5, 0}}); // 4 ms inside, 40 ms between
  EXPECT_DOUBLE_EQ(timeOf(eight, "sosp19"), 2 * 40.0 / 2);
  EXPECT_EQ(timeOf(eight, "pipedream-2018"), -1) << "which is flat";
}

TEST(DataParallel, IsNoPlanWhereRanksHostSeveralStages) {
  for (const char* schedule : {"zb-v", "interleaved:2"}) {
    PublishedOptions options;
    options.schedule = schedule;
    options.microbatches = 8;
    EXPECT_FALSE(dataParallelTime(twoNodes(), devices({{"machine", 4, 1e6, 0}}), options)) << schedule;
  }
}

TEST(Published, RefusesAnUnknownCostModel) {
  PublishedOptions options;
  options.costModel = "guess";
  Diagnostics diags(nullptr);
  EXPECT_FALSE(planPublished(twoNodes(), devices({{"machine", 2, 1e6, 0}}), options, diags));
  EXPECT_EQ(diags.all()[0].message, "the cost model 'guess' is not known");
  EXPECT_EQ(diags.all()[0].exitCode, ExitCode::usage);
}
