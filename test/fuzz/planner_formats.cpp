// LINK: pdcPublished
// Mutates cost graphs, clusters and plans in pdc's JSON, PipeDream profiles, placement problems and Piper's problems.
// Readers must stand it: a record or an error, never both, and what pdc writes reads back to the same bytes. What is
// read must be planned, or refused with an error: within a blink, since the inputs are small. Run with sanitizers:
//
//   planner_formats 100000 [seed]
//
// Exits 1, with the text on standard error, when that fails.
#include "pdc/Published/Foreign.h"
#include "pdc/Published/PipedreamProfile.h"
#include "pdc/Published/PiperMenus.h"
#include "pdc/Published/Published.h"
#include "pdc/Support/Diagnostics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

using namespace pdc;

namespace {

const char* const profileSeed =
    "node1 -- Input0 -- forward_compute_time=0.5, backward_compute_time=0.000, activation_size=0.0, parameter_size=0\n"
    "node4 -- Linear(3, 4) -- forward_compute_time=1, backward_compute_time=2.5, activation_size=[8; 16.0], "
    "parameter_size=64 -- stage_id=0\n"
    "node5 -- ReLU -- forward_compute_time=3, backward_compute_time=1, activation_size=32, parameter_size=0\n"
    "node6 -- __getitem__(0) -- forward_compute_time=0, backward_compute_time=0, activation_size=4, parameter_size=0\n"
    "\tnode1 -- node4\n\tnode4 -- node5\n\tnode5 -- node6\n";

const char* const graphSeed =
    R"({"model": "m", "cost_source": "analytic", "nodes": [
  {"name": "a", "forward_ms": 1.5, "input_gradient_ms": 1, "weight_gradient_ms": 2, "update_ms": 0.1,
   "parameter_bytes": 64, "gradient_bytes": 64, "saved_bytes": 8, "scratch_bytes": 4, "workspace_bytes": 2, "colour": 3},
  {"name": "b", "forward_ms": 2, "saved_bytes": 16}, {"name": "c", "forward_ms": 1e-3, "colour": 3}],
 "tensors": [{"name": "x", "from": 0, "to": [1, 2], "bytes": 128, "has_gradient": false},
  {"from": 1, "to": [2], "bytes": 12}], "shared_parameters": [{"name": "w", "nodes": [0, 1], "bytes": 256}]})";

const char* const clusterSeed =
    R"({"levels": [{"name": "server", "count": 2, "bandwidth_bytes_per_s": 1e9, "latency_s": 5e-6},
  {"name": "rack", "count": 2, "bandwidth_bytes_per_s": 1e8}],
 "devices": [{"name": "H100", "count": 3, "speed": 2.5}, {"name": "mine", "count": 1, "memory_bytes": 16e9,
  "reserved_bytes": 1e9, "flops": {"f32": 1e12, "bf16": null}, "memory_bandwidth_bytes_per_s": 9e11, "cores": 2}]})";

const char* const placementSeed =
    R"({"maxSizePerFPGA": 100.0, "maxFPGAs": 2, "maxCPUs": 1, "nodes": [
  {"id": 7, "supportedOnFpga": 1, "cpuLatency": 10, "fpgaLatency": 1.5, "isBackwardNode": 0, "colorClass": "a", "size": 3},
  {"id": 9, "supportedOnFpga": false, "cpuLatency": 20, "fpgaLatency": 0, "isBackwardNode": false, "size": 0},
  {"id": 8, "supportedOnFpga": true, "cpuLatency": 20, "fpgaLatency": 2, "isBackwardNode": true, "colorClass": "a",
   "size": 50}], "edges": [{"sourceId": 7, "destId": 9, "cost": 0.25, "size": 8}, {"sourceId": 9, "destId": 8, "cost": 1}]})";

const char* const piperSeed =
    R"({"maxDevices": 4, "maxMemoryPerDevice": 1e3, "bandwidth": 1e4, "mbsInBatch": 8, "nodes": [
  {"id": 4, "name": "a", "TMPCs": {"1": [{"id": "v", "timePerSample": 1, "parameterSize": 2, "memoryUsageA": 3,
     "memoryUsageB": 4, "syncTimeFw": {}, "syncTimeBw": {"5": 7}}, {"id": "r", "timePerSample": 2, "parameterSize": 2,
     "memoryUsageA": 1, "memoryUsageB": 4}], "2": [{"id": "t", "timePerSample": 0.6, "parameterSize": 1,
     "memoryUsageA": 2, "memoryUsageB": 2}]}},
  {"id": 5, "TMPCs": {"1": [{"id": "b", "timePerSample": 1, "parameterSize": 2, "memoryUsageA": 3, "memoryUsageB": 4,
     "syncTimeFw": {"4": 100}, "syncTimeBw": {}}]}}],
 "edges": [{"sourceId": 4, "destId": 5, "communicationCost": 6}]})";

/// One change: a byte, a stretch left out, doubled, or taken from another text, a piece that parsers dislike, a digit.
std::string mutated(std::string text, const std::vector<std::string>& seeds, std::mt19937_64& random) {
  auto below = [&](std::size_t n) { return n ? random() % n : 0; };
  const std::size_t at = below(text.size()), length = below(std::min<std::size_t>(text.size() - at, 40));
  static const char* const pieces[] = {"-1",    "9223372036854775807",
                                       "1e999", "NaN",
                                       "1e308", "1e-308",
                                       "null",  "true",
                                       "\"",    "[",
                                       "]",     "{",
                                       "}",     ",",
                                       "0",     "\t",
                                       "\n",    " -- ",
                                       "node1", "; ",
                                       "="};
  switch (below(7)) {
  case 0: text[at] = static_cast<char>(random()); break;
  case 1: text.erase(at, length); break;
  case 2: text.insert(at, text.substr(at, length)); break;
  case 3: {
    const std::string& other = seeds[below(seeds.size())];
    text.insert(at, other.substr(below(other.size()), length));
    break;
  }
  case 4: text.insert(at, pieces[below(std::size(pieces))]); break;
  default: // numbers are where the meaning is
    if (const std::size_t digit = text.find_first_of("0123456789", at); digit != std::string::npos)
      text[digit] = "0123456789.e-"[below(13)];
  }
  return text.empty() ? " " : text;
}

[[noreturn]] void fail(const char* what, const std::string& text) {
  std::fprintf(stderr, "%s:\n%s\n", what, text.c_str());
  std::exit(1);
}

/// The record, after checking that there is one exactly if no error was reported.
template <class T>
const T* checked(const Expected<T>& read, const Diagnostics& diags, const std::string& text) {
  if (static_cast<bool>(read) == diags.hasErrors()) fail("success and errors disagree", text);
  return read ? &*read : nullptr;
}

/// Whether writing, reading and writing again gives the same bytes.
template <class T, class Read>
void checkRoundTrip(const T& record, Read read) {
  const std::string written = toJson(record);
  Diagnostics diags(nullptr);
  const Expected<T> again = read(written, "written", diags);
  if (!again || toJson(*again) != written) fail("does not read back", written);
}

void checkPlan(const Expected<Plan>& plan, const Diagnostics& diags, const std::string& text) {
  const Plan* found = checked(plan, diags, text);
  if (diags.exitCode() == ExitCode::internal) fail("internal error", text);
  if (!found) return;
  if (!(found->timeMs >= 0) || (found->optimal && found->gap() > 1e-6)) fail("no certificate", text);
  checkRoundTrip(*found, planFromJson);
}

Cluster smallCluster() {
  Cluster cluster;
  cluster.levels = {{"server", 2, 1e6, 1e-6}, {"rack", 2, 1e5, 0}};
  cluster.device.name = "device";
  cluster.device.memoryBytes = 2000;
  return cluster;
}

void plan(const CostGraph& graph, std::mt19937_64& random, const std::string& text) {
  static const char* const costModels[] = {"pdc", "sosp19", "pipedream-2018", "pipedream-code"};
  if (graph.nodes.size() > 10) return;
  PublishedOptions options;
  options.costModel = costModels[random() % std::size(costModels)];
  options.timeLimitS = 0.2;
  Cluster cluster = smallCluster();
  if (options.costModel == "pipedream-2018") cluster.levels.pop_back();
  Diagnostics diags(nullptr);
  const Expected<Plan> plan = planPublished(graph, cluster, options, diags);
  checkPlan(plan, diags, text);
}

PlannerOptions inABlink() {
  PlannerOptions options;
  options.timeLimitS = 0.2;
  return options;
}

void plan(DnnPartitioningProblem problem, const std::string& text) {
  if (problem.nodes.size() > 10) return;
  const PlannerOptions options = inABlink();
  Diagnostics diags(nullptr);
  const Expected<Plan> plan = planDnnPartitioning(problem, options, diags);
  checkPlan(plan, diags, text);
}

void plan(PiperProblem problem, const std::string& text) {
  if (problem.nodes.size() > 10) return;
  problem.devices = std::min<std::int64_t>(problem.devices, 16);
  problem.microbatches = std::min<std::int64_t>(problem.microbatches, 64);
  const PlannerOptions options = inABlink();
  Diagnostics diags(nullptr);
  const Expected<Plan> plan = planPiper(problem, options, diags);
  checkPlan(plan, diags, text);
  Diagnostics others(nullptr);
  const Expected<PiperMenus> menus = menusOf(problem, 1, others);
  if (!menus) return;
  PlannerOptions own = options;
  own.schedule = "2bw";
  own.warmupPolicy = WarmupPolicy::paper;
  own.microbatches = problem.microbatches;
  const Expected<Plan> split = planPipeline(menus->graph, menus->cluster, own, others);
  checkPlan(split, others, text);
  if (split) (void)piperPlanOf(problem, *menus, *split, true);
}

/// Reads `text` as `kind` (an index of the seeds); whether it could be read.
bool tryText(std::size_t kind, const std::string& text, std::mt19937_64& random) {
  Diagnostics diags(nullptr);
  switch (kind) {
  case 0: {
    const auto read = pipedreamProfileFromText(text, "fuzz", diags);
    const CostGraph* graph = checked(read, diags, text);
    if (graph) plan(*graph, random, text);
    return graph;
  }
  case 1: {
    const auto read = costGraphFromJson(text, "fuzz", diags);
    const CostGraph* graph = checked(read, diags, text);
    if (graph) checkRoundTrip(*graph, costGraphFromJson);
    if (graph) plan(*graph, random, text);
    return graph;
  }
  case 2: {
    const auto read = clusterFromJson(text, "fuzz", diags);
    const Cluster* cluster = checked(read, diags, text);
    if (cluster) checkRoundTrip(*cluster, clusterFromJson);
    return cluster;
  }
  case 3: {
    const auto read = dnnPartitioningFromJson(text, "fuzz", diags);
    const DnnPartitioningProblem* problem = checked(read, diags, text);
    if (problem) plan(*problem, text);
    return problem;
  }
  case 4: {
    const auto read = piperFromJson(text, "fuzz", diags);
    const PiperProblem* problem = checked(read, diags, text);
    if (problem) plan(*problem, text);
    return problem;
  }
  default: {
    const auto read = planFromJson(text, "fuzz", diags);
    const Plan* found = checked(read, diags, text);
    if (found) checkRoundTrip(*found, planFromJson);
    return found;
  }
  }
}

/// A plan to begin with, as JSON.
std::string planSeed() {
  Diagnostics diags(nullptr);
  const Expected<CostGraph> graph = costGraphFromJson(graphSeed, "seed", diags);
  PublishedOptions options;
  options.costModel = "sosp19";
  const Expected<Plan> plan = graph ? planPublished(*graph, smallCluster(), options, diags) : Expected<Plan>(failure);
  if (!plan) fail("no plan to begin with", diags.all()[0].message);
  return toJson(*plan);
}

} // namespace

int main(int argc, char** argv) {
  const long iterations = argc > 1 ? std::atol(argv[1]) : 20000;
  std::mt19937_64 random(argc > 2 ? static_cast<std::uint64_t>(std::atol(argv[2])) : 1);
  const std::vector<std::string> seeds = {profileSeed, graphSeed, clusterSeed, placementSeed, piperSeed, planSeed()};
  std::vector<long> read(seeds.size(), 0);
  for (long i = 0; i < iterations; ++i) {
    const std::size_t kind = random() % seeds.size();
    std::string text = seeds[kind];
    for (std::uint64_t changes = random() % 4; changes > 0; --changes) text = mutated(std::move(text), seeds, random);
    read[kind] += tryText(kind, text, random);
  }
  std::printf("%ld texts; read: %ld profiles, %ld cost graphs, %ld clusters, %ld placement problems, %ld of Piper's, "
              "%ld plans\n",
              iterations, read[0], read[1], read[2], read[3], read[4], read[5]);
  return 0;
}
