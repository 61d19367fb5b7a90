// LINK: pdcSchedule
// Cost graphs, clusters and plans as JSON: what is written is read back, and every mistake is told with its place.
#include "pdc/Plan/Plan.h"
#include "pdc/Plan/Cluster.h"
#include "pdc/Plan/CostGraph.h"
#include "pdc/Plan/GradientTrips.h"
#include "pdc/Plan/ScheduleDef.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

using namespace pdc;

namespace {

Plan samplePlan() {
  Diagnostics diags(nullptr);
  Plan plan;
  plan.model = "lenet.onnx";
  plan.modelHash = "0123abcd";
  plan.costSource = "analytic";
  plan.timeMs = 1.25;
  plan.lowerBoundMs = 1.0 / 3;
  plan.cluster = *flatCluster(4, "cpu", diags);
  plan.cluster.device.cores = 2;
  for (int s = 0; s < 2; ++s) {
    PlanStage stage;
    stage.nodes = {2 * s, 2 * s + 1};
    stage.nodeNames = {"/conv" + std::to_string(s), "weird \"name\"\n"};
    stage.replicas = 2 - s;
    stage.warmup = 2 - 2 * s;
    stage.syncDelay = 1 - s;
    stage.forwardMs = 0.1;
    stage.inputGradientMs = 0.2;
    stage.weightGradientMs = 1e-9;
    stage.updateMs = 3;
    stage.allReduceMs = 4;
    stage.parameterBytes = std::int64_t{1} << 40;
    stage.gradientBytes = 5;
    stage.savedBytes = 6;
    stage.scratchBytes = 7;
    stage.handoverBytes = 8;
    stage.memoryBytes = 8;
    plan.stages.push_back(stage);
  }
  plan.tensors.push_back({"x", 0, 1, 100, false});
  plan.ranks = {{0, {0}, {{0, 0}}}, {1, {1}, {{0, 1}}}, {2, {2}, {{1, 0}}}};
  return plan;
}

/// The first error of reading `text`, as it is printed.
template <class Read>
std::string errorOf(Read read, const std::string& text) {
  Diagnostics diags(nullptr);
  EXPECT_FALSE(read(text, "f.json", diags));
  EXPECT_EQ(diags.all().size(), 1u) << "one error per cause";
  EXPECT_EQ(diags.exitCode(), ExitCode::invalidInput);
  return diags.all().empty() ? "" : diags.all()[0].location.str() + ": " + diags.all()[0].message;
}

/// Of a plan that is good but for one replacement.
std::string planErrorAfter(const std::string& text, const std::string& replacement) {
  std::string json = toJson(samplePlan());
  std::size_t at = json.find(text);
  EXPECT_NE(at, std::string::npos) << "no '" << text << "' in\n" << json;
  if (at != std::string::npos) json.replace(at, text.size(), replacement);
  return errorOf(planFromJson, json);
}

} // namespace

TEST(PlanJson, ReadsBackWhatItWrites) {
  std::string text = toJson(samplePlan());
  Diagnostics diags(nullptr);
  Expected<Plan> plan = planFromJson(text, "plan.json", diags);
  ASSERT_TRUE(plan) << toString(diags.all()[0]);
  EXPECT_EQ(toJson(*plan), text);
  EXPECT_EQ(plan->lowerBoundMs, 1.0 / 3);
  EXPECT_EQ(plan->stages[1].nodeNames[1], "weird \"name\"\n");
  EXPECT_EQ(plan->stages[0].replicas, 2);
  EXPECT_EQ(plan->stages[0].updateMs, 3);
  EXPECT_EQ(plan->stages[0].allReduceMs, 4);
  EXPECT_EQ(plan->stages[0].parameterBytes, std::int64_t{1} << 40);
  EXPECT_EQ(plan->stages[0].gradientBytes, 5);
  EXPECT_EQ(plan->stages[0].savedBytes, 6);
  EXPECT_EQ(plan->stages[0].scratchBytes, 7);
  EXPECT_EQ(plan->stages[0].handoverBytes, 8);
  EXPECT_EQ(plan->stages[0].memoryBytes, 8);
  EXPECT_EQ(plan->ranks[2].hosts[0].stage, 1);
  EXPECT_EQ(plan->cluster.device.cores, 2);
  EXPECT_FALSE(plan->tensors[0].hasGradient);
}

TEST(PlanJson, KeepsGradientsThatTakeOtherWaysThanTheTensorsSay) {
  Plan plan = samplePlan();
  EXPECT_EQ(toJson(plan).find("\"gradients\""), std::string::npos);
  plan.gradients = {{"x.gradient", 1, 0, 100}};
  Diagnostics diags(nullptr);
  const Expected<Plan> back = planFromJson(toJson(plan), "plan.json", diags);
  ASSERT_TRUE(back && back->gradients);
  EXPECT_EQ(toJson(*back), toJson(plan));
  EXPECT_EQ(back->gradients->at(0).from, 1);
  plan.gradients = {{"x.gradient", 0, 1, 100}};
  EXPECT_EQ(errorOf(planFromJson, toJson(plan)),
            "f.json:/gradients/0: expected a gradient that goes to an earlier stage, got one from stage 0 to stage 1");
}

TEST(PlanJson, TellsEachMistakeWithItsPlace) {
  EXPECT_EQ(planErrorAfter("\"replicas\": 2", "\"replicas\": -2"),
            "f.json:/stages/0/replicas: expected an integer from 1 to 1048576, got -2");
  EXPECT_EQ(planErrorAfter("\"replicas\": 2", "\"replicas\": 1.5"),
            "f.json:/stages/0/replicas: expected an integer from 1 to 1048576, got 1.5");
  EXPECT_EQ(planErrorAfter("\"forward_ms\": 0.1", "\"forward_ms\": -0.1"),
            "f.json:/stages/0/forward_ms: expected a number that is not negative, got -0.1");
  EXPECT_EQ(planErrorAfter("\"forward_ms\": 0.1", "\"forward_ms\": \"fast\""),
            "f.json:/stages/0/forward_ms: expected a number that is not negative, got \"fast\"");
  EXPECT_EQ(planErrorAfter("\"forward_ms\": 0.1", "\"forward_ms\": 1e999"),
            "f.json:19:21: expected a number that fits a double, got '1e999'");
  EXPECT_EQ(planErrorAfter("\"forward_ms\": 0.1", "\"forward_s\": 0.1"),
            "f.json:/stages/0/forward_s: unknown key 'forward_s'");
  EXPECT_EQ(planErrorAfter("\"forward_ms\": 0.1,", ""), "f.json:/stages/0: 'forward_ms' is missing");
  EXPECT_EQ(planErrorAfter("\"forward_ms\": 0.1", "\"forward_ms\": 0.1, \"forward_ms\": 0.2"),
            "f.json: the key 'forward_ms' appears twice in one object");
  EXPECT_EQ(planErrorAfter("\"schedule\": \"1f1b\"", "\"schedule\": \"2f2b\""),
            "f.json:/schedule: expected one of " + scheduleNamesText() + ", got '2f2b'");
  EXPECT_EQ(planErrorAfter("\"nodes\": [2, 3]", "\"nodes\": [1, 3]"),
            "f.json:/stages/1/nodes/0: node 1 is in two places, expected one");
  EXPECT_EQ(planErrorAfter("\"from\": 0, \"to\": 1", "\"from\": 1, \"to\": 0"),
            "f.json:/tensors/0: expected a tensor that goes to a later stage, got one from stage 1 to stage 0");
  EXPECT_EQ(planErrorAfter("\"from\": 0, \"to\": 1", "\"from\": 0, \"to\": 2"),
            "f.json:/tensors/0/to: expected an integer from 0 to 1, got 2");
  EXPECT_EQ(planErrorAfter("\"stage\": 1, \"replica\": 0", "\"stage\": 0, \"replica\": 0"),
            "f.json:/ranks/2/hosts/0: replica 0 of stage 0 is hosted twice");
  EXPECT_EQ(planErrorAfter("\"rank\": 1", "\"rank\": 2"), "f.json:/ranks/1/rank: expected rank 1, got 2");
  EXPECT_EQ(planErrorAfter("\"devices\": [1]", "\"devices\": [4]"),
            "f.json:/ranks/1/devices/0: expected an integer from 0 to 3, got 4");
  EXPECT_EQ(planErrorAfter("\"replicas\": 1", "\"replicas\": 2"),
            "f.json:/ranks: the stages have 4 replicas, the ranks host 3");
  EXPECT_EQ(planErrorAfter("\"stages\": [", "\"stages\": 3, \"x\": ["), "f.json:/x: unknown key 'x'");
}

TEST(PlanJson, SyntaxErrorsHaveLineAndColumn) {
  EXPECT_EQ(errorOf(planFromJson, "{\n  \"model\": }"), "f.json:2:12: expected valid JSON here");
  EXPECT_EQ(errorOf(planFromJson, ""), "f.json:1:1: expected valid JSON here");
  EXPECT_EQ(errorOf(planFromJson, "[]"), "f.json:/: expected an object, got an array");
  EXPECT_EQ(errorOf(planFromJson, "{\"model\": \"\xff\"}"), "f.json:1:12: expected valid JSON here");
}

TEST(CostGraphJson, ReadsBackWhatItWrites) {
  CostGraph graph;
  graph.model = "m";
  graph.costSource = "measured";
  graph.nodes.push_back({.name = "a",
                         .forwardMs = 0.5,
                         .inputGradientMs = 1,
                         .weightGradientMs = 2,
                         .updateMs = 3,
                         .parameterBytes = 4,
                         .gradientBytes = 5,
                         .savedBytes = 6,
                         .scratchBytes = 7,
                         .workspaceBytes = 8,
                         .colour = 9,
                         .lateUpdateMs = 11});
  graph.nodes.push_back({.name = "b", .forwardMs = 1});
  graph.tensors.push_back({"t", 0, {1}, 10, false});
  Diagnostics diags(nullptr);
  Expected<CostGraph> back = costGraphFromJson(toJson(graph), "g.json", diags);
  ASSERT_TRUE(back);
  EXPECT_EQ(toJson(*back), toJson(graph));
  EXPECT_EQ(back->nodes[0].colour, 9);
  EXPECT_EQ(back->nodes[0].lateUpdateMs, 11);
  EXPECT_EQ(back->nodes[1].colour, -1);
  EXPECT_EQ(back->nodes[0].workspaceBytes, 8);
  EXPECT_FALSE(back->tensors[0].hasGradient);
}

TEST(CostGraphJson, SaysWhichUsersHaveAPartOfTheGradient) {
  const std::string nodes = R"({"nodes": [{"name": "a", "forward_ms": 1}, {"name": "b", "forward_ms": 1},
      {"name": "c", "forward_ms": 1}], "tensors": [{"from": 0, "to": [1, 2], "bytes": 4)";
  Diagnostics diags(nullptr);
  const auto users = [&](const std::string& rest) {
    const Expected<CostGraph> graph = costGraphFromJson(nodes + rest + "}]}", "g.json", diags);
    EXPECT_TRUE(graph && costGraphFromJson(toJson(*graph), "g.json", diags));
    const auto found = graph->tensors[0].gradientUsers();
    return std::vector<std::int64_t>(found.begin(), found.end());
  };
  EXPECT_EQ(users(""), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(users(R"(, "has_gradient": false)"), std::vector<std::int64_t>());
  EXPECT_EQ(users(R"(, "gradient_from": [2])"), (std::vector<std::int64_t>{2}));
  EXPECT_EQ(users(R"(, "gradient_from": [1, 1, 2])"), (std::vector<std::int64_t>{1, 1, 2}));
  EXPECT_EQ(errorOf(costGraphFromJson, nodes + R"(, "gradient_from": [0]}]})"),
            "f.json:/tensors/0/gradient_from/0: node 0 does not use the tensor, expected one of 'to'");
  EXPECT_EQ(errorOf(costGraphFromJson, nodes + R"(, "gradient_from": [2, 1]}]})"),
            "f.json:/tensors/0/gradient_from/1: expected node 2 or one after it, got 1");
}

/// From the last user to the first, each sum in the earlier of the stages of what is added.
TEST(GradientTrips, AddPartsUpInTheOrderOfTheirUsers) {
  const auto trips = [](const std::vector<int>& stages) { // of the users; the maker is in stage 0
    std::vector<std::int64_t> users;
    for (std::size_t i = 0; i < stages.size(); ++i) users.push_back(static_cast<std::int64_t>(i));
    std::string text;
    forEachGradientTrip(
        0, users, [&](std::int64_t user) { return stages[static_cast<std::size_t>(user)]; },
        [&](int from, int to) { text += std::to_string(from) + ">" + std::to_string(to) + " "; });
    return text;
  };
  EXPECT_EQ(trips({}), "");
  EXPECT_EQ(trips({0, 0}), "");
  EXPECT_EQ(trips({2}), "2>0 ");
  EXPECT_EQ(trips({1, 2}), "2>1 1>0 ");
  EXPECT_EQ(trips({1, 1, 3}), "3>1 1>0 ");
  EXPECT_EQ(trips({2, 1}), "2>1 1>0 ");
  EXPECT_EQ(trips({1, 0, 1}), "1>0 1>0 ");
  EXPECT_EQ(trips({3, 1, 2}), "2>1 3>1 1>0 "); // past stage 2
}

TEST(CostGraphJson, RefusesCyclesAndNonsense) {
  auto graph = [](const std::string& tensors) {
    return R"({"nodes": [{"name": "a", "forward_ms": 1}, {"name": "b", "forward_ms": 2}], "tensors": [)" + tensors +
           "]}";
  };
  EXPECT_EQ(
      errorOf(costGraphFromJson, graph(R"({"from": 0, "to": [1], "bytes": 1}, {"from": 1, "to": [0], "bytes": 1})")),
      "f.json:/tensors/1/to/0: node 0 uses a tensor of node 1, which does not come before it");
  EXPECT_EQ(errorOf(costGraphFromJson, graph(R"({"from": 0, "to": [2], "bytes": 1})")),
            "f.json:/tensors/0/to/0: expected an integer from 0 to 1, got 2");
  EXPECT_EQ(errorOf(costGraphFromJson, graph(R"({"from": 0, "to": 1, "bytes": 1})")),
            "f.json:/tensors/0/to: expected an array, got 1");
  EXPECT_EQ(errorOf(costGraphFromJson, graph(R"({"from": 0, "to": [1], "bytes": -1})")),
            "f.json:/tensors/0/bytes: expected an integer from 0 to 9007199254740992, got -1");
  EXPECT_EQ(errorOf(costGraphFromJson, R"({"nodes": [], "tensors": []})"), "f.json:/nodes: expected at least one node");
}

TEST(ClusterJson, FillsInKnownDevices) {
  Diagnostics diags(nullptr);
  Expected<Cluster> cluster = clusterFromJson(R"({"levels": [{"name": "server", "count": 4,
      "bandwidth_bytes_per_s": 10e9, "latency_s": 5e-6}, {"name": "rack", "count": 2, "bandwidth_bytes_per_s": 1.25e9}],
      "device": {"name": "V100-16GB", "memory_bytes": 15e9, "flops": {"f32": 14e12, "bf16": null}, "cores": null}})",
                                              "c.json", diags);
  ASSERT_TRUE(cluster);
  EXPECT_EQ(cluster->deviceCount(), 8);
  EXPECT_EQ(cluster->device.memoryBytes, 15'000'000'000);
  EXPECT_EQ(cluster->device.f32Flops, 14e12);
  EXPECT_EQ(cluster->device.memoryBandwidthBytesPerS, 900e9);
  EXPECT_EQ(cluster->device.cores, 0);
  Expected<Cluster> back = clusterFromJson(toJson(*cluster), "c.json", diags);
  ASSERT_TRUE(back);
  EXPECT_EQ(toJson(*back), toJson(*cluster));
}

TEST(ClusterJson, TellsMistakes) {
  auto cluster = [](const std::string& level, const std::string& device) {
    return "{\"levels\": [" + level + "], \"device\": {" + device + "}}";
  };
  EXPECT_EQ(errorOf(clusterFromJson, cluster("", R"("name": "cpu")")), "f.json:/levels: expected at least one level");
  EXPECT_EQ(errorOf(clusterFromJson, cluster(R"({"count": 2, "bandwidth_bytes_per_s": 0})", R"("name": "cpu")")),
            "f.json:/levels/0: expected a bandwidth above 0 between 2 components, got 0");
  const std::string level = R"({"count": 2, "bandwidth_bytes_per_s": 1})";
  EXPECT_EQ(errorOf(clusterFromJson, cluster(level, R"("name": "abacus")")),
            "f.json:/device: 'memory_bytes' is missing");
  EXPECT_EQ(errorOf(clusterFromJson, cluster(level, R"("name": "cpu", "speed": 0)")),
            "f.json:/device/speed: expected a speed above 0");
  EXPECT_EQ(errorOf(clusterFromJson, cluster(level, R"("name": "cpu", "memory_bytes": 1, "reserved_bytes": 2)")),
            "f.json:/device: reserved_bytes 2 exceed memory_bytes 1");
  EXPECT_EQ(errorOf(clusterFromJson, cluster(R"({"count": 1048577, "bandwidth_bytes_per_s": 1})", R"("name": "cpu")")),
            "f.json:/levels/0/count: expected an integer from 1 to 1048576, got 1048577");
}

TEST(ClusterJson, HasWhatTeamsTake) {
  Diagnostics diags(nullptr);
  Expected<Cluster> cluster = clusterFromJson(R"({"levels": [{"name": "server", "count": 4,
      "bandwidth_bytes_per_s": 10e9, "team_sums": [{"members": 2, "latency_s": 3e-5, "bandwidth_bytes_per_s": 5e9},
      {"members": 4, "latency_s": 6e-5, "bandwidth_bytes_per_s": 3e9}]}], "device": {"name": "cpu"}})",
                                              "c.json", diags);
  ASSERT_TRUE(cluster);
  ASSERT_EQ(cluster->levels[0].teamSums.size(), 2u);
  EXPECT_EQ(cluster->levels[0].teamSums[1].members, 4);
  EXPECT_EQ(cluster->levels[0].teamSums[1].latencyS, 6e-5);
  EXPECT_EQ(cluster->levels[0].teamSums[1].bandwidthBytesPerS, 3e9);
  EXPECT_TRUE(cluster->levels[0].teamExchanges.empty());
  cluster->levels[0].teamExchanges = {{2, 1e-5, 7e9}};
  Expected<Cluster> back = clusterFromJson(toJson(*cluster), "c.json", diags);
  ASSERT_TRUE(back);
  EXPECT_EQ(toJson(*back), toJson(*cluster));
  EXPECT_EQ(back->levels[0].teamExchanges[0].bandwidthBytesPerS, 7e9);
}

TEST(ClusterJson, TellsMistakesInWhatTeamsTake) {
  const auto error = [](const std::string& records, const char* key = "team_sums") {
    return errorOf(clusterFromJson, R"({"levels": [{"count": 2, "bandwidth_bytes_per_s": 1, ")" + std::string(key) +
                                        "\": [" + records + R"(]}], "device": {"name": "cpu"}})");
  };
  const auto record = [](const std::string& members, const std::string& latency, const std::string& bandwidth) {
    return "{\"members\": " + members + ", \"latency_s\": " + latency + ", \"bandwidth_bytes_per_s\": " + bandwidth +
           "}";
  };
  EXPECT_EQ(error(record("1", "0", "1")),
            "f.json:/levels/0/team_sums/0/members: expected an integer from 2 to 65536, got 1");
  EXPECT_EQ(error(record("2", "-1", "1")),
            "f.json:/levels/0/team_sums/0/latency_s: expected a number that is not negative, got -1");
  EXPECT_EQ(error(record("2", "0", "-1"), "team_exchanges"),
            "f.json:/levels/0/team_exchanges/0/bandwidth_bytes_per_s: expected a number that is not negative, got -1");
  EXPECT_EQ(error(record("2", "0", "0")),
            "f.json:/levels/0/team_sums/0/bandwidth_bytes_per_s: expected a bandwidth above 0, got 0");
  EXPECT_EQ(error(record("4", "0", "1") + ", " + record("2", "0", "1")),
            "f.json:/levels/0/team_sums/1/members: a team of 2 comes behind one of 4");
  EXPECT_EQ(error(R"({"members": 2, "latency_s": 0})"),
            "f.json:/levels/0/team_sums/0: 'bandwidth_bytes_per_s' is missing");
  EXPECT_EQ(error(R"({"members": 2, "latency_s": 0, "bandwidth_bytes_per_s": 1, "latency_ms": 1})"),
            "f.json:/levels/0/team_sums/0/latency_ms: unknown key 'latency_ms'");
}

TEST(Cluster, KnowsUsualDevices) {
  Diagnostics diags(nullptr);
  for (const char* name : {"cpu", "V100-16GB", "A100-80GB", "H100", "H200"}) {
    Expected<Cluster> cluster = flatCluster(3, name, diags);
    ASSERT_TRUE(cluster) << name;
    EXPECT_EQ(cluster->deviceCount(), 3);
    EXPECT_GT(cluster->device.memoryBytes, cluster->device.reservedBytes);
    EXPECT_GT(cluster->device.f32Flops, 0);
  }
  EXPECT_FALSE(flatCluster(3, "abacus", diags));
  EXPECT_EQ(diags.all()[0].message, "no device named 'abacus' is known");
  EXPECT_FALSE(flatCluster(0, "cpu", diags));
}
