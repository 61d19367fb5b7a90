// pdc-run DIR --data D …: builds a folder that pdc has written, launches its ranks, and exports the trained model.
#include "../StandardFlags.h"
#include "pdc/Driver/CommandLine.h"
#include "pdc/Driver/Doctor.h"
#include "pdc/Driver/Launch.h"

#include <CLI/CLI.hpp>
#include <iostream>

using namespace pdc;

int main(int argc, char** argv) {
  CLI::App app("Builds and runs a pipeline that pdc has generated", "pdc-run");
  addStandardFlags(app);
  LaunchOptions options;
  // Flags of the generated program, handed on as they are.
  std::string data, eval, epochs, steps, seed, shuffle, normalize, metrics, trace, logEvery, lr, samples, checkpoints,
      every, keep, evalEvery;
  auto* folder = app.add_option("DIR", options.folder, "what pdc has written");
  bool doctor = false;
  app.add_flag("--doctor", doctor, "say what this machine has and lacks, and what to type");
  const std::pair<const char*, std::string*> passed[] = {{"--data", &data},
                                                         {"--eval", &eval},
                                                         {"--eval-every", &evalEvery},
                                                         {"--epochs", &epochs},
                                                         {"--steps", &steps},
                                                         {"--seed", &seed},
                                                         {"--lr", &lr},
                                                         {"--shuffle", &shuffle},
                                                         {"--normalize", &normalize},
                                                         {"--samples", &samples},
                                                         {"--trace", &trace},
                                                         {"--log-every", &logEvery},
                                                         {"--metrics", &metrics},
                                                         {"--checkpoint-dir", &checkpoints},
                                                         {"--checkpoint-every", &every},
                                                         {"--keep", &keep}};
  const char* const help[] = {"folder of .npy files, or synthetic",
                              "data to evaluate on after training",
                              "and every so many steps, for which the pipeline drains",
                              "times to go through the data",
                              "minibatches to train on; updates, where the schedule flushes",
                              "of the order of samples and of random operators",
                              "learning rate instead of training.json's",
                              "on or off: another order of samples in each epoch",
                              "of float inputs: MEAN/STD",
                              "size of synthetic data",
                              "what each rank did and when, for Perfetto",
                              "steps between progress lines",
                              "one JSON object per step",
                              "write checkpoints there: at the end, after a signal, and --checkpoint-every steps",
                              "steps between checkpoints",
                              "checkpoints to keep, the newest"};
  for (std::size_t i = 0; i < std::size(passed); ++i) app.add_option(passed[i].first, *passed[i].second, help[i]);
  bool resume = false;
  app.add_flag("--resume", resume, "go on from the newest checkpoint");
  app.add_option("--max-restarts", options.maxRestarts,
                 "go on by itself, so many times, from the newest checkpoint when a rank is lost")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  app.add_option("--watchdog", options.watchdogSeconds,
                 "without any progress, after which a run counts as hung (100 steps of the plan, 60 at least)")
      ->check(CLI::PositiveNumber)
      ->type_name("SECONDS");
  app.add_flag("--threads", options.threads, "run all ranks as threads of one process, without MPI");
  auto* hostfile = app.add_option("--hostfile", options.hostfile, "machines, as mpirun reads them")->type_name("H");
  std::string clusterFile;
  app.add_option("--cluster", clusterFile, "with --doctor: measure the links between the machines with DIR's program")
      ->type_name("FILE")
      ->needs(hostfile);
  app.add_option("--address", options.address, "by which the other machines reach this one (its host name)")
      ->type_name("HOST")
      ->needs(hostfile);
  app.add_option("--model", options.model,
                 "with --export or --export-state-dict: the model that DIR was generated from, if it has moved")
      ->type_name("MODEL.onnx");
  app.add_option("--export", options.exportFile, "write the trained model there")->type_name("trained.onnx");
  app.add_option("--export-state-dict", options.stateDict,
                 "write the weights there, with the names and shapes of the PyTorch module's state_dict")
      ->type_name("F.safetensors");
  app.add_option("--export-weights", options.exportFolder, "write the trained weights there, a file per stage")
      ->type_name("DIR");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
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
  for (const auto& [flag, value] : passed)
    if (!value->empty()) options.arguments.insert(options.arguments.end(), {flag, *value});

  if (options.maxRestarts > 0 && checkpoints.empty()) {
    std::cerr << "error: --max-restarts needs checkpoints\nhelp: give --checkpoint-dir=DIR and --checkpoint-every=N\n";
    return static_cast<int>(ExitCode::usage);
  }
  if (resume) options.arguments.push_back("--resume");

  Diagnostics diags(&std::cerr);
  const Expected<int> code = launch(options, std::cout, diags);
  return code ? *code : exitCodeOf(diags);
}
