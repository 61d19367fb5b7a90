// Flags by CLI11.
#include "Options.h"

#include "data/Data.h"
#include "pdcrt/Part.h"
#include "pdcrt/RunFlags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cassert>
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

/// What is typed, before it is looked at.
struct Typed {
  std::string shuffle = "on", graphs = "on", normalize, tokens;
  std::uint64_t seed = 0;
  double rate = 0;
};

/// A flag of runFlags.
template <class T>
CLI::Option* addRunFlag(CLI::App& app, const std::string& name, T& value) {
  const RunFlag* const flag =
      std::find_if(std::begin(runFlags), std::end(runFlags), [&](const RunFlag& each) { return each.name == name; });
  assert(flag != std::end(runFlags));
  const std::string text = flag->text;
  return app.add_option(name, value, text.substr(0, text.find('\n')))->type_name(flag->type)->group(flag->group);
}

/// The flags that pdc-run has, too.
void addRunFlags(CLI::App& app, RunOptions& options, Typed& typed) {
  addRunFlag(app, "--data", options.data);
  addRunFlag(app, "--eval", options.evaluationData);
  addRunFlag(app, "--eval-every", options.evaluateEvery)->check(CLI::PositiveNumber)->needs("--eval");
  CLI::Option* const epochs = addRunFlag(app, "--epochs", options.epochs)->check(CLI::PositiveNumber);
  addRunFlag(app, "--steps", options.steps)->check(CLI::PositiveNumber)->excludes(epochs);
  addRunFlag(app, "--seed", typed.seed);
  addRunFlag(app, "--lr", typed.rate)->check(CLI::NonNegativeNumber);
  addRunFlag(app, "--shuffle", typed.shuffle)->check(CLI::IsMember({"on", "off"}));
  addRunFlag(app, "--normalize", typed.normalize);
  addRunFlag(app, "--tokens", typed.tokens)->check(CLI::IsMember({"uint8", "uint16", "uint32"}));
  addRunFlag(app, "--label-shift", options.labelShift)->check(CLI::IsMember({0, 1}));
  addRunFlag(app, "--samples", options.samples)->check(CLI::PositiveNumber);
  addRunFlag(app, "--metrics", options.metricsFile);
  addRunFlag(app, "--tensorboard", options.tensorboardFolder);
  addRunFlag(app, "--trace", options.traceFile);
  addRunFlag(app, "--checkpoint-dir", options.checkpointFolder);
  addRunFlag(app, "--checkpoint-every", options.checkpointEvery)->check(CLI::PositiveNumber);
  addRunFlag(app, "--keep", options.checkpointsKept)->check(CLI::PositiveNumber);
  addRunFlag(app, "--log-every", options.logEvery)->check(CLI::PositiveNumber);
}

/// The flags that pdc-run and the tools give themselves, and those for experts.
void addProgramFlags(CLI::App& app, RunOptions& options, Typed& typed) {
  app.add_option("--trace-events", options.traceEvents, "events of a rank in the trace, at most: the first ones")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->type_name("N");
  app.add_option("--export-weights", options.exportFolder, "write the trained weights there, a file per stage")
      ->type_name("DIR");
  app.add_flag("--resume", options.resume, "go on from the newest checkpoint");
  app.add_option("--profile", options.profileFile, "time every fusion group instead of training (a plan of one stage)")
      ->type_name("F.json");
  app.add_option("--link", options.linkFile, "time messages between two ranks of this machine instead of training")
      ->type_name("F.json");
  app.add_option("--team", options.linkTeam, "with --link: time collectives of a team of N ranks")
      ->check(CLI::Range(2, static_cast<int>(mostMembers)))
      ->type_name("N")
      ->needs("--link");
  app.add_option("--dir", options.directory, "where plan.json is")->type_name("DIR");
  app.add_flag("--threads", options.threads, "run all ranks as threads of this process, without MPI");
  app.add_option("--transport", options.transport,
                 "nccl or host: how blocks go from GPU to GPU between processes (nccl where each rank has a GPU)")
      ->check(CLI::IsMember({"nccl", "host"}))
      ->type_name("");
  app.add_option("--kernel-threads", options.kernelThreads, "OpenMP threads of a rank (those that it was planned with)")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  app.add_option("--graphs", typed.graphs, "on or off: on GPUs, launch the calls of an action as one (on)")
      ->check(CLI::IsMember({"on", "off"}))
      ->type_name("");
  app.add_flag("--tf32", options.tf32,
               "on GPUs, round the operands of products and convolutions to 10 bits of mantissa");
  app.add_flag(
      "--time-algorithms", options.timesAlgorithms,
      "on GPUs, time the algorithms of convolutions and attention while the program starts, and compute by the "
      "fastest: not the same in every run, and neither are the bits");
  app.add_flag("--sync-sends", options.synchronousSends, "MPI may not buffer (tests)");
  app.add_option("--rank", options.rank, "rank of this process in the plan")
      ->check(CLI::NonNegativeNumber)
      ->type_name("R");
}

/// What flags need of each other.
Status checkOptions(RunOptions& options, const Typed& typed) {
  if (!typed.normalize.empty())
    if (Status status = parseNormalize(typed.normalize, options.mean, options.deviation); !status) return status;
  if (options.checkpointFolder.empty() && (options.resume || options.checkpointEvery > 0))
    return {Exit::usage, std::string(options.resume ? "--resume" : "--checkpoint-every") + " needs a folder",
            "name that of the checkpoints with --checkpoint-dir=DIR"};
  if (options.data.empty() && options.profileFile.empty() && options.linkFile.empty())
    return {Exit::usage, "--data is missing", "give a folder with .npy files, or --data=synthetic --steps=N"};
  if (options.data.empty()) options.data = "synthetic";
  options.tokenType = tokenTypeOf(typed.tokens);
  const std::string streamFlag = options.tokenType         ? "--tokens=" + typed.tokens
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

} // namespace

Status parseOptions(int argc, char** argv, RunOptions& options, bool& finished) {
  CLI::App app("Trains the stages that this program contains.");
  Typed typed;
  addRunFlags(app, options, typed);
  addProgramFlags(app, options, typed);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    finished = true;
    return {};
  } catch (const CLI::ParseError& error) {
    return {Exit::usage, error.what(), "--help lists the flags"};
  }
  if (app.count("--seed") > 0) options.seed = typed.seed;
  if (app.count("--lr") > 0) options.learningRate = typed.rate;
  options.shuffle = typed.shuffle == "on";
  options.graphs = typed.graphs == "on";
  if (options.directory.empty()) options.directory = defaultDirectory();
  return checkOptions(options, typed);
}

} // namespace pdcrt
