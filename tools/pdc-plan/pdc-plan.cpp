// pdc-plan GRAPH: plans a bare cost graph, or a placement problem in another program's format.
#include "../StandardFlags.h"
#include "Alternatives.h"
#include "Input.h"
#include "Report.h"
#include "pdc/Plan/PolicyText.h"
#include "pdc/Planner/OptionText.h"
#include "pdc/Published/DataParallel.h"
#include "pdc/Published/Foreign.h"
#include "pdc/Published/PiperMenus.h"
#include "pdc/Support/Diagnostics.h"
#include "pdcrt/MappedFile.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>

using namespace pdc;

namespace {

struct Flags {
  std::string file, format, costModel, warmup = "hide", bucket, output;
  std::string schedule = "1f1b", weights = "stash", sync = "overlap", recompute = "none",
              shard = "none"; ///< names of policies
  PlaceFlags place;
  PublishedOptions planner;
  bool json = false, explain = false, takesAnyDegree = false;
  std::vector<CLI::Option*> scheduling; ///< flags that only cost graphs have a use for
  CLI::Option* microbatches = nullptr;
};

void addFlags(CLI::App& app, Flags& flags) {
  PlannerOptions& planner = flags.planner;
  auto member = [](std::vector<std::string> names) { return CLI::IsMember(std::move(names)); };
  auto isSchedule = [](const std::string& name) {
    return ScheduleKind::named(name) ? "" : "expected one of " + scheduleNamesText() + ", got '" + name + "'";
  };
  const CLI::Validator positive(
      [](const std::string& text) {
        double number = 0;
        const bool isPositive = CLI::detail::lexical_cast(text, number) && number > 0 && std::isfinite(number);
        return isPositive ? "" : "expected a number above 0, got '" + text + "'";
      },
      "");
  app.add_option("GRAPH", flags.file, "cost graph, profile or problem")->required();
  app.option_defaults()->group("Input");
  app.add_option("--format", flags.format, "format of GRAPH\nDefault: what it looks like.")
      ->check(member({"pdc", "pipedream", "dnn-partitioning", "piper"}))
      ->type_name("pdc|pipedream|dnn-partitioning|piper");
  app.add_option("--cost-model", flags.costModel,
                 "cost model that defines the time of a plan\nDefault: the format's own, or pdc.")
      ->check(member({"pdc", "sosp19", "pipedream-2018", "pipedream-code", "dnn-partitioning", "piper"}))
      ->type_name("pdc|sosp19|pipedream-2018|pipedream-code|dnn-partitioning|piper");
  app.option_defaults()->group("Cluster");
  app.add_option("--levels", flags.place.levels, "the cluster, innermost level first: 4x10e9,4x1.25e9")
      ->type_name("COUNTxBYTES_PER_SECOND,...");
  app.add_option("--cluster", flags.place.cluster,
                 "the cluster, from a file\nThe file is described in docs/Planning.md.")
      ->type_name("FILE");
  app.add_option("--devices", flags.place.devices,
                 "number of devices on one level\nOf a DNN-partitioning problem: of accelerators.")
      ->check(CLI::Range(std::int64_t{1}, Cluster::mostDevices))
      ->type_name("N");
  app.add_option("--bandwidth", flags.place.bandwidthBytesPerS, "bandwidth between --devices, each way")
      ->check(positive)
      ->type_name("BYTES_PER_SECOND");
  app.add_option("--memory", flags.place.memory, "limit of every device: 16e9, 16GiB")->type_name("BYTES");
  app.option_defaults()->group("Plan");
  app.add_flag("--straight", planner.straight, "no replicated stages");
  app.add_option("--time-limit", planner.timeLimitS,
                 "search no longer than this\nThen the best plan found is printed, with its proven gap.")
      ->check(positive)
      ->type_name("SECONDS");
  flags.scheduling = {
      app.add_option("--schedule", flags.schedule,
                     "order of forwards and backwards\nOne of " + scheduleNamesText() + ".")
          ->check(isSchedule)
          ->type_name("NAME"),
      app.add_option("--weights", flags.weights, "version of the weights that a minibatch uses")
          ->check(member(namesOf(weightPolicies)))
          ->type_name("stash|vertical-sync|latest"),
      app.add_option("--sync", flags.sync,
                     "how a replicated stage reduces its gradients\noverlap: it goes on while they are reduced. "
                     "barrier: it waits.")
          ->check(member(namesOf(syncPolicies)))
          ->type_name("overlap|barrier"),
      app.add_option("--warmup", flags.warmup,
                     "forwards before the first backward, per stage\nhide: as many as hide the transfers; paper: "
                     "PipeDream's; or a number for each stage.")
          ->type_name("hide|paper|N,N,..."),
      app.add_option("--bucket", flags.bucket, "gradients that are reduced in one all-reduce, at most\nDefault: 8MiB.")
          ->type_name("BYTES"),
      app.add_option("--recompute", flags.recompute, "run forwards again instead of keeping their results")
          ->check(member(namesOf(recomputePolicies)))
          ->type_name("none|auto|all"),
      app.add_option("--shard", flags.shard, "let the replicas of a stage divide the optimizer's state, or weights too")
          ->type_name("none|optimizer|weights[:D]|auto|...,..."),
      app.add_option("--optimizer-state", planner.optimizerStatePerParameterByte,
                     "bytes of optimizer state per byte of parameters\n1 with momentum, 2 for Adam.")
          ->check(CLI::Range(0.0, 16.0))};
  flags.microbatches =
      app.add_option("--microbatches", planner.microbatches,
                     "microbatches per update, where the schedule flushes\nOf Piper's problems: per batch.")
          ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
          ->type_name("M");
  app.add_flag("--any-degree", flags.takesAnyDegree,
               "allow data-parallel degrees that do not divide the microbatches\nFor Piper's problems.");
  app.option_defaults()->group("Output");
  app.add_option("-o,--output", flags.output, "plan to write")->type_name("plan.json");
  app.add_flag("--json", flags.json, "print one JSON object");
  app.add_flag("--explain", flags.explain, "print why this plan, and why not the others");
}

/// Policies that were typed by name; CLI11 has checked the names.
void applyPolicies(Flags& flags) {
  flags.planner.schedule = flags.schedule;
  flags.planner.weights = *policyNamed(weightPolicies, flags.weights);
  flags.planner.sync = *policyNamed(syncPolicies, flags.sync);
  flags.planner.recompute = *policyNamed(recomputePolicies, flags.recompute);
}

/// Flags that say something about schedules do not fit models that have none.
Status refuseScheduling(const Flags& flags, bool takesMicrobatches, Diagnostics& diags) {
  std::vector<CLI::Option*> refused = flags.scheduling;
  if (!takesMicrobatches) refused.push_back(flags.microbatches);
  for (const CLI::Option* option : refused)
    if (option->count() > 0)
      return diags.error({}).exit(ExitCode::usage).help("leave " + option->get_name() + " out")
             << option->get_name() << " does not fit the cost model '" << flags.planner.costModel
             << "', which knows no schedules";
  return success;
}

/// --any-degree is for Piper's problems.
Status refuseAnyDegree(const Flags& flags, Diagnostics& diags) {
  if (!flags.takesAnyDegree) return success;
  return diags.error({}).exit(ExitCode::usage).help("leave --any-degree out")
         << "--any-degree does not fit the cost model '" << flags.planner.costModel
         << "', whose degrees divide nothing";
}

/// Plans, and fills in what the report says about the input.
class Planning {
public:
  Planning(Flags& flags, PlanReport& report, Diagnostics& diags) : flags_(flags), report_(report), diags_(diags) {}

  Expected<Plan> operator()(const CostGraph& graph) {
    if (!parseOptions()) return failure;
    Expected<Cluster> cluster = clusterFor(flags_.place, flags_.planner, diags_);
    if (!cluster) return failure;
    return planOf(graph, *cluster);
  }

  Expected<Plan> operator()(DnnPartitioningProblem& problem) {
    if (!refuseAnyDegree(flags_, diags_) || !refuseScheduling(flags_, false, diags_) ||
        !applyTo(problem, flags_.place, diags_))
      return failure;
    describe(problem.nodes.size(), problem.accelerators + problem.cpus);
    Expected<Plan> plan = timed([&] { return planDnnPartitioning(problem, flags_.planner, diags_); });
    if (plan && flags_.explain) report_.explanation = explainProblem(problem, flags_.planner, *plan);
    return plan;
  }

  Expected<Plan> operator()(PiperProblem& problem) {
    if (flags_.planner.costModel == "pdc") return planMenus(problem);
    const std::int64_t microbatches = flags_.microbatches->count() > 0 ? flags_.planner.microbatches : 0;
    if (!refuseScheduling(flags_, true, diags_) || !applyTo(problem, flags_.place, microbatches, diags_))
      return failure;
    problem.degreesDivideMicrobatches = !flags_.takesAnyDegree;
    describe(problem.nodes.size(), problem.devices);
    Expected<Plan> plan = timed([&] { return planPiper(problem, flags_.planner, diags_); });
    if (plan && flags_.explain) report_.explanation = explainProblem(problem, flags_.planner, *plan);
    return plan;
  }

private:
  Status parseOptions() {
    if (!refuseAnyDegree(flags_, diags_) || !parseWarmup(flags_.warmup, flags_.planner, diags_) ||
        !parseBucket(flags_.bucket, flags_.planner, diags_) || !parseShard(flags_.shard, flags_.planner, diags_))
      return failure;
    return success;
  }

  Expected<Plan> planOf(const CostGraph& graph, const Cluster& cluster) {
    describe(graph.nodes.size(), cluster.deviceCount());
    Expected<Plan> plan = timed([&] { return planPublished(graph, cluster, flags_.planner, diags_); });
    if (!plan) return failure;
    report_.dataParallelMs = dataParallelTime(graph, cluster, flags_.planner);
    if (flags_.explain) report_.explanation = toText(explainPublished(graph, cluster, flags_.planner, *plan), *plan);
    return plan;
  }

  /// pdc's own planner, with Piper's menus as splits. Unless flags say otherwise, in the setting of Piper's model.
  Expected<Plan> planMenus(PiperProblem& problem) {
    PublishedOptions& options = flags_.planner;
    const auto isGiven = [&](const char* name) {
      return std::any_of(flags_.scheduling.begin(), flags_.scheduling.end(),
                         [&](const CLI::Option* option) { return option->get_name() == name && option->count() > 0; });
    };
    if (!isGiven("--warmup") && !isGiven("--schedule")) flags_.warmup = "paper";
    if (!isGiven("--schedule")) options.schedule = "2bw";
    if (flags_.microbatches->count() == 0) options.microbatches = problem.microbatches;
    if (!parseOptions() || !applyTo(problem, flags_.place, options.microbatches, diags_)) return failure;
    problem.degreesDivideMicrobatches = false; // pdc's replicas need not divide a batch
    constexpr int between = 3;
    Expected<PiperMenus> menus = menusOf(problem, between, diags_);
    if (!menus) return failure;
    Expected<Plan> plan = planOf(menus->graph, menus->cluster);
    if (plan) compare(problem, *menus, *plan);
    return plan;
  }

  void compare(const PiperProblem& problem, const PiperMenus& menus, const Plan& plan) {
    const PlannerOptions& options = flags_.planner;
    PiperComparison& comparison = report_.piper.emplace();
    comparison.tps = piperPlanOf(problem, menus, plan, true).timeMs;
    comparison.bottleneckMs = costWithWarmup(plan, options).timeMs;
    comparison.piperBottleneckMs = std::numeric_limits<double>::infinity();
    Diagnostics ignored(nullptr);
    const Expected<Plan> theirs = planPiper(problem, {}, ignored);
    if (!theirs) return;
    const PiperMenus own = menusOfPlan(problem, *theirs);
    comparison.piperBottleneckMs =
        costOf(describePartition(own.graph, own.cluster, options, partitionOf(own, *theirs), false), options).timeMs;
  }

  void describe(std::size_t nodes, std::int64_t devices) {
    report_.nodes = static_cast<std::int64_t>(nodes);
    report_.devices = devices;
  }

  template <class Call>
  Expected<Plan> timed(Call call) {
    const auto begin = std::chrono::steady_clock::now();
    Expected<Plan> plan = call();
    report_.plannerS = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return plan;
  }

  Flags& flags_;
  PlanReport& report_;
  Diagnostics& diags_;
};

Status run(Flags& flags, Diagnostics& diags) {
  Expected<std::string> text = readInput(flags.file, diags);
  if (!text) return failure;
  if (flags.format.empty()) flags.format = guessFormat(*text);
  Expected<std::string> costModel = costModelFor(flags.format, flags.costModel, diags);
  if (!costModel) return failure;
  flags.planner.costModel = *costModel;
  applyPolicies(flags);
  Expected<PlanInput> input = parseInput(*text, flags.format, flags.file, diags);
  if (!input) return failure;
  PlanReport report;
  report.file = flags.file;
  report.format = flags.format;
  Expected<Plan> plan = std::visit(Planning(flags, report, diags), *input);
  if (!plan && !diags.hasErrors())
    return diags.error({flags.file}).exit(ExitCode::internal) << "the planner failed without saying why";
  if (!plan) return failure;
  if (!flags.output.empty())
    if (pdcrt::Status status = pdcrt::writeAtomically(flags.output, toJson(*plan)); !status)
      return diags.error({}) << status.message();
  if (flags.json)
    std::cout << reportJson(*plan, report);
  else
    printReport(std::cout, *plan, report);
  return success;
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app("Plans a cost graph: which device computes what, proven optimal", "pdc-plan");
  addStandardFlags(app);
  Flags flags;
  addFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  Diagnostics diags(&std::cerr);
  (void)run(flags, diags);
  return static_cast<int>(diags.exitCode());
}
