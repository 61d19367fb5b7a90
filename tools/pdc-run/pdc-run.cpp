// pdc-run DIR --data D …: builds a folder that pdc has written, launches its ranks, and exports the trained model.
#include "../ConfigFile.h"
#include "../StandardFlags.h"
#include "pdc/Driver/CommandLine.h"
#include "pdc/Driver/Doctor.h"
#include "pdc/Driver/Launch.h"
#include "pdcrt/RunFlags.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>
#include <vector>

using namespace pdc;

namespace {

/// A flag of the generated program, which gets its value as it is.
struct PassedFlag {
  pdcrt::RunFlag flag;
  std::string value = {};
};

} // namespace

int main(int argc, char** argv) {
  CLI::App app("Builds and runs a pipeline that pdc has generated", "pdc-run");
  addStandardFlags(app);
  LaunchOptions options;
  auto* folder = app.add_option("DIR", options.folder, "what pdc has written");
  bool doctor = false;
  app.add_flag("--doctor", doctor, "check this machine, and say what to install");
  std::vector<PassedFlag> passed;
  for (const pdcrt::RunFlag& flag : pdcrt::runFlags) passed.push_back({flag});
  for (auto& [flag, value] : passed)
    if (CLI::Option* option = app.add_option(flag.name, value, flag.text)->type_name(flag.type)->group(flag.group);
        flag.type == std::string("N"))
      option->check(wholeNumber(0)); // before anything is built
  bool resume = false;
  app.add_flag("--resume", resume, "go on from the newest checkpoint")->group("Checkpoints");
  app.add_option("--max-restarts", options.maxRestarts, "restarts from the newest checkpoint when a rank is lost")
      ->check(wholeNumber(0))
      ->type_name("N")
      ->group("Checkpoints");
  app.option_defaults()->group("Ranks");
  app.add_option(
         "--watchdog", options.watchdogSeconds,
         "time without progress after which a run counts as hung\nDefault: 100 steps of the plan, at least 60 seconds.")
      ->check(CLI::PositiveNumber)
      ->type_name("SECONDS");
  app.add_flag("--threads", options.threads, "run all ranks as threads of one process, without MPI");
  auto* hostfile = app.add_option("--hostfile", options.hostfile, "machines, as mpirun reads them")->type_name("H");
  std::string clusterFile;
  app.add_option("--cluster", clusterFile,
                 "with --doctor: measure the links between the machines\nDIR's program measures, and FILE is written "
                 "for pdc --cluster.")
      ->type_name("FILE")
      ->needs(hostfile);
  app.add_option("--address", options.address,
                 "name by which the other machines reach this one\nDefault: its host name.")
      ->type_name("HOST")
      ->needs(hostfile);
  app.option_defaults()->group("Output");
  app.add_option("--model", options.model, "the model that DIR was generated from, if it has moved")
      ->type_name("MODEL.onnx");
  app.add_option("--export", options.exportFile, "write the trained model there")->type_name("trained.onnx");
  app.add_option(
         "--export-state-dict", options.stateDict,
         "write the PyTorch module's state_dict there\nWith the module's names and shapes. See docs/FromPyTorch.md.")
      ->type_name("F.safetensors");
  app.add_option("--export-adapter", options.adapter,
                 "write the adapters of pdc --lora there, as PEFT's files\nstrip takes a prefix off the paths of the "
                 "layers, where a wrapper was exported. See docs/FineTuning.md.")
      ->type_name("DIR[,strip=PREFIX]");
  app.add_option("--export-weights", options.exportFolder, "write the trained weights there, a file per stage")
      ->type_name("DIR");
  app.option_defaults()->group("Options");
  addConfigFlag(app);
  if (const std::optional<int> code = parsed(app, argc, argv)) return *code;
  if (doctor) {
    const bool complete = examineMachine(std::cout);
    if (clusterFile.empty()) return complete ? 0 : 1;
    Diagnostics diags(&std::cerr);
    if (options.folder.empty())
      (void)(diags.error({}).exit(ExitCode::usage).help("name a folder that pdc has written: its program measures")
             << "--cluster needs DIR");
    else if (measureCluster(options.folder, options.hostfile, clusterFile, std::cout, diags))
      return complete ? 0 : 1;
    return exitCodeOf(diags);
  }
  if (folder->empty()) {
    std::cerr << "error: DIR is missing\nhelp: name the folder that pdc has written: pdc-run DIR --data D\n";
    return static_cast<int>(ExitCode::usage);
  }
  bool keepsCheckpoints = false;
  for (const auto& [flag, value] : passed) {
    if (value.empty()) continue;
    options.arguments.insert(options.arguments.end(), {flag.name, value});
    keepsCheckpoints = keepsCheckpoints || std::string(flag.name) == "--checkpoint-dir";
  }

  if (options.maxRestarts > 0 && !keepsCheckpoints) {
    std::cerr << "error: --max-restarts needs checkpoints\nhelp: give --checkpoint-dir=DIR and --checkpoint-every=N\n";
    return static_cast<int>(ExitCode::usage);
  }
  if (resume) options.arguments.push_back("--resume");

  Diagnostics diags(&std::cerr);
  const Expected<int> code = launch(options, std::cout, diags);
  return code ? *code : exitCodeOf(diags);
}
