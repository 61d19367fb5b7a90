#include "Report.h"

#include "pdc/Plan/PolicyText.h"
#include "pdc/Support/JsonText.h"
#include "pdc/Support/Units.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ostream>

using namespace pdc;
using nlohmann::ordered_json;

static ordered_json stageJson(const PlanStage& stage) {
  ordered_json json = {{"nodes", stage.nodes},
                       {"replicas", stage.replicas},
                       {"compute_ms", stage.computeMs()},
                       {"all_reduce_ms", stage.allReduceMs},
                       {"memory_bytes", stage.memoryBytes},
                       {"warmup", stage.warmup}};
  if (stage.tensorParallel != 1) json["tensor_parallel"] = stage.tensorParallel;
  if (stage.split != TeamSplit{}) json["split"] = toText(stage.split);
  if (stage.recompute) json["recompute"] = true;
  if (stage.isSharded()) json["shard"] = nameOf(stage.sharding);
  if (stage.shardDegree != 0) json["shard_degree"] = stage.shardDegree;
  if (!stage.device.empty()) json["device"] = stage.device;
  if (!stage.choices.empty()) json["choices"] = stage.choices;
  for (const PlanNest& nest : stage.nest) json["nest"].push_back({{"stage", nest.stage}, {"replicas", nest.replicas}});
  return json;
}

std::string pdc::reportJson(const Plan& plan, const PlanReport& report) {
  ordered_json json = {
      {"graph", report.file},        {"format", report.format},        {"cost_model", plan.costModel},
      {"devices", report.devices},   {"time_ms", plan.timeMs},         {"lower_bound_ms", plan.lowerBoundMs},
      {"gap", plan.gap()},           {"optimal", plan.optimal},        {"planner_s", report.plannerS},
      {"data_parallel_ms", nullptr}, {"stages", ordered_json::array()}};
  if (report.dataParallelMs) json["data_parallel_ms"] = *report.dataParallelMs;
  if (report.piper) {
    const auto finite = [](double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); };
    json["piper"] = {{"tps", finite(report.piper->tps)},
                     {"bottleneck_ms", report.piper->bottleneckMs},
                     {"piper_plan_bottleneck_ms", finite(report.piper->piperBottleneckMs)}};
  }
  for (const PlanStage& stage : plan.stages) json["stages"].push_back(stageJson(stage));
  if (!report.explanation.empty()) json["explanation"] = report.explanation;
  return pretty(json);
}

static std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.7g", value);
  return text.data();
}

/// The column of nodes: how many, and the first and last of them.
static std::string nodesText(const PlanStage& stage) {
  auto shortened = [](const std::string& name) {
    constexpr std::size_t most = 28;
    return name.size() <= most ? name : name.substr(0, most - 3) + "...";
  };
  std::string text = std::to_string(stage.nodes.size());
  if (stage.nodeNames.empty()) return text;
  text += "  " + shortened(stage.nodeNames.front());
  return stage.nodeNames.size() == 1 ? text : text + " .. " + shortened(stage.nodeNames.back());
}

/// "2×3" for 2 components of the outer level with 3 inside each.
static std::string replicasText(const PlanStage& stage) {
  std::string text;
  for (const PlanNest& nest : stage.nest)
    if (stage.nest.size() > 1) text += (text.empty() ? "" : "x") + std::to_string(nest.replicas);
  if (text.empty()) text = std::to_string(stage.replicas);
  if (stage.tensorParallel > 1) text += "t" + std::to_string(stage.tensorParallel);
  return text;
}

static void printLine(std::ostream& out, const std::array<std::string, 7>& cells) {
  static constexpr std::array<int, 6> widths{5, 9, 13, 14, 12, 7};
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const int pad = widths[i] - static_cast<int>(cells[i].size());
    out << std::string(static_cast<std::size_t>(std::max(pad, 1)), ' ') << cells[i];
  }
  out << "  " << cells.back() << '\n';
}

static void printStages(std::ostream& out, const Plan& plan, const std::string& unit) {
  constexpr std::size_t most = 40; // of thousands of stages the ends say enough
  printLine(out, {"stage", "replicas", "compute" + unit, "all-reduce" + unit, "memory", "warm-up", "nodes"});
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (plan.stages.size() > most && s == most / 2) {
      out << "  ... " << plan.stages.size() - most << " more stages ...\n";
      s += plan.stages.size() - most;
    }
    const PlanStage& stage = plan.stages[s];
    std::string nodes = nodesText(stage);
    if (!stage.device.empty()) nodes += "  on " + stage.device;
    if (stage.split != TeamSplit{}) nodes += "  (" + toText(stage.split) + ")";
    if (stage.recompute) nodes += "  (recomputed)";
    if (stage.isSharded()) nodes += "  (sharded)";
    printLine(out, {std::to_string(s), replicasText(stage), number(stage.computeMs()), number(stage.allReduceMs),
                    stage.memoryBytes > 0 ? sizeText(stage.memoryBytes) : "-", std::to_string(stage.warmup), nodes});
  }
}

static void printComparison(std::ostream& out, const PiperComparison& piper) {
  out << "Piper's TPS    ";
  if (std::isfinite(piper.tps))
    out << number(piper.tps) << " per sample, by its definition\n";
  else
    out << "none: by its definition the stages do not fit\n";
  out << "busiest stage  " << number(piper.bottleneckMs) << " ms";
  if (std::isfinite(piper.piperBottleneckMs)) out << ", of Piper's plan " << number(piper.piperBottleneckMs) << " ms";
  out << '\n';
}

void pdc::printReport(std::ostream& out, const Plan& plan, const PlanReport& report) {
  const bool ownUnit = plan.costModel == "dnn-partitioning" || plan.costModel == "piper";
  const std::string unit = ownUnit ? "" : " ms";
  out << report.file << ": " << report.nodes << " nodes on " << report.devices
      << (report.devices == 1 ? " device" : " devices") << ", cost model " << plan.costModel
      << (ownUnit ? ", times in the file's unit" : "") << '\n';
  printStages(out, plan, unit);
  out << "bottleneck     " << number(plan.timeMs) << unit
      << (plan.costModel == "piper" ? " per sample" : " per minibatch") << (plan.optimal ? ", proven optimal" : "")
      << '\n'
      << "lower bound    " << number(plan.lowerBoundMs) << unit << ", gap " << number(100 * plan.gap()) << " %\n";
  if (report.dataParallelMs) out << "data parallel  " << number(*report.dataParallelMs) << unit << '\n';
  if (report.piper) printComparison(out, *report.piper);
  out << report.explanation;
}
