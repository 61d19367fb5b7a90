// LINK: pdcPublished
// Under cost model `pdc`, no plan of PipeDream's optimizer beats the solver's, on PipeDream's own profiles.
#include "PipeDream/Code.h"
#include "Search/Solver.h"
#include "pdc/Cost/PlanVerifier.h"
#include "pdc/Published/PipedreamProfile.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

using namespace pdc;

namespace {

std::string fileOf(const std::string& profile) {
  return std::string(PDC_SOURCE_DIR) + "/../shared/data/pipedream-profiles/" + profile + "/graph.txt";
}

CostGraph graphOf(const std::string& profile) {
  std::ifstream in(fileOf(profile));
  std::stringstream text;
  text << in.rdbuf();
  Diagnostics diags(nullptr);
  Expected<CostGraph> graph = pipedreamProfileFromText(text.str(), profile, diags);
  EXPECT_TRUE(graph) << profile;
  return graph ? *graph : CostGraph();
}

struct Levels {
  std::string name;
  std::vector<std::pair<std::int64_t, double>> countAndBandwidth;
};

const std::vector<Levels> allLevels = {
    {"4x1e9", {{4, 1e9}}},
    {"4x1e10", {{4, 1e10}}},
    {"16x1.25e9", {{16, 1.25e9}}},
    {"64x1.25e9", {{64, 1.25e9}}},
    {"128x1.25e9", {{128, 1.25e9}}},
    {"256x1.25e9", {{256, 1.25e9}}},
    {"8x2.5e10", {{8, 2.5e10}}},
    {"4x1e10,4x1.25e9", {{4, 1e10}, {4, 1.25e9}}},
    {"4x1e10,16x1.25e9", {{4, 1e10}, {16, 1.25e9}}},
    {"8x2.5e10,2x3.125e9", {{8, 2.5e10}, {2, 3.125e9}}},
    {"8x2.5e10,8x3.125e9", {{8, 2.5e10}, {8, 3.125e9}}},
    {"8x2.5e10,16x3.125e9", {{8, 2.5e10}, {16, 3.125e9}}},
    {"8x2.5e10,32x3.125e9", {{8, 2.5e10}, {32, 3.125e9}}},
};

Cluster clusterOf(const Levels& levels) {
  Cluster cluster;
  for (auto [count, bandwidth] : levels.countAndBandwidth)
    cluster.levels.push_back({"level" + std::to_string(cluster.levels.size()), count, bandwidth, 0});
  cluster.device.name = "V100";
  cluster.device.memoryBytes = std::int64_t{1} << 50;
  return cluster;
}

/// The plan's stages and replicas under cost model pdc, by its definition, with the warm-up that hides transfers.
PlanCost underPdc(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                  const std::vector<PartitionStage>& stages) {
  Plan plan = describePartition(graph, cluster, options, {stages});
  PlanCost cost = costOf(plan, options);
  if (cost.warmup.empty()) return cost;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = cost.warmup[s];
  return evaluateByDefinition(graph, plan, options);
}

void comparePlans(const std::string& profile, const std::vector<Levels>& clusters, bool straight) {
  if (!std::filesystem::exists(fileOf(profile))) GTEST_SKIP() << fileOf(profile) << " is not there";
  CostGraph graph = graphOf(profile);
  for (const Levels& levels : clusters) {
    Cluster cluster = clusterOf(levels);
    PlannerOptions options;
    options.straight = straight;
    Diagnostics diags(nullptr);
    Expected<Plan> theirs = planPipedreamCode(graph, cluster, options, diags);
    ASSERT_TRUE(theirs) << levels.name;
    std::vector<PartitionStage> stages;
    for (const PlanStage& stage : theirs->stages) stages.push_back({stage.nodes, stage.replicas, false, {}});
    PlanCost other = underPdc(graph, cluster, options, stages);
    std::optional<Solution> solution = solve(graph, cluster, options);
    ASSERT_TRUE(solution) << levels.name;
    PlanCost own = underPdc(graph, cluster, options, solution->partition.stages);
    EXPECT_NEAR(own.timeMs, solution->cost.timeMs, 1e-9 * own.timeMs) << levels.name;
    EXPECT_LE(solution->lowerBoundMs, own.timeMs * (1 + 1e-9)) << levels.name;
    if (other.feasible) {
      EXPECT_LE(own.timeMs, other.timeMs * (1 + 1e-9)) << profile << " on " << levels.name;
      EXPECT_LE(solution->lowerBoundMs, other.timeMs * (1 + 1e-9)) << profile << " on " << levels.name;
    }
    ::testing::Test::RecordProperty(profile + " " + levels.name,
                                    std::to_string(own.timeMs) + " instead of " + std::to_string(other.timeMs));
  }
}

} // namespace

TEST(PlannerPdcPipedream, BeatsItsPlansForAlexnet) {
  comparePlans("alexnet", allLevels, false);
}
TEST(PlannerPdcPipedream, BeatsItsPlansForGnmt) {
  comparePlans("gnmt", allLevels, false);
}
TEST(PlannerPdcPipedream, BeatsItsPlansForResnet18) {
  comparePlans("resnet18", allLevels, false);
}
TEST(PlannerPdcPipedream, BeatsItsPlansForResnet50) {
  comparePlans("resnet50", allLevels, false);
}
TEST(PlannerPdcPipedream, BeatsItsPlansForVgg16) {
  comparePlans("vgg16", allLevels, false);
}
TEST(PlannerPdcPipedream, BeatsItsPlansForInception) {
  comparePlans("inception_v3", {allLevels[0], allLevels[1], allLevels[6]}, false);
}
TEST(PlannerPdcPipedream, BeatsItsStraightPlans) {
  for (const char* profile : {"alexnet", "gnmt", "resnet18", "resnet50", "vgg16", "inception_v3"})
    comparePlans(profile, {allLevels[0]}, true);
}
