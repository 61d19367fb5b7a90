// LINK: pdcPublished
// Other people's formats: every published file is read as its authors read it (counts and sums taken from the files
// with an independent script), and every mistake is told with its place.
#include "pdc/Published/DnnPartitioning.h"
#include "pdc/Published/PipedreamProfile.h"
#include "pdc/Published/Piper.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

using namespace pdc;

namespace {

/// The text of a file below ../shared/data; empty where it is absent.
std::string dataText(const std::string& name) {
  std::ifstream file(PDC_SOURCE_DIR "/../shared/data/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

#define PDC_READ_OR_SKIP(text, name)                                                                                   \
  const std::string text = dataText(name);                                                                             \
  if (text.empty()) GTEST_SKIP() << "no ../shared/data/" << name

/// The first error of reading `text`, as it is printed; its help follows after " | ".
template <class Read>
std::string errorOf(Read read, const std::string& text) {
  Diagnostics diags(nullptr);
  EXPECT_FALSE(read(text, "f", diags));
  EXPECT_EQ(diags.all().size(), 1u) << "one error per cause";
  EXPECT_EQ(diags.exitCode(), ExitCode::invalidInput);
  if (diags.all().empty()) return "";
  const Diagnostic& first = diags.all()[0];
  return first.location.str() + ": " + first.message + (first.helps.empty() ? "" : " | " + first.helps[0]);
}

/// `text` with the first `part` replaced.
std::string with(std::string text, const std::string& part, const std::string& replacement) {
  const std::size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << "no '" << part << "'";
  return at == std::string::npos ? text : text.replace(at, part.size(), replacement);
}

struct ProfileFacts {
  const char* model;
  std::size_t nodes, edges;
  double computeMs;
  std::int64_t activationBytes, parameterBytes;
  const char* first;
};

class Profile : public testing::TestWithParam<ProfileFacts> {};

struct PlacementFacts {
  const char* file;
  std::size_t nodes, edges, colours;
  double time, cost;
  std::int64_t backward;
};

class Placement : public testing::TestWithParam<PlacementFacts> {};

} // namespace

TEST_P(Profile, IsReadAsItsAuthorsReadIt) {
  const ProfileFacts& facts = GetParam();
  PDC_READ_OR_SKIP(text, std::string("pipedream-profiles/") + facts.model + "/graph.txt");
  Diagnostics diags(nullptr);
  Expected<CostGraph> graph = pipedreamProfileFromText(text, "graph.txt", diags);
  ASSERT_TRUE(graph) << toString(diags.all()[0]);
  EXPECT_EQ(graph->nodes.size(), facts.nodes);
  EXPECT_EQ(graph->nodes[0].name.substr(0, graph->nodes[0].name.find(' ')), facts.first);
  double computeMs = 0;
  std::int64_t activationBytes = 0, parameterBytes = 0;
  for (const CostNode& node : graph->nodes) {
    computeMs += node.forwardMs + node.inputGradientMs + node.weightGradientMs;
    activationBytes += node.savedBytes;
    parameterBytes += node.parameterBytes;
    EXPECT_EQ(node.inputGradientMs, node.weightGradientMs);
    EXPECT_EQ(node.gradientBytes, node.parameterBytes);
  }
  EXPECT_NEAR(computeMs, facts.computeMs, 1e-9);
  EXPECT_EQ(activationBytes, facts.activationBytes);
  EXPECT_EQ(parameterBytes, facts.parameterBytes);
  std::size_t edges = 0;
  for (const CostTensor& tensor : graph->tensors) {
    edges += tensor.to.size();
    EXPECT_EQ(tensor.bytes, graph->nodes[static_cast<std::size_t>(tensor.from)].savedBytes);
    for (std::int64_t to : tensor.to) EXPECT_LT(tensor.from, to) << "program order is topological";
  }
  EXPECT_EQ(edges, facts.edges);
}

INSTANTIATE_TEST_SUITE_P(Published, Profile,
                         testing::Values(ProfileFacts{"alexnet", 22, 22, 85.321, 1124573188, 244403360, "node2"},
                                         ProfileFacts{"gnmt", 37, 46, 89.416, 402081792, 775063808, "node4"},
                                         ProfileFacts{"inception_v3", 325, 361, 689.038, 16549453832, 108645056,
                                                      "node2"},
                                         ProfileFacts{"resnet18", 70, 78, 259.742, 8428429316, 46758048, "node2"},
                                         ProfileFacts{"resnet50", 176, 192, 443.419, 19231657988, 102228128, "node2"},
                                         ProfileFacts{"vgg16", 40, 40, 672.535, 14682148868, 553430176, "node2"}),
                         [](const auto& tested) { return std::string(tested.param.model); });

TEST_P(Placement, IsReadAsItsAuthorsReadIt) {
  const PlacementFacts& facts = GetParam();
  PDC_READ_OR_SKIP(text, std::string("dnn-partitioning/") + facts.file + ".json");
  Diagnostics diags(nullptr);
  Expected<DnnPartitioningProblem> problem = dnnPartitioningFromJson(text, "p.json", diags);
  ASSERT_TRUE(problem) << toString(diags.all()[0]);
  EXPECT_EQ(problem->nodes.size(), facts.nodes);
  EXPECT_EQ(problem->edges.size(), facts.edges);
  EXPECT_EQ(problem->cpus, 1);
  EXPECT_EQ(problem->acceleratorMemory, 17185374208.0);
  double time = 0, cost = 0;
  std::int64_t backward = 0, colours = 0;
  for (const DnnPartitioningNode& node : problem->nodes) {
    EXPECT_TRUE(node.onAccelerator);
    time += node.acceleratorTime;
    backward += node.isBackward;
    colours = std::max(colours, node.colour + 1);
  }
  for (const DnnPartitioningEdge& edge : problem->edges) cost += edge.cost;
  EXPECT_NEAR(time, facts.time, 1e-9);
  EXPECT_NEAR(cost, facts.cost, 1e-8);
  EXPECT_EQ(backward, facts.backward);
  EXPECT_EQ(static_cast<std::size_t>(colours), facts.colours);
}

INSTANTIATE_TEST_SUITE_P(
    Published, Placement,
    testing::Values(
        PlacementFacts{"layer/bert24_inference", 32, 55, 32, 92.406, 0.16721726953983307, 0},
        PlacementFacts{"layer/bert24_training", 64, 110, 32, 217.813, 0.33443453907966614, 32},
        PlacementFacts{"layer/gnmt_inference", 96, 122, 96, 182.563, 0.6343851089477539, 0},
        PlacementFacts{"layer/gnmt_training", 192, 244, 96, 520.453, 1.2687702178955078, 96},
        PlacementFacts{"layer/resnet50_inference", 177, 193, 177, 201.45, 10.331420900300145, 0},
        PlacementFacts{"layer/resnet50_training", 354, 386, 177, 462.381, 20.66284180060029, 177},
        PlacementFacts{"operator/bert_l-3_inference", 235, 250, 117, 49.352568946342295, 574.4217995670624, 0},
        PlacementFacts{"operator/bert_l-3_training", 600, 817, 121, 122.98722384592422, 2546.6624766704626, 365}),
    [](const auto& tested) {
      std::string name = tested.param.file;
      for (char& c : name)
        if (c == '/' || c == '-') c = '_';
      return name;
    });

TEST(PiperProblem, IsReadAsItsAuthorsReadIt) {
  PDC_READ_OR_SKIP(text, "piper/bert32a100.json");
  Diagnostics diags(nullptr);
  Expected<PiperProblem> problem = piperFromJson(text, "p.json", diags);
  ASSERT_TRUE(problem) << toString(diags.all()[0]);
  EXPECT_EQ(problem->devices, 10);
  EXPECT_EQ(problem->memoryBytes, 80e9);
  EXPECT_EQ(problem->bandwidth, 25e9);
  EXPECT_EQ(problem->microbatches, 1920);
  ASSERT_EQ(problem->nodes.size(), 37u);
  EXPECT_EQ(problem->edges.size(), 67u);
  double bytes = 0;
  for (const PiperEdge& edge : problem->edges) bytes += edge.bytes;
  EXPECT_EQ(bytes, 1574977536.0);
  for (const PiperNode& node : problem->nodes) {
    ASSERT_EQ(node.choices.size(), 4u);
    EXPECT_EQ(node.choices.rbegin()->first, 8);
  }
  const std::vector<PiperChoice>& choices = problem->nodes[3].choices.at(2);
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[1].id, "activation recomp");
  EXPECT_EQ(choices[1].time, 0.024891);
  EXPECT_EQ(choices[1].parameterBytes, 88510080);
  EXPECT_EQ(choices[1].memoryA, 48234496);
  EXPECT_EQ(choices[1].memoryB, 470367488);
  EXPECT_EQ(choices[1].syncForward, (std::map<std::int64_t, double>{{1, 31457280.0}, {4, 16777216.0}}));
  EXPECT_EQ(choices[1].syncBackward, (std::map<std::int64_t, double>{{5, 31457280.0}}));
}

// ---------------------------------------------------------------------------------------------------------------------
// graph.txt

static const char* const costs = "forward_compute_time=1, backward_compute_time=2, activation_size=3, parameter_size=4";

static std::string profile(const std::string& edges, const std::string& secondCosts = costs) {
  return std::string("node1 -- Linear(3, 4) -- ") + costs + "\nnode2 -- ReLU -- " + secondCosts + "\n" + edges;
}

static CostGraph readProfile(const std::string& text) {
  Diagnostics diags(nullptr);
  Expected<CostGraph> graph = pipedreamProfileFromText(text, "f", diags);
  EXPECT_TRUE(graph) << toString(diags.all()[0]);
  return graph ? *graph : CostGraph{};
}

TEST(ProfileText, KeepsTheFileOrderUnlessAnEdgeForbidsIt) {
  CostGraph forward = readProfile(profile("\tnode1 -- node2\n"));
  EXPECT_EQ(forward.nodes[0].name, "node1 Linear(3, 4)");
  ASSERT_EQ(forward.tensors.size(), 1u);
  EXPECT_EQ(forward.tensors[0].name, "node1");
  EXPECT_TRUE(forward.tensors[0].hasGradient);
  CostGraph backward = readProfile(profile("\tnode2 -- node1\r\n\n"));
  EXPECT_EQ(backward.nodes[0].name, "node2 ReLU");
}

TEST(ProfileText, DropsInputsAndTupleElementsAtTheEndsOnly) {
  const std::string text = std::string("node0 -- Input0 -- ") + costs + "\nnode1 -- __getitem__(0) -- " + costs +
                           "\nnode2 -- Input -- " + costs + "\nnode3 -- __getitem__(1) -- " + costs +
                           " -- stage_id=7\n\tnode0 -- node1\n\tnode1 -- node2\n\tnode2 -- node3\n";
  CostGraph graph = readProfile(text);
  ASSERT_EQ(graph.nodes.size(), 2u) << "an inner __getitem__ and an inner Input stay";
  EXPECT_EQ(graph.nodes[0].name, "node1 __getitem__(0)");
  ASSERT_EQ(graph.tensors.size(), 1u);
  EXPECT_EQ(graph.tensors[0].to, std::vector<std::int64_t>{1});
}

TEST(ProfileText, AddsListsAndJoinsRepeatedEdges) {
  CostGraph graph = readProfile(profile("\tnode1 -- node2\n\tnode1 -- node2\n", with(costs, "=3", "=[3.0; 5; 7.000]")));
  EXPECT_EQ(graph.nodes[1].savedBytes, 15);
  EXPECT_EQ(graph.tensors[0].to.size(), 1u);
}

TEST(ProfileText, LinesThatAreWrongAreToldByNumber) {
  auto costsWith = [&](const char* part, const char* replacement) {
    return errorOf(pipedreamProfileFromText, profile("", with(costs, part, replacement)));
  };
  EXPECT_EQ(costsWith("time=1", "time=-1"),
            "f:2:1: expected forward_compute_time to be a finite number that is not negative, got '-1'");
  EXPECT_EQ(costsWith("time=2", "time=nan"),
            "f:2:1: expected backward_compute_time to be a finite number that is not negative, got 'nan'");
  EXPECT_EQ(costsWith("time=2", "time=1e999"),
            "f:2:1: expected backward_compute_time to be a finite number that is not negative, got '1e999'");
  EXPECT_EQ(costsWith("=3", "=inf"),
            "f:2:1: expected activation_size to be a finite number that is not negative, got 'inf'");
  EXPECT_EQ(costsWith("=3", "=[1; ]"),
            "f:2:1: expected activation_size to be a finite number that is not negative, got ''");
  EXPECT_EQ(costsWith("=4", "=0.5"), "f:2:1: expected parameter_size to be a whole number of bytes, got 0.5");
  EXPECT_EQ(costsWith("=4", "=1e300"), "f:2:1: expected parameter_size of at most 2^53 bytes, got 1e300");
  EXPECT_EQ(costsWith(", parameter_size=4", ""),
            "f:2:1: expected 4 fields, got 3 | a node has forward_compute_time, backward_compute_time, activation_size "
            "and parameter_size");
  EXPECT_EQ(costsWith("parameter_size", "parameters_size"),
            "f:2:1: unknown field 'parameters_size' | did you mean 'parameter_size'?");
  EXPECT_EQ(costsWith("parameter_size", "colour"),
            "f:2:1: unknown field 'colour' | known here: forward_compute_time, backward_compute_time, activation_size, "
            "parameter_size");
  EXPECT_EQ(costsWith("parameter_size", "activation_size"), "f:2:1: the field 'activation_size' appears twice");
  EXPECT_EQ(costsWith("=4", "=4 -- stage=1"), "f:2:1: expected 'stage_id=<int>' at the end, got 'stage=1'");
  EXPECT_EQ(errorOf(pipedreamProfileFromText, with(profile(""), "node2", "node1")),
            "f:2:1: 'node1' is already in line 1 | give every node an id of its own");
  EXPECT_EQ(errorOf(pipedreamProfileFromText, profile("\tnode1 -- node9\n")),
            "f:3:1: there is no node 'node9' | add its line, or remove the edge");
  EXPECT_EQ(errorOf(pipedreamProfileFromText, profile("\tnode1\n")),
            "f:3:1: expected an edge, got 'node1' | an edge is '<TAB>node<A> -- node<B>'");
  EXPECT_EQ(errorOf(pipedreamProfileFromText, profile("\tnode1 -- node2\n\tnode2 -- node1\n")),
            "f: expected a graph without cycles, got one of 2 nodes: node1 -> node2 -> node1 | remove the edge that "
            "goes back; a stage cannot wait for a later one");
  EXPECT_EQ(errorOf(pipedreamProfileFromText, profile("\tnode1 -- node1\n")),
            "f: expected a graph without cycles, got one of 1 node: node1 -> node1 | remove the edge that goes back; a "
            "stage cannot wait for a later one");
  EXPECT_EQ(errorOf(pipedreamProfileFromText, ""),
            "f: expected at least one node besides the input, got none | give a graph.txt of PipeDream's profiler");
  EXPECT_EQ(errorOf(pipedreamProfileFromText, std::string("node1 -- Input -- ") + costs),
            "f: expected at least one node besides the input, got none | give a graph.txt of PipeDream's profiler");
  EXPECT_EQ(errorOf(pipedreamProfileFromText, "hello"),
            "f:1:1: expected a node, got 'hello' | a node is 'node<ID> -- <module> -- forward_compute_time=<ms>, "
            "backward_compute_time=<ms>, activation_size=<bytes>, parameter_size=<bytes>'");
}

TEST(ProfileText, LargeGraphsAreReadInOneGo) {
  std::string text, edges;
  constexpr int nodes = 100000;
  for (int v = nodes - 1; v >= 0; --v) {
    text += "node" + std::to_string(v) + " -- ReLU -- " + costs + "\n";
    if (v > 0) edges += "\tnode" + std::to_string(v - 1) + " -- node" + std::to_string(v) + "\n";
  }
  CostGraph graph = readProfile(text + edges);
  ASSERT_EQ(graph.nodes.size(), static_cast<std::size_t>(nodes));
  EXPECT_EQ(graph.nodes[0].name, "node0 ReLU");
}

// ---------------------------------------------------------------------------------------------------------------------
// JSON

static const char* const placement = R"({"maxSizePerFPGA": 100, "maxFPGAs": 2, "maxCPUs": 1, "nodes": [
  {"id": 7, "supportedOnFpga": 1, "cpuLatency": 10, "fpgaLatency": 1.5, "isBackwardNode": false, "colorClass": "a", "size": 3},
  {"id": 9, "supportedOnFpga": false, "cpuLatency": 20, "isBackwardNode": 1, "colorClass": 5, "size": 0, "remark": 1},
  {"id": 8, "supportedOnFpga": true, "cpuLatency": 20, "fpgaLatency": 2, "colorClass": "a", "size": 0}],
  "edges": [{"sourceId": 7, "destId": 9, "cost": 0.25, "size": 8}, {"sourceId": 9, "destId": 8, "cost": 1}]})";

static std::string placementErrorAfter(const std::string& part, const std::string& replacement) {
  return errorOf(dnnPartitioningFromJson, with(placement, part, replacement));
}

TEST(PlacementJson, TakesFlagsAndColoursOfAnyKind) {
  Diagnostics diags(nullptr);
  Expected<DnnPartitioningProblem> problem = dnnPartitioningFromJson(placement, "f", diags);
  ASSERT_TRUE(problem) << toString(diags.all()[0]);
  ASSERT_EQ(problem->nodes.size(), 3u);
  EXPECT_EQ(problem->nodes[0].colour, 0);
  EXPECT_EQ(problem->nodes[1].colour, 1);
  EXPECT_EQ(problem->nodes[2].colour, 0);
  EXPECT_TRUE(problem->nodes[0].onAccelerator);
  EXPECT_FALSE(problem->nodes[1].onAccelerator);
  EXPECT_TRUE(problem->nodes[1].isBackward);
  EXPECT_FALSE(problem->nodes[2].isBackward);
  EXPECT_EQ(problem->edges[1].from, 1);
  EXPECT_EQ(problem->edges[1].to, 2);
}

TEST(PlacementJson, MistakesAreToldWithTheirPlace) {
  EXPECT_EQ(placementErrorAfter("1.5", "-1.5"),
            "f:/nodes/0/fpgaLatency: expected a number that is not negative, got -1.5");
  EXPECT_EQ(placementErrorAfter("1.5", "null"), "f:/nodes/0: 'fpgaLatency' is missing | add \"fpgaLatency\"");
  EXPECT_EQ(placementErrorAfter("1.5", "1e999"), "f:2:68: expected a number that fits a double, got '1e999'");
  EXPECT_EQ(placementErrorAfter("1.5", "NaN"), "f:2:68: expected valid JSON here");
  EXPECT_EQ(placementErrorAfter("\"cost\": 1}", "\"cost\": \"1\"}"),
            "f:/edges/1/cost: expected a number that is not negative, got \"1\"");
  EXPECT_EQ(placementErrorAfter("colorClass", "colourClass"),
            "f:/nodes/0/colourClass: unknown key 'colourClass' | did you mean 'colorClass'?");
  EXPECT_EQ(placementErrorAfter("maxFPGAs\": 2", "maxFPGAs\": 2000000"),
            "f:/maxFPGAs: expected an integer from 0 to 1048576, got 2000000");
  EXPECT_EQ(placementErrorAfter("\"maxFPGAs\": 2, \"maxCPUs\": 1", "\"maxFPGAs\": 0, \"maxCPUs\": 0"),
            "f:/maxFPGAs: expected a device, got none | allow at least one accelerator or CPU");
  EXPECT_EQ(placementErrorAfter("\"id\": 9", "\"id\": 7"),
            "f:/nodes/1: id 7 is already that of node number 0 | give every node an id of its own");
  EXPECT_EQ(placementErrorAfter("\"destId\": 8", "\"destId\": 6"), "f:/edges/1/destId: no node has the id 6");
  EXPECT_EQ(placementErrorAfter("\"destId\": 8", "\"destId\": 7"),
            "f: expected a graph without cycles, got one of 2 nodes: 7 -> 9 -> 7 | remove the edge that goes back; a "
            "stage cannot wait for a later one");
  EXPECT_EQ(placementErrorAfter("\"supportedOnFpga\": 1", "\"supportedOnFpga\": 2"),
            "f:/nodes/0/supportedOnFpga: expected true, false, 1 or 0, got 2");
  EXPECT_EQ(errorOf(dnnPartitioningFromJson, R"({"maxSizePerFPGA": 1, "maxFPGAs": 2, "maxCPUs": 1, "nodes": [],
                                                 "edges": []})"),
            "f:/nodes: expected at least one node, got none");
  EXPECT_EQ(errorOf(dnnPartitioningFromJson, "{}"), "f:/: 'maxSizePerFPGA' is missing | add \"maxSizePerFPGA\"");
}

static const char* const tensorParallel =
    R"({"maxDevices": 4, "maxMemoryPerDevice": 1e9, "bandwidth": 1e9, "mbsInBatch": 8,
  "nodes": [{"id": 4, "TMPCs": {"2": [{"id": "a", "timePerSample": 1, "parameterSize": 2, "memoryUsageA": 3,
                                       "memoryUsageB": 4, "syncTimeFw": {}, "syncTimeBw": {"5": 7}}]}},
            {"id": 5, "TMPCs": {"1": [{"id": "b", "timePerSample": 1, "parameterSize": 2, "memoryUsageA": 3,
                                       "memoryUsageB": 4}]}}],
  "edges": [{"sourceId": 4, "destId": 5, "communicationCost": 6}]})";

static std::string piperErrorAfter(const std::string& part, const std::string& replacement) {
  return errorOf(piperFromJson, with(tensorParallel, part, replacement));
}

TEST(PiperJson, MistakesAreToldWithTheirPlace) {
  Diagnostics diags(nullptr);
  EXPECT_TRUE(piperFromJson(tensorParallel, "f", diags)) << "good but for the replacements below";
  EXPECT_EQ(piperErrorAfter("\"bandwidth\": 1e9", "\"bandwidth\": 0"),
            "f:/bandwidth: expected a bandwidth above 0, got 0");
  EXPECT_EQ(piperErrorAfter("\"maxDevices\": 4", "\"maxDevices\": 0"),
            "f:/maxDevices: expected an integer from 1 to 1048576, got 0");
  EXPECT_EQ(piperErrorAfter("mbsInBatch", "mbsInBath"),
            "f:/mbsInBath: unknown key 'mbsInBath' | did you mean 'mbsInBatch'?");
  EXPECT_EQ(piperErrorAfter("timePerSample\": 1", "timePerSample\": -1"),
            "f:/nodes/0/TMPCs/2/0/timePerSample: expected a number that is not negative, got -1");
  EXPECT_EQ(piperErrorAfter("{\"2\"", "{\"two\""),
            "f:/nodes/0/TMPCs/two: expected a key that is an integer from 1 to 1048576, got 'two'");
  EXPECT_EQ(piperErrorAfter("{\"5\": 7}", "{\"-5\": 7}"),
            "f:/nodes/0/TMPCs/2/0/syncTimeBw/-5: expected a key that is an integer from 0 to 9223372036854775807, got "
            "'-5'");
  EXPECT_EQ(piperErrorAfter("{\"id\": 5", "{\"id\": 4"),
            "f:/nodes/1: id 4 is already that of node number 0 | give every node an id of its own");
  EXPECT_EQ(piperErrorAfter("\"destId\": 5", "\"destId\": 4"),
            "f: expected a graph without cycles, got one of 1 node: 4 -> 4 | remove the edge that goes back; a stage "
            "cannot wait for a later one");
  const std::string empty =
      with(tensorParallel, R"("TMPCs": {"2": [{"id": "a", "timePerSample": 1, "parameterSize": 2, "memoryUsageA": 3,
                                       "memoryUsageB": 4, "syncTimeFw": {}, "syncTimeBw": {"5": 7}}]})",
           "\"TMPCs\": {}");
  EXPECT_EQ(
      errorOf(piperFromJson, empty),
      "f:/nodes/0/TMPCs: expected at least one tensor-parallel degree, got none | give the choices without tensor "
      "parallelism under \"1\"");
}

TEST(Formats, SumsThatOverflowAreRefused) {
  EXPECT_EQ(placementErrorAfter("10, \"fpgaLatency\": 1.5", "1e308, \"fpgaLatency\": 1e308"),
            "f:/nodes: expected times with a finite sum, got more than a double holds");
  EXPECT_EQ(placementErrorAfter("\"size\": 3}", "\"size\": 1e16}"),
            "f:/nodes: expected sizes that add up to at most 2^53 bytes, got 1e+16 | sizes are in bytes, not bits");
  EXPECT_EQ(piperErrorAfter("\"memoryUsageA\": 3", "\"memoryUsageA\": 1.6e16"),
            "f:/nodes: expected sizes that add up to at most 2^53 bytes, got 1.6e+16 | sizes are in bytes, not bits");
  EXPECT_EQ(piperErrorAfter("\"bandwidth\": 1e9", "\"bandwidth\": 1e-300"),
            "f:/nodes: expected times with a finite sum, got more than a double holds");
}

TEST(Formats, DeepJsonIsRefusedWithoutRunningOutOfStack) {
  constexpr std::size_t depth = 200000;
  const std::string nested = "{\"nodes\": " + std::string(depth, '[') + std::string(depth, ']') + "}";
  EXPECT_EQ(errorOf(dnnPartitioningFromJson, nested), "f:/: 'maxSizePerFPGA' is missing | add \"maxSizePerFPGA\"");
  EXPECT_EQ(errorOf(piperFromJson, nested), "f:/: 'maxDevices' is missing | add \"maxDevices\"");
  EXPECT_EQ(errorOf(costGraphFromJson, std::string(depth, '[')), "f:1:200001: expected valid JSON here");
}
