// LINK: pdcSchedule
// Fields of plans, cost graphs and clusters that few of them have: written only where they say something, read back,
// and refused where they contradict the rest.
#include "pdc/Plan/CostGraph.h"
#include "pdc/Plan/Plan.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

using namespace pdc;

namespace {

template <class Read>
std::string errorOf(Read read, const std::string& text) {
  Diagnostics diags(nullptr);
  EXPECT_FALSE(read(text, "f.json", diags)) << text;
  EXPECT_EQ(diags.all().size(), 1u) << "one error per cause";
  EXPECT_EQ(diags.exitCode(), ExitCode::invalidInput);
  if (diags.all().empty()) return "";
  const Diagnostic& first = diags.all()[0];
  return first.location.str() + ": " + first.message + (first.helps.empty() ? "" : " | " + first.helps[0]);
}

/// `text` with the first `part` replaced.
std::string with(std::string text, const std::string& part, const std::string& replacement) {
  const std::size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << "no '" << part << "' in\n" << text;
  return at == std::string::npos ? text : text.replace(at, part.size(), replacement);
}

/// Two stages on 4 × 2 devices, every optional field in use.
Plan hierarchicalPlan() {
  Plan plan;
  plan.costModel = "sosp19";
  plan.scheduleFile = "mine.csv";
  plan.timeMs = 3;
  plan.lowerBoundMs = 2.5;
  plan.optimal = true;
  plan.cluster.levels = {{"server", 4, 1e9, 0}, {"rack", 2, 1e8, 1e-5}};
  DeviceKind big{.name = "big",
                 .memoryBytes = 100,
                 .reservedBytes = 1,
                 .speed = 2,
                 .f32Flops = 3,
                 .memoryBandwidthBytesPerS = 4,
                 .cores = 5};
  DeviceKind small{.name = "small", .memoryBytes = 50};
  plan.cluster.devices = {{big, 6}, {small, 2}};
  plan.cluster.device = big;
  plan.stages.resize(2);
  plan.stages[0].nodes = {0, 2};
  plan.stages[0].replicas = 6;
  plan.stages[0].nest = {{0, 2}, {1, 3}};
  plan.stages[0].recompute = true;
  plan.stages[0].sharding = pdcrt::Sharding::optimizer;
  plan.stages[0].allReduceMs = 2;
  plan.stages[0].inputGradientMs = 4;
  plan.stages[0].allReduceCoreMs = 0.25;
  plan.stages[0].exposedSyncMs = 1.53125;
  plan.stages[0].buckets = {{.bytes = 30, .final = 0.5}, {.bytes = 90, .final = 1}};
  plan.stages[1].nodes = {1};
  plan.stages[1].nest = {{1, 1}, {0, 1}};
  plan.stages[1].tensorParallel = 4;
  plan.stages[1].split = {.members = 2, .all = true};
  plan.stages[1].choices = {"vanilla"};
  plan.stages[1].device = "accelerator";
  plan.sharedParameters = {{"embedding", 64, {0, 1}, {1, 2}}};
  return plan;
}

std::string planErrorAfter(const std::string& part, const std::string& replacement) {
  return errorOf(planFromJson, with(toJson(hierarchicalPlan()), part, replacement));
}

std::string graphText(const std::string& more, const std::string& node = R"({"name": "c", "forward_ms": 1})") {
  return R"({"nodes": [{"name": "a", "forward_ms": 1}, {"name": "b", "forward_ms": 2}, )" + node +
         R"(], "tensors": [{"from": 0, "to": [1, 2], "bytes": 1}])" + more + "}";
}

std::string clusterText(const std::string& devices) {
  return R"({"levels": [{"count": 4, "bandwidth_bytes_per_s": 1e9}, {"count": 2, "bandwidth_bytes_per_s": 1e8}], )" +
         devices + "}";
}

} // namespace

TEST(PlanFields, ReadBackAsWritten) {
  const std::string text = toJson(hierarchicalPlan());
  Diagnostics diags(nullptr);
  Expected<Plan> plan = planFromJson(text, "plan.json", diags);
  ASSERT_TRUE(plan) << toString(diags.all()[0]);
  EXPECT_EQ(toJson(*plan), text);
  EXPECT_EQ(plan->costModel, "sosp19");
  EXPECT_EQ(plan->scheduleFile, "mine.csv");
  EXPECT_TRUE(plan->optimal);
  EXPECT_EQ(plan->gap(), 3 / 2.5 - 1);
  EXPECT_TRUE(plan->stages[0].recompute);
  EXPECT_EQ(plan->stages[0].sharding, pdcrt::Sharding::optimizer);
  EXPECT_EQ(plan->stages[1].sharding, pdcrt::Sharding::none);
  EXPECT_EQ(plan->stages[0].allReduceCoreMs, 0.25);
  EXPECT_EQ(plan->stages[0].exposedSyncMs, 1.53125);
  ASSERT_EQ(plan->stages[0].buckets.size(), 2u);
  EXPECT_EQ(plan->stages[0].buckets[1].bytes, 90);
  EXPECT_EQ(plan->stages[0].buckets[0].final, 0.5);
  ASSERT_EQ(plan->stages[0].nest.size(), 2u);
  EXPECT_EQ(plan->stages[0].nest[1].stage, 1);
  EXPECT_EQ(plan->stages[0].nest[1].replicas, 3);
  EXPECT_EQ(plan->stages[1].tensorParallel, 4);
  EXPECT_EQ(plan->stages[0].split, TeamSplit{});
  EXPECT_EQ(plan->stages[1].split, (TeamSplit{.members = 2, .all = true}));
  EXPECT_EQ(plan->stages[1].choices, std::vector<std::string>{"vanilla"});
  EXPECT_EQ(plan->stages[1].device, "accelerator");
  ASSERT_EQ(plan->sharedParameters.size(), 1u);
  EXPECT_EQ(plan->sharedParameters[0].bytes, 64);
  EXPECT_EQ(plan->sharedParameters[0].stages, (std::vector<int>{0, 1}));
  EXPECT_EQ(plan->sharedParameters[0].uses, (std::vector<int>{1, 2}));
  ASSERT_EQ(plan->cluster.devices.size(), 2u);
  EXPECT_EQ(plan->cluster.deviceAt(5).name, "big");
  EXPECT_EQ(plan->cluster.deviceAt(6).memoryBytes, 50);
}

TEST(PlanFields, ShardsNeedReplicas) {
  EXPECT_EQ(planErrorAfter("\"split\": \"tp:2,all\"", "\"split\": \"tp:2,all\", \"shard\": \"optimizer\""),
            "f.json:/stages/1/shard: expected \"none\", because the stage has 1 replica, got \"optimizer\"");
}

TEST(PlanFields, AreLeftOutWhereTheySayNothing) {
  Plan plan;
  plan.timeMs = plan.lowerBoundMs = 1;
  plan.cluster.levels = {{"machine", 1, 1, 0}};
  plan.cluster.device = {.name = "cpu"};
  plan.stages.resize(1);
  const std::string text = toJson(plan);
  for (const char* key : {"optimal", "gap", "cost_model", "schedule_file", "shared_parameters", "recompute",
                          "tensor_parallel", "exposed_sync_ms", "buckets", "\"devices\": [{", "choices", "nest"})
    EXPECT_EQ(text.find(key), std::string::npos) << key << " in\n" << text;
}

TEST(PlanFields, RoundingBelowTheBoundIsNoGap) {
  Plan plan = hierarchicalPlan();
  plan.timeMs = plan.lowerBoundMs * (1 - 1e-12);
  plan.cluster.devices[0].device.memoryBytes = INT64_MAX; // no limit
  Diagnostics diags(nullptr);
  EXPECT_EQ(toJson(plan).find("gap"), std::string::npos);
  EXPECT_TRUE(planFromJson(toJson(plan), "plan.json", diags));
}

TEST(PlanFields, PlansOfOtherCostModelsNeedNoRanks) {
  Plan plan = hierarchicalPlan();
  Diagnostics diags(nullptr);
  EXPECT_TRUE(planFromJson(toJson(plan), "plan.json", diags));
  plan.costModel = "piper";
  plan.cluster = {};
  EXPECT_TRUE(planFromJson(toJson(plan), "plan.json", diags)) << "nor places for their devices";
  plan.costModel = "sosp19";
  EXPECT_EQ(errorOf(planFromJson, toJson(plan)), "f.json:/: 'cluster' is missing | add \"cluster\"");
  plan = hierarchicalPlan();
  plan.costModel = "pdc";
  EXPECT_EQ(errorOf(planFromJson, toJson(plan)), "f.json:/ranks: the stages have 7 replicas, the ranks host 0 | every "
                                                 "replica of every stage needs a rank that hosts it");
}

TEST(PlanFields, ContradictionsAreToldWithTheirPlace) {
  EXPECT_EQ(planErrorAfter("\"time_ms\": 3", "\"time_ms\": 2"),
            "f.json:/lower_bound_ms: expected at most time_ms, 2, got 2.5");
  EXPECT_EQ(planErrorAfter("\"sosp19\"", "\"sosp\""),
            "f.json:/cost_model: expected one of 'pdc', 'sosp19', 'pipedream-2018', 'pipedream-code', "
            "'dnn-partitioning', 'piper', got \"sosp\"");
  EXPECT_EQ(planErrorAfter("\"optimal\": true", "\"optimal\": 1"), "f.json:/optimal: expected true or false, got 1");
  EXPECT_EQ(planErrorAfter("\"replicas\": 3}", "\"replicas\": 4}"),
            "f.json:/stages/0/nest: the replicas of its levels multiply to 8, the stage has 6");
  EXPECT_EQ(planErrorAfter("\"replicas\": 3}", "\"replicas\": 1000000}"),
            "f.json:/stages/0/nest/1/replicas: expected an integer from 1 to 524288, got 1000000");
  EXPECT_EQ(planErrorAfter("[\"vanilla\"]", "[\"a\", \"b\"]"),
            "f.json:/stages/1/choices: expected one choice for each of 1 nodes, got 2");
  EXPECT_EQ(planErrorAfter("\"tensor_parallel\": 4", "\"tensor_parallel\": 0"),
            "f.json:/stages/1/tensor_parallel: expected an integer from 1 to 1048576, got 0");
  EXPECT_EQ(planErrorAfter("\"final\": 0.5", "\"final\": 1.5"),
            "f.json:/stages/0/buckets/0/final: expected a part of the backward, at most 1, got 1.5");
  EXPECT_EQ(planErrorAfter("\"recompute\": true", "\"recompute\": \"yes\""),
            "f.json:/stages/0/recompute: expected true or false, got \"yes\"");
  EXPECT_EQ(planErrorAfter("\"recompute\"", "\"recomputed\""),
            "f.json:/stages/0/recomputed: unknown key 'recomputed' | did you mean 'recompute'?");
  EXPECT_EQ(planErrorAfter("\"stages\": [0, 1]", "\"stages\": [1, 0]"),
            "f.json:/shared_parameters/0/stages/1: expected a stage after stage 1, got 0");
  EXPECT_EQ(planErrorAfter("\"uses\": [1, 2]", "\"uses\": [1]"),
            "f.json:/shared_parameters/0: expected at least one stage and its uses, got 2 stages and uses of 1");
}

TEST(CostGraphFields, SharedParametersReadBack) {
  Diagnostics diags(nullptr);
  Expected<CostGraph> graph = costGraphFromJson(
      graphText(R"(, "shared_parameters": [{"name": "w", "nodes": [0, 2], "bytes": 8}])"), "f", diags);
  ASSERT_TRUE(graph) << toString(diags.all()[0]);
  ASSERT_EQ(graph->sharedParameters.size(), 1u);
  EXPECT_EQ(graph->sharedParameters[0].nodes, (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(graph->sharedParameters[0].bytes, 8);
  Expected<CostGraph> again = costGraphFromJson(toJson(*graph), "f", diags);
  ASSERT_TRUE(again);
  EXPECT_EQ(toJson(*again), toJson(*graph));
  graph->sharedParameters.clear();
  EXPECT_EQ(toJson(*graph).find("shared_parameters"), std::string::npos);
}

TEST(CostGraphFields, MistakesAreToldWithTheirPlace) {
  auto sharedError = [](const char* nodes) {
    return errorOf(
        costGraphFromJson,
        graphText(std::string(R"(, "shared_parameters": [{"name": "w", "bytes": 8, "nodes": )") + nodes + "}]"));
  };
  EXPECT_EQ(sharedError("[]"), "f.json:/shared_parameters/0/nodes: expected at least one node that uses 'w'");
  EXPECT_EQ(sharedError("[2, 2]"), "f.json:/shared_parameters/0/nodes/1: expected a node after node 2, got 2");
  EXPECT_EQ(sharedError("[3]"), "f.json:/shared_parameters/0/nodes/0: expected an integer from 0 to 2, got 3");
  EXPECT_EQ(errorOf(costGraphFromJson, with(graphText(""), "[1, 2]", "[1, 1]")),
            "f.json:/tensors/0/to/1: node 1 is listed twice, expected every user once");
  auto nodeError = [](const char* node) { return errorOf(costGraphFromJson, graphText("", node)); };
  EXPECT_EQ(nodeError(R"({"name": "c", "forward_ms": -1})"),
            "f.json:/nodes/2/forward_ms: expected a number that is not negative, got -1");
  EXPECT_EQ(nodeError(R"({"name": "c"})"), "f.json:/nodes/2: 'forward_ms' is missing | add \"forward_ms\"");
  EXPECT_EQ(nodeError(R"({"name": "c", "forward_ms": 1, "parameters_bytes": 1})"),
            "f.json:/nodes/2/parameters_bytes: unknown key 'parameters_bytes' | did you mean 'parameter_bytes'?");
  EXPECT_EQ(nodeError(R"({"name": "c", "forward_ms": 1, "saved_bytes": 1.5})"),
            "f.json:/nodes/2/saved_bytes: expected an integer from 0 to 9007199254740992, got 1.5");
  EXPECT_EQ(
      nodeError(R"({"name": "c", "forward_ms": 1, "saved_bytes": 5e15, "parameter_bytes": 5e15})"),
      "f.json:/nodes: expected sizes that add up to at most 2^53 bytes, got 1.5e+16 | sizes are in bytes, not bits");
  EXPECT_EQ(nodeError(R"({"name": "c", "forward_ms": 1e308, "update_ms": 1e308})"),
            "f.json:/nodes: expected times with a finite sum, got more than a double holds");
  EXPECT_EQ(nodeError(R"({"name": "c", "forward_ms": 1, "colour": -1})"),
            "f.json:/nodes/2/colour: expected an integer from 0 to 9223372036854775807, got -1");
}

TEST(ClusterFields, UnequalDevicesFillTheLeavesInOrder) {
  Diagnostics diags(nullptr);
  Expected<Cluster> cluster = clusterFromJson(
      clusterText(R"("devices": [{"name": "H100", "count": 3}, {"name": "V100-16GB", "count": 5, "speed": 0.2}])"), "f",
      diags);
  ASSERT_TRUE(cluster) << toString(diags.all()[0]);
  EXPECT_EQ(cluster->deviceAt(0).name, "H100");
  EXPECT_EQ(cluster->deviceAt(2).name, "H100");
  EXPECT_EQ(cluster->deviceAt(3).speed, 0.2);
  EXPECT_EQ(cluster->deviceAt(7).memoryBytes, 16'000'000'000);
  Expected<Cluster> again = clusterFromJson(toJson(*cluster), "f", diags);
  ASSERT_TRUE(again);
  EXPECT_EQ(toJson(*again), toJson(*cluster));
}

TEST(ClusterFields, ACoreThatMovesBytesIsReadBackAsWritten) {
  Diagnostics diags(nullptr);
  Expected<Cluster> cluster =
      clusterFromJson(clusterText(R"("device": {"name": "cpu", "core_s_per_byte": 5e-10})"), "f", diags);
  ASSERT_TRUE(cluster) << toString(diags.all()[0]);
  EXPECT_EQ(cluster->deviceAt(7).coreSPerByte, 5e-10);
  Expected<Cluster> again = clusterFromJson(toJson(*cluster), "f", diags);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->deviceAt(0).coreSPerByte, 5e-10);
}

TEST(ClusterFields, MistakesAreToldWithTheirPlace) {
  EXPECT_EQ(
      errorOf(clusterFromJson, clusterText(R"("devices": [{"name": "cpu", "count": 3, "core_s_per_byte": 5e-10}, )"
                                           R"({"name": "cpu", "count": 5}])")),
      "f.json:/devices/1: core_s_per_byte is 0, that of the first device is 5e-10 | give all devices the same, or "
      "none any");
  EXPECT_EQ(
      errorOf(clusterFromJson, clusterText(R"("devices": [{"name": "H100", "count": 3}])")),
      "f.json:/devices: the levels have 8 devices, their kinds are given for 3 | the counts of \"devices\" add up "
      "to the product of the counts of \"levels\"");
  EXPECT_EQ(errorOf(clusterFromJson, clusterText(R"("devices": [{"name": "H100"}])")),
            "f.json:/devices/0: 'count' is missing | add \"count\"");
  EXPECT_EQ(errorOf(clusterFromJson, clusterText(R"("device": {"name": "H100"}, "devices": [])")),
            "f.json:/device: expected one of them, got both | give \"device\" if all are equal, \"devices\" if not");
  EXPECT_EQ(errorOf(clusterFromJson, clusterText(R"("device": {"name": "H100", "count": 8})")),
            "f.json:/device/count: the levels say how many devices there are | only \"devices\" have counts");
  EXPECT_EQ(
      errorOf(clusterFromJson, with(clusterText(R"("device": {"name": "H100"})"), "\"count\": 2", "\"count\": 1e6")),
      "f.json:/levels/1/count: expected an integer from 1 to 262144, got 1000000.0");
}
