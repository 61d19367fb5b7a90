// pdc-opt: runs passes on textual IR, for tests.
//
//   pdc-opt model.pdir --canonicalize --split-stages=stages=0,0,1
#include "../StandardFlags.h"
#include "Documentation.h"
#include "ExpectedDiagnostics.h"

#include "pdc/IR/Text.h"
#include "pdc/IR/Verifier.h"
#include "pdc/Ops/AllOps.h"
#include "pdc/Pass/Pass.h"
#include "pdc/Stage/StagePasses.h"
#include "pdc/Transforms/Transforms.h"

#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <sstream>

using namespace pdc;

namespace {
struct Options {
  std::string file = "-";
  std::vector<PipelineStep> steps;
  bool splitInput = false;
  bool verifyDiagnostics = false;
  PipelineOptions pipeline;
};

/// A piece of the input that is a module of its own.
struct Section {
  std::string text;
  int firstLine = 1;
};
} // namespace

/// "--fuse=max=4,other=x" as a step. A part without '=' continues the value before it: --split-stages=stages=0,0,1.
static PipelineStep parseStep(const std::string& argument) {
  const std::size_t begin = argument.find_first_not_of('-'), equals = argument.find('=');
  PipelineStep step{.argument = argument.substr(begin, equals == std::string::npos ? equals : equals - begin)};
  if (equals == std::string::npos) return step;
  std::istringstream parts(argument.substr(equals + 1));
  std::string part, last;
  while (std::getline(parts, part, ',')) {
    const std::size_t middle = part.find('=');
    if (middle == std::string::npos && !last.empty()) {
      step.options[last] += "," + part;
      continue;
    }
    last = part.substr(0, middle);
    step.options[last] = middle == std::string::npos ? "" : part.substr(middle + 1);
  }
  return step;
}

/// The input, whole or split at lines `// -----`, each section with the number of its first line.
static std::vector<Section> sectionsOf(const std::string& text, bool split) {
  std::vector<Section> sections(1);
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number)
    if (split && line.starts_with("// -----"))
      sections.push_back({.firstLine = number + 1});
    else
      sections.back().text += line + "\n";
  return sections;
}

/// Parses, runs the passes, prints; diagnostics have the line numbers of the whole file.
static bool runSection(const Section& section, const Options& options, const OpRegistry& ops,
                       const PassRegistry& passes, Diagnostics& diags) {
  const std::string padded = std::string(static_cast<std::size_t>(section.firstLine - 1), '\n') + section.text;
  Expected<std::unique_ptr<Module>> module = parseModule(padded, options.file, ops, diags);
  if (!module || !verify(**module, diags)) return false;
  if (!runPipeline(options.steps, passes, **module, ops, diags, options.pipeline)) return false;
  std::cout << print(**module);
  return true;
}

static int run(const Options& options, const OpRegistry& ops, const PassRegistry& passes) {
  std::ostringstream text;
  if (options.file == "-") {
    text << std::cin.rdbuf();
  } else {
    std::ifstream file(options.file);
    if (!file) {
      std::cerr << options.file << ": error: cannot be read\n";
      return static_cast<int>(ExitCode::invalidInput);
    }
    text << file.rdbuf();
  }
  ExitCode exitCode = ExitCode::done;
  bool first = true;
  for (const Section& section : sectionsOf(text.str(), options.splitInput)) {
    if (!first) std::cout << "// -----\n";
    first = false;
    Diagnostics diags(options.verifyDiagnostics ? nullptr : &std::cerr);
    const bool ok = runSection(section, options, ops, passes, diags);
    if (options.verifyDiagnostics) {
      if (!checkExpectedDiagnostics(section.text, section.firstLine, diags, std::cerr))
        exitCode = ExitCode::invalidInput;
    } else if (!ok && exitCode == ExitCode::done) {
      exitCode = diags.exitCode();
    }
  }
  return static_cast<int>(exitCode);
}

int main(int argc, char** argv) {
  OpRegistry ops;
  registerAllOps(ops);
  PassRegistry passes;
  registerTransforms(passes);
  registerStagePasses(passes);

  Options options;
  bool opDocs = false, passDocs = false;
  CLI::App app("Runs passes on the textual IR of pdc.", "pdc-opt");
  addStandardFlags(app);
  app.add_option("file", options.file, "input (-: standard input)");
  app.add_flag("--split-input-file", options.splitInput, "the input holds several modules, between lines // -----");
  app.add_flag("--verify-diagnostics", options.verifyDiagnostics, "compare errors with // expected-error@+1 {{…}}");
  app.add_option("--print-ir-after", options.pipeline.printAfter, "print the module after PASS, or after all")
      ->delimiter(',')
      ->take_all()
      ->expected(1);
  app.add_flag("--time-passes", options.pipeline.timePasses, "print how long each pass took");
  app.add_flag("--print-op-docs", opDocs, "print docs/Ops.md");
  app.add_flag("--print-pass-docs", passDocs, "print docs/Passes.md");
  app.allow_extras();
  std::string footer = "Passes run in the order in which they are given, with options as --pass=name=value,…:\n";
  for (const PassInfo& pass : passes.all()) footer += "  --" + pass.argument + "\n      " + pass.summary + "\n";
  app.footer(footer);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  for (const std::string& argument : app.remaining()) {
    const PipelineStep step = parseStep(argument);
    if (!argument.starts_with("--") || !passes.find(step.argument)) {
      std::cerr << "error: '" << argument << "' is no option and no pass\nhelp: pdc-opt --help lists them\n";
      return static_cast<int>(ExitCode::usage);
    }
    options.steps.push_back(step);
  }
  options.pipeline.out = &std::cerr;
  if (opDocs) printOpDocumentation(ops, std::cout);
  if (passDocs) printPassDocumentation(passes, std::cout);
  if (opDocs || passDocs) return 0;
  return run(options, ops, passes);
}
