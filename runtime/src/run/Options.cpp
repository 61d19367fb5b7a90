// Flags by CLI11.
#include "Options.h"

#include "data/Data.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>

namespace pdcrt {
namespace {

/// The parent of the executable's folder if that holds plan.json (a build folder inside pdc's output), else its folder.
std::string defaultDirectory() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  if (error) return ".";
  const std::filesystem::path parent = folder.parent_path();
  return (std::filesystem::exists(parent / "plan.json", error) ? parent : folder).string();
}

} // namespace

Status parseOptions(int argc, char** argv, RunOptions& options, bool& finished) {
  CLI::App app("Trains the stages that this program contains.");
  std::string shuffle = "on", graphs = "on", normalize, tokens;
  std::uint64_t seed = 0;
  double rate = 0;
  app.add_option("--data", options.data,
                 "folder with one .npy file per input and label, a file of tokens (.bin, .npy), or 'synthetic'")
      ->type_name("DIR|FILE");
  app.add_option("--eval", options.evaluationData, "data to evaluate on after training")->type_name("DIR");
  app.add_option("--eval-every", options.evaluateEvery, "steps between evaluations, for which the pipeline drains")
      ->check(CLI::PositiveNumber)
      ->type_name("N")
      ->needs("--eval");
  auto* epochs = app.add_option("--epochs", options.epochs, "times to go through the data (1)")
                     ->check(CLI::PositiveNumber)
                     ->type_name("E");
  app.add_option("--steps", options.steps, "minibatches to train on; updates, where a schedule flushes")
      ->check(CLI::PositiveNumber)
      ->type_name("N")
      ->excludes(epochs);
  auto* seedFlag = app.add_option("--seed", seed, "of the order of samples and of random operators")->type_name("S");
  auto* rateFlag = app.add_option("--lr", rate, "learning rate instead of training.json's")
                       ->check(CLI::NonNegativeNumber)
                       ->type_name("RATE");
  app.add_option("--shuffle", shuffle, "on or off: another order of samples in each epoch (on)")
      ->check(CLI::IsMember({"on", "off"}))
      ->type_name("");
  app.add_option("--normalize", normalize, "of float inputs: (x - MEAN) / STD, also lists by channel")
      ->type_name("MEAN/STD");
  app.add_option("--tokens", tokens, "type of the tokens in a raw file: uint8, uint16 or uint32 (.bin: uint16)")
      ->check(CLI::IsMember({"uint8", "uint16", "uint32"}))
      ->type_name("");
  app.add_option("--label-shift", options.labelShift,
                 "of a token stream: how far on a label is; 0 where the model shifts its labels itself (1)")
      ->check(CLI::IsMember({0, 1}))
      ->type_name("");
  app.add_option("--samples", options.samples, "size of the synthetic data (enough for --steps)")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  app.add_option("--metrics", options.metricsFile, "one JSON object per step")->type_name("F.jsonl");
  app.add_option("--tensorboard", options.tensorboardFolder, "write curves there that TensorBoard shows")
      ->type_name("DIR");
  app.add_option("--trace", options.traceFile, "what each rank did and when, for Perfetto")->type_name("F.json");
  app.add_option("--trace-events", options.traceEvents, "events of a rank in the trace, at most: the first ones")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->type_name("N");
  app.add_option("--export-weights", options.exportFolder, "write the trained weights there, a file per stage")
      ->type_name("DIR");
  app.add_option("--checkpoint-dir", options.checkpointFolder,
                 "write checkpoints there: at the end, after a signal, and --checkpoint-every steps")
      ->type_name("DIR");
  app.add_option("--checkpoint-every", options.checkpointEvery, "steps between checkpoints")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  app.add_option("--keep", options.checkpointsKept, "checkpoints to keep, the newest (2)")
      ->check(CLI::PositiveNumber)
      ->type_name("K");
  app.add_flag("--resume", options.resume, "go on from the newest checkpoint");
  app.add_option("--log-every", options.logEvery, "steps between progress lines")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  app.add_option("--profile", options.profileFile, "time every fusion group instead of training (a plan of one stage)")
      ->type_name("F.json");
  app.add_option("--link", options.linkFile, "time messages between two ranks of this machine instead of training")
      ->type_name("F.json");
  app.add_option("--dir", options.directory, "where plan.json is")->type_name("DIR");
  app.add_flag("--threads", options.threads, "run all ranks as threads of this process, without MPI");
  app.add_option("--transport", options.transport,
                 "nccl or host: how blocks go from GPU to GPU between processes (nccl where each rank has a GPU)")
      ->check(CLI::IsMember({"nccl", "host"}))
      ->type_name("");
  app.add_option("--kernel-threads", options.kernelThreads, "OpenMP threads of a rank (those that it was planned with)")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  app.add_option("--graphs", graphs, "on or off: on GPUs, launch the calls of an action as one (on)")
      ->check(CLI::IsMember({"on", "off"}))
      ->type_name("");
  app.add_flag("--tf32", options.tf32,
               "on GPUs, round the operands of products and convolutions to 10 bits of mantissa");
  app.add_flag("--time-algorithms", options.timesAlgorithms,
               "on GPUs, time the algorithms of convolutions and attention while the program starts, and compute by "
               "the fastest: "
               "not the same in every run, and neither are the bits");
  app.add_flag("--sync-sends", options.synchronousSends, "MPI may not buffer (tests)");
  app.add_option("--rank", options.rank, "rank of this process in the plan")
      ->check(CLI::NonNegativeNumber)
      ->type_name("R");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    finished = true;
    return {};
  } catch (const CLI::ParseError& error) {
    return {Exit::usage, error.what(), "--help lists the flags"};
  }
  if (seedFlag->count()) options.seed = seed;
  if (rateFlag->count()) options.learningRate = rate;
  options.shuffle = shuffle == "on";
  options.graphs = graphs == "on";
  if (options.directory.empty()) options.directory = defaultDirectory();
  if (!normalize.empty())
    if (Status status = parseNormalize(normalize, options.mean, options.deviation); !status) return status;
  if (options.checkpointFolder.empty() && (options.resume || options.checkpointEvery > 0))
    return {Exit::usage, std::string(options.resume ? "--resume" : "--checkpoint-every") + " needs a folder",
            "name that of the checkpoints with --checkpoint-dir=DIR"};
  if (options.data.empty() && options.profileFile.empty() && options.linkFile.empty())
    return {Exit::usage, "--data is missing", "give a folder with .npy files, or --data=synthetic --steps=N"};
  if (options.data.empty()) options.data = "synthetic";
  options.tokenType = tokenTypeOf(tokens);
  const std::string streamFlag = options.tokenType         ? "--tokens=" + tokens
                                 : options.labelShift == 0 ? "--label-shift=0"
                                                           : "";
  if (!streamFlag.empty() && !isTokenStream(options.data) && !isTokenStream(options.evaluationData))
    return {Exit::usage, streamFlag + " is for a file of tokens, --data=" + options.data + " is not a file",
            "give the file: --data=train.bin"};
  if (options.data == "synthetic" && options.samples == 0 && options.steps == 0 && options.profileFile.empty() &&
      options.linkFile.empty())
    return {Exit::usage, "--data=synthetic has no size", "give --steps=N, or --samples=N"};
  return {};
}

} // namespace pdcrt
