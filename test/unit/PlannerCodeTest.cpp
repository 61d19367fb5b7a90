// LINK: pdcPlanner
// Cost model `pipedream-code` against what PipeDream's released optimizer computed for its own profiles.
#include "PipeDream/Code.h"

#include "pdc/Plan/PipedreamProfile.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace pdc;

namespace {

const std::string shared = PDC_SOURCE_DIR "/../shared/";

std::string textOf(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

CostGraph profile(const std::string& model) {
  std::string path = shared + "data/pipedream-profiles/" + model + "/graph.txt";
  Diagnostics diags(nullptr);
  Expected<CostGraph> graph = pipedreamProfileFromText(textOf(path), path, diags);
  EXPECT_TRUE(graph) << path;
  return graph ? *graph : CostGraph{};
}

/// "4x1e10,4x1.25e9": count x bytes per second, innermost first.
Cluster clusterOf(const std::string& levels) {
  Cluster cluster;
  std::stringstream stream(levels);
  for (std::string level; std::getline(stream, level, ',');)
    cluster.levels.push_back({.name = "level",
                              .count = std::stoll(level),
                              .bandwidthBytesPerS = std::stod(level.substr(level.find('x') + 1)),
                              .latencyS = 0});
  return cluster;
}

PlannerOptions pipedreamCode() {
  PlannerOptions options;
  options.costModel = "pipedream-code";
  return options;
}

/// Every row: the reference's time or a smaller one, proven, and confirmed by the definition; equal where the
/// reference did not compress the graph first.
TEST(PlannerCode, ReachesTheReleasedOptimizer) {
  if (!std::filesystem::exists(shared)) GTEST_SKIP() << "no reference data";
  nlohmann::json reference = nlohmann::json::parse(textOf(shared + "reference/pipedream-optimizer.json"));
  for (const nlohmann::json& row : reference.at("results")) {
    SCOPED_TRACE(row.dump());
    CostGraph graph = profile(row.at("model"));
    Cluster cluster = clusterOf(row.at("levels"));
    PlannerOptions options = pipedreamCode();
    options.straight = row.at("straight_pipeline");
    if (!row.at("memory_bytes").is_null())
      options.memoryBytes = static_cast<std::int64_t>(row["memory_bytes"].get<double>());
    Diagnostics diags(nullptr);
    Expected<Plan> plan = planPipedreamCode(graph, cluster, options, diags);
    ASSERT_TRUE(plan);
    double expected = row.at("time_ms");
    EXPECT_LE(plan->timeMs, expected * (1 + 1e-8));
    if (!row.at("branches_compressed_first")) {
      EXPECT_GE(plan->timeMs, expected * (1 - 1e-8));
    }
    EXPECT_TRUE(plan->optimal);
    EXPECT_EQ(plan->timeMs, plan->lowerBoundMs);
    EXPECT_EQ(pipedreamCodeFaultOf(graph, cluster, options, *plan), "");
    EXPECT_EQ(pipedreamCodeTimeOf(graph, cluster, *plan), plan->timeMs);
    EXPECT_NEAR(pipedreamCodeDataParallelTimeOf(graph, cluster) / row.at("data_parallel_ms").get<double>(), 1, 1e-8);
  }
}

} // namespace
