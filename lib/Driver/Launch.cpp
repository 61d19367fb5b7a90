// cmake, mpirun, and the way back to ONNX.
#include "pdc/Driver/Launch.h"

#include "OutputFolder.h"
#include "RunReport.h"
#include "pdc/CodeGen/BuildFiles.h"
#include "pdc/Driver/Supervisor.h"
#include "pdc/Driver/Toolchain.h"
#include "pdc/Import/TrainedOnnx.h"
#include "pdc/Plan/Plan.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <ostream>

using namespace pdc;
namespace fs = std::filesystem;

Command pdc::mpiCommand() {
  // One core per rank: two spinning thread pools on the same cores are many times slower than one thread each.
  Command command{
      {"mpirun", "--quiet", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"},
      {{"OMP_WAIT_POLICY", "passive"}, {"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}},
      ""};
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
  if (options.threads || onGpus || (plan.ranks.size() == 1 && options.hostfile.empty())) {
    command.words = {build + "/pipeline", "--threads"};
    command.words.insert(command.words.end(), arguments.begin(), arguments.end());
    return command;
  }
  if (!options.hostfile.empty())
    command.words.insert(command.words.end(), {"--hostfile", options.hostfile, "--mca", "mca_base_env_list",
                                               "PDC_CONTROL;PDC_CONTROL_TOKEN;PDC_CONTROL_PATIENCE"});
  for (std::size_t i = 0; i < plan.ranks.size();) {
    const std::string program = executableOfRank(plan, plan.ranks[i]);
    std::size_t next = i;
    while (next < plan.ranks.size() && executableOfRank(plan, plan.ranks[next]) == program) ++next;
    if (i > 0) command.words.push_back(":");
    command.words.insert(command.words.end(), {"-n", std::to_string(next - i), build + "/" + program});
    command.words.insert(command.words.end(), arguments.begin(), arguments.end());
    i = next;
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
  const SupervisorOptions supervisor = {.ranks = static_cast<int>(plan.ranks.size()),
                                        .otherHosts = !options.hostfile.empty(),
                                        .address = options.address,
                                        .watchdogSeconds =
                                            options.watchdogSeconds > 0 ? options.watchdogSeconds : watchdogOf(plan),
                                        .recordings = options.folder};
  for (int restart = 0;; ++restart) {
    const Expected<RunEnding> ending =
        supervise(commandOf(plan, options.folder + "/out", options, arguments), supervisor, diags);
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
  return std::max<std::int64_t>(
      1, std::min<std::int64_t>(10'000,
                                100'000 / std::max<std::int64_t>(1, static_cast<std::int64_t>(plan.ranks.size()))));
}

/// Puts the weights that the stages have written into the model that they come from.
Status exportModel(const LaunchOptions& options, const std::string& weights, Diagnostics& diags) {
  Expected<std::string> path = readFile(options.folder + "/" + modelPathFile, diags);
  if (!path) return failure;
  path->erase(path->find_last_not_of('\n') + 1);
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(weights))
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().string());
  std::sort(names.begin(), names.end());
  std::vector<pdcrt::SafetensorsFile> files(names.size());
  std::map<std::string, pdcrt::TensorRecord> tensors;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (pdcrt::Status status = files[i].open(names[i]); !status) return reportFile(status, names[i], diags);
    tensors.insert(files[i].tensors().begin(), files[i].tensors().end());
  }
  return writeTrainedOnnx((fs::path(options.folder) / *path).lexically_normal().string(), tensors, options.exportFile,
                          diags);
}

} // namespace

Expected<int> pdc::launch(const LaunchOptions& options, std::ostream& out, Diagnostics& diags) {
  const std::string planPath = options.folder + "/plan.json";
  Expected<std::string> text = readFile(planPath, diags);
  if (!text) return failure;
  Expected<Plan> plan = planFromJson(*text, planPath, diags);
  if (!plan || !buildProject(options.folder, "out", {}, diags)) return failure;

  std::vector<std::string> arguments = options.arguments;
  std::string weights = options.exportFolder;
  std::optional<TemporaryFolder> temporary;
  if (weights.empty() && !options.exportFile.empty()) {
    Expected<TemporaryFolder> folder = TemporaryFolder::create(diags);
    if (!folder) return failure;
    temporary.emplace(std::move(*folder));
    weights = temporary->path();
  }
  if (!weights.empty()) arguments.insert(arguments.end(), {"--export-weights", weights});
  // Where ranks share a folder, the report can show what they measured: the beginning of the run, unless asked for
  // more.
  std::string trace = valueOf(arguments, "--trace"), metrics = valueOf(arguments, "--metrics");
  const bool together = options.hostfile.empty();
  if (trace.empty() && together) {
    trace = options.folder + "/trace.json";
    arguments.insert(arguments.end(), {"--trace", trace, "--trace-events", std::to_string(reportedEvents(*plan))});
  }
  if (metrics.empty() && together) {
    metrics = options.folder + "/metrics.jsonl";
    arguments.insert(arguments.end(), {"--metrics", metrics});
  }

  out.flush();
  const Expected<int> code = runSupervised(*plan, options, std::move(arguments), diags);
  if (!code || *code != 0) return code;
  if (!rewriteReport(options.folder, *plan, trace, metrics, diags)) return failure;
  if (options.exportFile.empty()) return code;
  if (!exportModel(options, weights, diags)) return failure;
  out << "wrote " << options.exportFile << "\n";
  return 0;
}
