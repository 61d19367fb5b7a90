// LINK: pdcPublished
// Cost model `pipedream-code` against what PipeDream's released optimizer computed for its own profiles.
#include "PipeDream/Code.h"
#include "PipeDream/CodeStates.h"

#include "pdc/Published/PipedreamProfile.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
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

/// Chains inside branches made one node, as the released optimizer does with Inception-v3 before it plans: the node
/// after a fork takes in what follows until another fork or a join.
CostGraph compressBranches(const CostGraph& graph) {
  std::size_t n = graph.nodes.size();
  std::vector<std::vector<std::int64_t>> in(n), out(n);
  for (const CostTensor& tensor : graph.tensors)
    for (std::int64_t to : tensor.to) {
      out[tensor.from].push_back(to);
      in[to].push_back(tensor.from);
    }
  std::vector<std::int64_t> place(n);
  std::vector<char> inBranch(n, 0);
  CostGraph small;
  std::vector<std::int64_t> last; // member whose tensor leaves
  for (std::size_t v = 0; v < n; ++v) {
    std::int64_t p = in[v].size() == 1 ? in[v][0] : -1;
    inBranch[v] = p >= 0 && (out[p].size() > 1 || inBranch[p]);
    if (p >= 0 && inBranch[p] && out[p].size() == 1 && !out[v].empty()) {
      place[v] = place[p];
      CostNode& node = small.nodes[place[v]];
      node.forwardMs += graph.nodes[v].forwardMs;
      node.inputGradientMs += graph.nodes[v].inputGradientMs;
      node.weightGradientMs += graph.nodes[v].weightGradientMs;
      node.parameterBytes += graph.nodes[v].parameterBytes;
      last[place[v]] = static_cast<std::int64_t>(v);
    } else {
      place[v] = static_cast<std::int64_t>(small.nodes.size());
      small.nodes.push_back(graph.nodes[v]);
      last.push_back(static_cast<std::int64_t>(v));
    }
  }
  for (CostTensor tensor : graph.tensors) {
    if (last[place[tensor.from]] != tensor.from) continue;
    tensor.from = place[tensor.from];
    for (std::int64_t& to : tensor.to) to = place[to];
    small.tensors.push_back(tensor);
  }
  return small;
}

/// The rows of the reference that are for a compressed graph: equal on that graph, which has 1,646 states as theirs;
/// never worse on the whole one, whose plans include those of the compressed graph.
TEST(PlannerCode, ReachesTheReleasedOptimizerOnCompressedBranches) {
  if (!std::filesystem::exists(shared)) GTEST_SKIP() << "no reference data";
  nlohmann::json reference = nlohmann::json::parse(textOf(shared + "reference/pipedream-optimizer.json"));
  CostGraph whole = profile("inception_v3"), compressed = compressBranches(whole);
  EXPECT_EQ(allStates(CodeNodes::of(whole, 1), 300'000)->size(), 221'564u);
  int rows = 0;
  for (const nlohmann::json& row : reference.at("results")) {
    if (!row.at("branches_compressed_first")) continue;
    ++rows;
    EXPECT_EQ(allStates(CodeNodes::of(compressed, 1), 10'000)->size(), row.at("states").get<std::size_t>());
    PlannerOptions options = pipedreamCode();
    options.straight = row.at("straight_pipeline");
    Diagnostics diags(nullptr);
    Expected<Plan> plan = planPipedreamCode(compressed, clusterOf(row.at("levels")), options, diags);
    ASSERT_TRUE(plan);
    EXPECT_NEAR(plan->timeMs / row.at("time_ms").get<double>(), 1, 1e-8);
  }
  EXPECT_EQ(rows, 3);
}

/// Flat and on two levels, each proven; the times are this planner's own, the definition confirms them.
TEST(PlannerCode, ProvesInceptionUncompressed) {
  if (!std::filesystem::exists(shared)) GTEST_SKIP() << "no reference data";
  CostGraph graph = profile("inception_v3");
  const std::pair<const char*, double> expected[] = {
      {"4x1e9", 226.585532}, {"8x2.5e10", 86.167}, {"64x2.5e10", 10.9206629248}, {"8x2.5e10,8x3.125e9", 12.67216348}};
  for (auto [levels, ms] : expected) {
    SCOPED_TRACE(levels);
    Diagnostics diags(nullptr);
    Expected<Plan> plan = planPipedreamCode(graph, clusterOf(levels), pipedreamCode(), diags);
    ASSERT_TRUE(plan);
    EXPECT_TRUE(plan->optimal);
    EXPECT_NEAR(plan->timeMs, ms, 1e-8 * ms);
  }
}

/// a chain of four nodes, each 1 ms, 100 bytes of activation and of parameters
CostGraph chain() {
  CostGraph graph;
  graph.model = "chain";
  for (int v = 0; v < 4; ++v) {
    CostNode node;
    node.name = "node" + std::to_string(v);
    node.forwardMs = 1;
    node.parameterBytes = node.savedBytes = 100;
    graph.nodes.push_back(node);
    if (v > 0) graph.tensors.push_back({.name = "", .from = v - 1, .to = {v}, .bytes = 100, .hasGradient = true});
  }
  return graph;
}

std::string refusal(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options, ExitCode exitCode) {
  Diagnostics diags(nullptr);
  EXPECT_FALSE(planPipedreamCode(graph, cluster, options, diags));
  EXPECT_EQ(diags.exitCode(), exitCode);
  return diags.all().empty() ? "" : toString(diags.all()[0]);
}

TEST(PlannerCode, PlacesStagesOnNeighbours) {
  // Two servers of two: both run the first half on one device and the second half on the other, or one stage each.
  CostGraph graph = chain();
  Cluster cluster = clusterOf("2x1e9,2x1e2");
  Diagnostics diags(nullptr);
  Expected<Plan> plan = planPipedreamCode(graph, cluster, pipedreamCode(), diags);
  ASSERT_TRUE(plan);
  std::vector<int> used(4, 0);
  std::size_t replicas = 0;
  for (const PlanStage& stage : plan->stages) {
    int product = 1;
    for (const PlanNest& nest : stage.nest) product *= nest.replicas;
    EXPECT_EQ(stage.replicas, product);
    replicas += static_cast<std::size_t>(stage.replicas);
  }
  EXPECT_EQ(replicas, plan->ranks.size());
  for (const PlanRank& rank : plan->ranks) ++used[rank.devices.at(0)];
  EXPECT_EQ(used, std::vector<int>({1, 1, 1, 1}));
}

TEST(PlannerCode, SkipsLevelsOfOneComponent) {
  Diagnostics diags(nullptr);
  CostGraph graph = chain();
  Expected<Plan> flat = planPipedreamCode(graph, clusterOf("4x1e6"), pipedreamCode(), diags);
  Expected<Plan> nested = planPipedreamCode(graph, clusterOf("1x1,4x1e6,1x1"), pipedreamCode(), diags);
  ASSERT_TRUE(flat && nested);
  EXPECT_EQ(flat->timeMs, nested->timeMs);
  EXPECT_EQ(nested->stages[0].nest.size(), 1u);
  Expected<Plan> one = planPipedreamCode(graph, clusterOf("1x1"), pipedreamCode(), diags);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->timeMs, 4);
  EXPECT_TRUE(one->optimal);
}

TEST(PlannerCode, SaysWhatIsWrongWithAPlan) {
  Diagnostics diags(nullptr);
  CostGraph graph = chain();
  Cluster cluster = clusterOf("2x1e9");
  Plan plan = *planPipedreamCode(graph, cluster, pipedreamCode(), diags);
  EXPECT_EQ(pipedreamCodeFaultOf(graph, cluster, pipedreamCode(), plan), "");
  Plan fewer = plan;
  fewer.stages.back().nodes.pop_back();
  EXPECT_EQ(pipedreamCodeFaultOf(graph, cluster, pipedreamCode(), fewer), "the stages hold 3 of 4 nodes");
  EXPECT_EQ(pipedreamCodeTimeOf(graph, cluster, fewer), std::numeric_limits<double>::infinity());
  Plan replicated = plan;
  replicated.stages[0].replicas = 7;
  EXPECT_NE(pipedreamCodeFaultOf(graph, cluster, pipedreamCode(), replicated), "");
  EXPECT_EQ(pipedreamCodeFaultOf(graph, clusterOf("3x1e9"), pipedreamCode(), plan),
            "the stages take 2 of 3 components");
}

TEST(PlannerCode, ReportsTheSmallestMemoryThatWouldDo) {
  PlannerOptions options = pipedreamCode();
  options.straight = true;
  options.memoryBytes = 500;
  // First stage: 3 of 3 minibatches behind it, 200 bytes each.
  EXPECT_EQ(refusal(chain(), clusterOf("4x1e9"), options, ExitCode::noPlan),
            "chain: error: no plan fits: the smallest keeps 600 bytes on a device, the limit is 500 bytes\n"
            "help: give --memory=600\n");
}

TEST(PlannerCode, ReportsTooManyDevicesForAStraightPipeline) {
  PlannerOptions options = pipedreamCode();
  options.straight = true;
  EXPECT_EQ(refusal(chain(), clusterOf("5x1e9"), options, ExitCode::noPlan),
            "chain: error: a straight pipeline on 5 devices has as many stages, this graph can be cut into 4\n"
            "help: leave out --straight\n");
}

TEST(PlannerCode, RefusesWhatTheModelDoesNotKnow) {
  CostGraph apart = chain();
  apart.tensors.pop_back();
  EXPECT_EQ(
      refusal(apart, clusterOf("2x1e9"), pipedreamCode(), ExitCode::unsupported),
      "chain:node3: error: the cost model pipedream-code reaches 3 of 4 nodes: nothing connects this one with the "
      "first node 'node0'\nhelp: take --cost-model=pdc\n");
  PlannerOptions options = pipedreamCode();
  options.schedule = "1f1b-flush";
  EXPECT_NE(refusal(chain(), clusterOf("2x1e9"), options, ExitCode::unsupported).find("schedule"), std::string::npos);
  options = pipedreamCode();
  options.recompute = RecomputePolicy::automatic;
  EXPECT_NE(refusal(chain(), clusterOf("2x1e9"), options, ExitCode::unsupported).find("recomputation"),
            std::string::npos);
  options = pipedreamCode();
  options.stageReplicas = {1, 1};
  EXPECT_NE(refusal(chain(), clusterOf("2x1e9"), options, ExitCode::unsupported).find("replicas"), std::string::npos);
  Cluster unequal = clusterOf("2x1e9");
  unequal.devices = {{.device = {.speed = 1}, .count = 1}, {.device = {.speed = 2}, .count = 1}};
  EXPECT_NE(refusal(chain(), unequal, pipedreamCode(), ExitCode::unsupported).find("equal devices"), std::string::npos);
  EXPECT_NE(refusal(chain(), clusterOf("2x0"), pipedreamCode(), ExitCode::invalidInput).find("bandwidth"),
            std::string::npos);
  EXPECT_NE(refusal({}, clusterOf("2x1e9"), pipedreamCode(), ExitCode::invalidInput).find("at least one node"),
            std::string::npos);
}

TEST(PlannerCode, KeepsTheTimeLimitWithAProvenBound) {
  if (!std::filesystem::exists(shared)) GTEST_SKIP() << "no reference data";
  CostGraph graph = profile("inception_v3");
  PlannerOptions options = pipedreamCode();
  options.timeLimitS = 1e-6;
  Diagnostics diags(nullptr);
  Expected<Plan> plan = planPipedreamCode(graph, clusterOf("8x2.5e10"), options, diags);
  ASSERT_TRUE(plan);
  EXPECT_FALSE(plan->optimal);
  EXPECT_GT(plan->lowerBoundMs, 0);
  EXPECT_LE(plan->lowerBoundMs, 86.167);
  EXPECT_GE(plan->timeMs, 86.167);
  EXPECT_EQ(pipedreamCodeFaultOf(graph, clusterOf("8x2.5e10"), options, *plan), "");
}

} // namespace
