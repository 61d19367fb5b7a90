// pdc-run DIR --data D …: builds a folder that pdc has written, launches its ranks, and exports the trained model.
#include "../ConfigFile.h"
#include "../StandardFlags.h"
#include "pdc/Driver/CommandLine.h"
#include "pdc/Driver/Doctor.h"
#include "pdc/Driver/Launch.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>
#include <vector>

using namespace pdc;

namespace {

/// A flag of the generated program, which gets it as it is.
struct ProgramFlag {
  const char* name;
  const char* type;
  const char* group;
  const char* text;
  std::string value = {};
};

std::vector<ProgramFlag> programFlags() {
  return {
      {"--data", "DIR|FILE|synthetic", "Data",
       "what to train on\nA folder of .npy files, a file of tokens (.bin, .npy), or noise. See docs/Data.md."},
      {"--eval", "DIR|FILE|synthetic", "Data", "what to evaluate on after training"},
      {"--eval-every", "N", "Data", "evaluate after every N steps too\nThe pipeline drains before each evaluation."},
      {"--tokens", "uint8|uint16|uint32", "Data", "type of the tokens in a raw file (.bin: uint16)"},
      {"--label-shift", "0|1", "Data",
       "how far on a label is in a token stream\n0 where the model shifts its labels itself. Default: 1."},
      {"--normalize", "MEAN/STD", "Data", "normalise float inputs: (x - MEAN) / STD"},
      {"--samples", "N", "Data", "size of synthetic data"},
      {"--shuffle", "on|off", "Data", "another order of samples in each epoch"},
      {"--epochs", "N", "Training", "times to go through the data"},
      {"--steps", "N", "Training", "number of minibatches to train on\nNumber of updates, where the schedule flushes."},
      {"--seed", "N", "Training", "seed of the order of samples and of random operators"},
      {"--lr", "RATE", "Training", "learning rate instead of training.json's"},
      {"--checkpoint-dir", "DIR", "Checkpoints",
       "write checkpoints there\nAt the end, after a signal, and after every --checkpoint-every steps."},
      {"--checkpoint-every", "N", "Checkpoints", "steps between checkpoints"},
      {"--keep", "N", "Checkpoints", "number of checkpoints to keep, the newest"},
      {"--log-every", "N", "Output", "steps between progress lines"},
      {"--metrics", "F.jsonl", "Output", "write one JSON object per step"},
      {"--tensorboard", "DIR", "Output", "write curves for TensorBoard"},
      {"--trace", "F.json", "Output", "write what each rank did and when, for Perfetto"}};
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app("Builds and runs a pipeline that pdc has generated", "pdc-run");
  addStandardFlags(app);
  LaunchOptions options;
  auto* folder = app.add_option("DIR", options.folder, "what pdc has written");
  bool doctor = false;
  app.add_flag("--doctor", doctor, "check this machine, and say what to install");
  std::vector<ProgramFlag> passed = programFlags();
  for (ProgramFlag& flag : passed)
    if (CLI::Option* option = app.add_option(flag.name, flag.value, flag.text)->type_name(flag.type)->group(flag.group);
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
  for (const ProgramFlag& flag : passed) {
    if (flag.value.empty()) continue;
    options.arguments.insert(options.arguments.end(), {flag.name, flag.value});
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
