// pdc MODEL.onnx -o DIR: compiles a model to a pipeline of stage programs. `pdc inspect MODEL.onnx` describes a model.
#include "../CompilerFlags.h"
#include "../StandardFlags.h"
#include "pdc/Driver/CommandLine.h"
#include "pdc/Ops/AllOps.h"
#include "pdc/Plan/ScheduleName.h"
#include "pdc/Planner/OptionText.h"
#include "pdc/Schedule/ScheduleFile.h"
#include "pdc/Support/DiagnosticsBuilder.h"

#include <algorithm>
#include <iostream>
#include <numeric>

using namespace pdc;

namespace {

/// The command as it stands in generated files: without the output folder, which says nothing about the program.
std::string commandText(int argc, char** argv) {
  std::string text = "pdc";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "-o" || word == "--output")
      ++i;
    else if (!word.starts_with("--output=") && !(word.starts_with("-o") && word.size() > 2))
      text += " " + shellWord(word);
  }
  return text;
}

/// --schedule: a name, or a file, which leaves nothing to the flags that shape a schedule.
Status applySchedule(const std::string& schedule, const CLI::App& app, CompileOptions& options, Diagnostics& diags) {
  Expected<bool> isFile = isScheduleFile(schedule, diags);
  if (!isFile) return failure;
  if (!*isFile) {
    options.planner.schedule = schedule;
    return success;
  }
  options.scheduleFile = schedule;
  for (const char* flag : {"--weights", "--microbatches", "--sync", "--warmup", "--straight", "--replicas"})
    if (app.count(flag) > 0)
      return diags.error({}).exit(ExitCode::usage).help(std::string("leave out ") + flag)
             << "the schedule in '" << schedule << "' decides what " << flag << " would";
  return success;
}

int inspect(int argc, char** argv) {
  CLI::App app("Describes a model: inputs, outputs, parameters, operators, and what is missing", "pdc inspect");
  std::string model;
  app.add_option("MODEL.onnx", model)->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  Diagnostics diags(&std::cerr);
  OpRegistry ops;
  registerAllOps(ops);
  (void)inspectOnnx(model, ops, std::cout, diags);
  return exitCodeOf(diags);
}

} // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "inspect") return inspect(argc - 1, argv + 1);

  CLI::App app("Compiles an ONNX model to one C++ program per pipeline stage. See also: pdc inspect MODEL.onnx", "pdc");
  addStandardFlags(app);
  CompileOptions options;
  options.version = PDC_VERSION;
  options.command = commandText(argc, argv);
  options.planner.recompute = "auto";
  ModelFlags model;
  model.addTo(app, options);
  model.addPrecisionTo(app);
  std::string warmup = "hide", diagnostics = "text";
  app.add_option("-o,--output", options.output, "folder to write")->type_name("DIR");
  auto* devices = app.add_option("--devices", options.devices, "equal devices on this machine")
                      ->check(CLI::PositiveNumber)
                      ->capture_default_str();
  app.add_option("--cluster", options.clusterFile, "the machines (docs/Planning.md)")
      ->type_name("FILE")
      ->excludes(devices);
  std::string threads = "1", updates = "late";
  app.add_option(
         "--updates", updates,
         "of parameters: early, each as soon as its gradient is there where the schedule allows it, which saves "
         "the memory of gradients; or late, all after the backward")
      ->check(CLI::IsMember({"early", "late"}))
      ->type_name("early|late")
      ->capture_default_str();
  app.add_option("--threads-per-stage", threads,
                 "OpenMP threads of a rank's kernels: a number, or auto (cores for each device)")
      ->check([](const std::string& text) {
        return text == "auto" || CLI::Range(1, 1024)(text).empty()
                   ? std::string()
                   : "'" + text + "' is neither a number from 1 to 1024 nor auto";
      })
      ->type_name("N|auto")
      ->capture_default_str();
  std::string schedule = options.planner.schedule;
  app.add_option("--schedule", schedule,
                 "order of forwards and backwards: " + scheduleNamesText() + ", or a file (docs/FileFormats.md)")
      ->type_name("1f1b|1f1b-flush|gpipe|2bw|zb-h1|zb-v|FILE")
      ->capture_default_str();
  app.add_option("--microbatches", options.planner.microbatches, "minibatches per update, where the schedule flushes")
      ->check(CLI::PositiveNumber);
  app.add_option("--weights", options.planner.weights, "which version of the weights a minibatch uses")
      ->check(CLI::IsMember({"stash", "vertical-sync", "latest"}))
      ->type_name("stash|vertical-sync|latest")
      ->capture_default_str();
  app.add_option("--sync", options.planner.sync, "whether a replicated stage goes on while its gradients are reduced")
      ->check(CLI::IsMember({"overlap", "barrier"}))
      ->type_name("overlap|barrier")
      ->capture_default_str();
  std::string bucket;
  app.add_option(
         "--bucket", bucket,
         "gradients of a replicated stage that are reduced together, while the backward goes on: at most so many "
         "bytes, default 8MiB")
      ->type_name("BYTES");
  app.add_option("--warmup", warmup, "forwards before the first backward, per stage: hide, paper, or numbers N,N,…")
      ->capture_default_str();
  app.add_flag("--straight", options.planner.straight, "no replicated stages");
  app.add_option("--replicas", options.planner.stageReplicas, "exactly these replicas of each stage: 2,1")
      ->delimiter(',');
  app.add_option("--profile", options.profile, "auto, measure, analytic, or a file: where costs come from")
      ->capture_default_str();
  app.add_option("--plan", options.planFile, "use this plan instead of solving")->type_name("FILE");
  app.add_option("--metric", options.metric, "what evaluation reports")
      ->check([](const std::string& text) {
        const bool known = CLI::IsMember({"accuracy", "top5", "perplexity", "mse", "none"})(text).empty();
        return known || pdcrt::isOutputMetric(text)
                   ? std::string()
                   : "'" + text + "' is none of accuracy, top5, perplexity, mse, none, output:NAME";
      })
      ->type_name("accuracy|top5|perplexity|mse|none|output:NAME");
  app.add_option(
         "--recompute", options.planner.recompute,
         "compute again instead of keeping results: nothing; what one pass over memory gives (not with --target=cuda), "
         "and whole forwards where the planner gains by it; whole forwards")
      ->check(CLI::IsMember({"none", "auto", "all"}))
      ->capture_default_str()
      ->type_name("none|auto|all");
  auto* explain = app.add_flag("--explain", options.explain, "why this plan, and why not the others");
  app.add_option("--emit", options.emit, "stop there and print it")
      ->check(CLI::IsMember({"ir", "training-ir", "plan", "schedule", "csv", "source"}))
      ->type_name("ir|training-ir|plan|schedule|csv|source")
      ->excludes(explain);
  app.add_flag(
      "--debug-nan", options.debugNan,
      "programs that look at every result, which takes time, and stop with 76 at the first that is not finite, by the "
      "name of its ONNX node");
  app.add_option("--diagnostics", diagnostics, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("text|json");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }

  options.lateUpdates = updates == "late";
  options.threadsPerStage = threads == "auto" ? 0 : std::stoi(threads);
  if (devices->count() == 0 && options.clusterFile.empty() && !options.planner.stageReplicas.empty())
    options.devices = std::accumulate(options.planner.stageReplicas.begin(), options.planner.stageReplicas.end(), 0) /
                      std::max(1, stagesPerRank(schedule)); // of a file: as many devices as replicas

  Diagnostics diags(&std::cerr, diagnostics == "json" ? Diagnostics::Format::json : Diagnostics::Format::text);
  const bool chosen = static_cast<bool>(applySchedule(schedule, app, options, diags));
  if (!options.scheduleFile.empty() && devices->count() == 0 && options.clusterFile.empty()) options.devices = 0;
  const bool writes = (options.emit.empty() && !options.explain) || options.emit == "source";
  if (chosen && writes && options.output.empty())
    (void)(diags.error({}).exit(ExitCode::usage).help("add -o DIR") << "there is no output folder");
  else if (chosen && parseBucket(bucket, options.planner, diags) && model.apply(options, diags) &&
           parseWarmup(warmup, options.planner, diags))
    (void)compile(options, std::cout, diags);
  return exitCodeOf(diags);
}
