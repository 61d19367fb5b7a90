// cmake, mpirun, and what is left of a run.
#include "pdc/Driver/Launch.h"

#include "FolderLock.h"
#include "OutputFolder.h"
#include "RunReport.h"
#include "TrainedModel.h"
#include "pdc/CodeGen/BuildFiles.h"
#include "pdc/Driver/CommandLine.h"
#include "pdc/Driver/Supervisor.h"
#include "pdc/Driver/Toolchain.h"
#include "pdc/Plan/Plan.h"
#include "pdcrt/Launcher.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <ostream>
#include <unistd.h>

using namespace pdc;
namespace fs = std::filesystem;

/// Tells a rank that mpirun has started it, and that other variables that look like a rank mean nothing.
static constexpr const char* launchedBy = "PDC_LAUNCHED_BY";

/// What Open MPI sets for the processes of a job; with it, mpirun refuses to start another one.
static std::vector<std::string> variablesOfJobs() {
  return {
      "OMPI_APP_CTX",       "OMPI_ARGV",          "OMPI_COMMAND",      "OMPI_COMM_WORLD_",      "OMPI_FILE_LOCATION",
      "OMPI_FIRST_RANKS",   "OMPI_MCA_ess",       "OMPI_MCA_initial_", "OMPI_MCA_orte_app_num", "OMPI_MCA_orte_bound",
      "OMPI_MCA_orte_ess_", "OMPI_MCA_orte_hnp_", "OMPI_MCA_orte_job", "OMPI_MCA_orte_launch",  "OMPI_MCA_orte_local_",
      "OMPI_MCA_orte_num_", "OMPI_MCA_orte_top_", "OMPI_MCA_pmix=",    "OMPI_NUM_APP_CTX",      "OMPI_UNIVERSE_SIZE",
      "PMIX_BFROP_",        "PMIX_DSTORE_",       "PMIX_GDS_MODULE",   "PMIX_HOSTNAME",         "PMIX_ID",
      "PMIX_NAMESPACE",     "PMIX_RANK",          "PMIX_SECURITY_",    "PMIX_SERVER_",          "PMIX_SYSTEM_TMPDIR",
      "PMIX_VERSION"};
}

Command pdc::mpiCommand() {
  // One core per rank: two spinning thread pools on the same cores are many times slower than one thread each.
  Command command{.words = {"mpirun", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"},
                  .environment = {{"OMP_WAIT_POLICY", "passive"},
                                  {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                  {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                  {launchedBy, "mpirun"}}};
  // In a job of mpirun or srun, or in a shell that has its variables: those are of another run.
  if (std::getenv("OMPI_COMM_WORLD_RANK") || std::getenv("PMIX_NAMESPACE")) command.without = variablesOfJobs();
  if (!std::getenv("OMP_NUM_THREADS")) command.environment["OMP_NUM_THREADS"] = "1";
  return command;
}

namespace {

/// The command that runs all ranks of `plan`, built into `build`.
Command commandOf(const Plan& plan, const std::string& build, const LaunchOptions& options,
                  std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--dir", options.folder});
  Command command = mpiCommand();
  const bool onGpus = fs::exists(options.folder + "/stage0" + sourceSuffix(Target::cuda)); // ranks are threads there
  if (options.threads || onGpus || (processesOf(plan) == 1 && options.hostfile.empty())) {
    command.words = {build + "/pipeline", "--threads"};
    command.words.insert(command.words.end(), arguments.begin(), arguments.end());
    return command;
  }
  if (!options.hostfile.empty())
    command.words.insert(command.words.end(),
                         {"--hostfile", options.hostfile, "--mca", "mca_base_env_list",
                          "PDC_CONTROL;PDC_CONTROL_TOKEN;PDC_CONTROL_PATIENCE;" + std::string(launchedBy)});
  for (const Processes& some : processGroups(plan)) {
    if (some.first > 0) command.words.push_back(":");
    command.words.insert(command.words.end(), {"-n", std::to_string(some.count), build + "/" + some.executable});
    command.words.insert(command.words.end(), arguments.begin(), arguments.end());
  }
  return command;
}

/// Seconds without any progress after which a run counts as hung: a hundred steps of the plan, a minute at least.
double watchdogOf(const Plan& plan) {
  const double step = plan.timeMs / 1e3 * static_cast<double>(std::max<std::int64_t>(1, plan.microbatches));
  return std::max(60.0, 100 * step);
}

/// Runs all ranks, and again from the newest checkpoint where one was lost.
Expected<int> runSupervised(const Plan& plan, const LaunchOptions& options, std::vector<std::string> arguments,
                            Diagnostics& diags) {
  SupervisorOptions supervisor = {.ranks = processesOf(plan),
                                  .otherHosts = !options.hostfile.empty(),
                                  .address = options.address,
                                  .watchdogSeconds =
                                      options.watchdogSeconds > 0 ? options.watchdogSeconds : watchdogOf(plan),
                                  .startSeconds = pdcrt::startPatience(),
                                  .recordings = options.folder};
  for (int restart = 0;; ++restart) {
    const Command command = commandOf(plan, options.folder + "/out", options, arguments);
    supervisor.launcher = command.words[0] == "mpirun";
    const Expected<RunEnding> ending = supervise(command, supervisor, diags);
    if (!ending) return failure;
    if (!ending->lost || restart == options.maxRestarts) return ending->code;
    std::cerr << "note: restart " << restart + 1 << " of " << options.maxRestarts << " from the newest checkpoint\n";
    if (std::find(arguments.begin(), arguments.end(), "--resume") == arguments.end()) arguments.push_back("--resume");
  }
}

/// What follows `flag`, empty if it is not there.
std::string valueOf(const std::vector<std::string>& arguments, const std::string& flag) {
  const auto found = std::find(arguments.begin(), arguments.end(), flag);
  return found == arguments.end() || found + 1 == arguments.end() ? "" : *(found + 1);
}

/// Events of each rank that make a trace of some 16 MiB at most.
std::int64_t reportedEvents(const Plan& plan) {
  return std::max<std::int64_t>(1, std::min<std::int64_t>(10'000, 100'000 / std::max(1, processesOf(plan))));
}

} // namespace

Expected<int> pdc::launch(const LaunchOptions& options, std::ostream& out, Diagnostics& diags) {
  const std::string planPath = options.folder + "/plan.json";
  std::error_code unreadable;
  if (!std::filesystem::exists(planPath, unreadable))
    return diags.error({.file = options.folder}).help("pdc MODEL.onnx -o " + options.folder + " writes it")
           << "is not a folder that pdc has written: it has no plan.json";
  Expected<std::string> text = readFile(planPath, diags);
  if (!text) return failure;
  Expected<Plan> plan = planFromJson(*text, planPath, diags);
  if (!plan) return failure;
  if (!options.hostfile.empty() && !readFile(options.hostfile, diags)) return failure;

  Expected<TrainedModel> trained = TrainedModel::prepare({.folder = options.folder,
                                                          .model = options.model,
                                                          .exportFile = options.exportFile,
                                                          .stateDict = options.stateDict,
                                                          .adapter = options.adapter,
                                                          .weights = options.exportFolder},
                                                         *plan, diags);
  if (!trained) return failure;

  std::vector<std::string> arguments = options.arguments;
  if (!trained->weights().empty()) arguments.insert(arguments.end(), {"--export-weights", trained->weights()});
  // Where ranks share a folder, the report can show what they measured: the beginning of the run, unless asked for
  // more.
  std::string trace = valueOf(arguments, "--trace"), metrics = valueOf(arguments, "--metrics");
  const bool together = options.hostfile.empty();
  // Two runs at once would write the same files: the second leaves no report.
  const FolderLock lock(options.folder);
  const bool reports = !lock.isOthers() && ::access(options.folder.c_str(), W_OK) == 0;
  if (lock.isOthers())
    diags.remark({.file = options.folder}) << "is being run by another process; this run leaves no report there";
  if (trace.empty() && together && reports) {
    trace = options.folder + "/trace.json";
    arguments.insert(arguments.end(), {"--trace", trace, "--trace-events", std::to_string(reportedEvents(*plan))});
  }
  if (metrics.empty() && together && reports) {
    metrics = options.folder + "/metrics.jsonl";
    arguments.insert(arguments.end(), {"--metrics", metrics});
  }

  if (!buildProject(options.folder, "out", {}, diags)) return failure;
  out.flush();
  const Expected<int> code = runSupervised(*plan, options, std::move(arguments), diags);
  if (!code) {
    static_cast<void>(trained->finish(exitCodeOf(diags), out, diags));
    return code;
  }
  const Expected<int> finished = trained->finish(*code, out, diags);
  if (!finished || *finished != 0) return finished;
  if (reports && !rewriteReport(options.folder, *plan, trace, metrics, diags)) return failure;
  return 0;
}
