// pdc MODEL.onnx -o DIR: compiles a model to a pipeline of stage programs. `pdc inspect MODEL.onnx` describes a model.
#include "../CompilerFlags.h"
#include "../ConfigFile.h"
#include "../StandardFlags.h"
#include "PlanFlags.h"
#include "pdc/Driver/CommandLine.h"
#include "pdc/Ops/AllOps.h"
#include "pdc/Support/DiagnosticsBuilder.h"

#include <iostream>
#include <optional>
#include <vector>

using namespace pdc;

namespace {

/// The command as it stands in generated files: without the output folder, which says nothing about the program.
std::string commandText(const std::vector<std::string>& words) {
  std::string text = "pdc";
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "-o" || word == "--output")
      ++i;
    else if (!word.starts_with("--output=") && !(word.starts_with("-o") && word.size() > 2))
      text += " " + shellWord(word);
  }
  return text;
}

void addOutputFlags(CLI::App& app, CompileOptions& options, std::string& diagnostics) {
  app.add_option("--metric", options.metric, "what evaluation reports\nDefault: what fits the loss.")
      ->check([](const std::string& text) {
        const bool known = CLI::IsMember({"accuracy", "top5", "perplexity", "mse", "none"})(text).empty();
        return known || !pdcrt::outputOfMetric(text).empty()
                   ? std::string()
                   : "'" + text + "' is none of accuracy, top5, perplexity, mse, none, output:NAME";
      })
      ->type_name("accuracy|top5|perplexity|mse|none|output:NAME")
      ->group("Programs");
  app.add_flag("--debug-nan", options.debugNan,
               "stop at the first result that is not finite\n"
               "The programs look at every result, which takes time, and end with 76 and the name of its ONNX node.")
      ->group("Programs");
  app.option_defaults()->group("Output");
  app.add_option("-o,--output", options.output, "folder to write, or file of --emit=annotated-onnx")
      ->type_name("DIR|FILE");
  app.add_option("--emit", options.emit,
                 "stop there and print it\nannotated-onnx: write a copy of the model with the plan in it, as ONNX's "
                 "annotations for several devices, to the file of -o. docs/Annotations.md describes it.")
      ->check(CLI::IsMember({"ir", "training-ir", "split-ir", "plan", "schedule", "csv", "annotated-onnx", "source"}))
      ->type_name("ir|training-ir|split-ir|plan|schedule|csv|annotated-onnx|source")
      ->excludes("--explain");
  app.add_option("--diagnostics", diagnostics, "form of messages")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("text|json")
      ->capture_default_str();
  app.option_defaults()->group("Options");
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

  CLI::App app("Compiles an ONNX model to one C++ or CUDA program per pipeline stage", "pdc");
  addStandardFlags(app);
  CompileOptions options;
  options.version = PDC_VERSION;
  options.planner.recompute = RecomputePolicy::automatic;
  ModelFlags model;
  model.addTo(app, options);
  PlanFlags plan;
  plan.addTo(app, options);
  model.addProgramsTo(app, options, true);
  std::string diagnostics = "text";
  addOutputFlags(app, options, diagnostics);
  addConfigFlag(app);
  app.footer("man pdc describes every flag in full; docs/README.md leads to the page for a task.\n"
             "pdc inspect MODEL.onnx says what is in a model.");
  std::vector<std::string> words;
  if (const std::optional<int> code = parsed(app, argc, argv, &words)) return *code;

  options.command = commandText(words);
  Diagnostics diags(&std::cerr, diagnostics == "json" ? Diagnostics::Format::json : Diagnostics::Format::text);
  const bool writes = (options.emit.empty() && !options.explain) || options.emit == "source";
  if (options.emit == "annotated-onnx" && options.output.empty())
    (void)(diags.error({}).exit(ExitCode::usage).help("add -o FILE.onnx")
           << "there is no file for the annotated model");
  else if (plan.apply(app, options, diags) && writes && options.output.empty())
    (void)(diags.error({}).exit(ExitCode::usage).help("add -o DIR") << "there is no output folder");
  else if (exitCodeOf(diags) == 0 && model.apply(options, diags))
    (void)compile(options, std::cout, diags);
  return exitCodeOf(diags);
}
