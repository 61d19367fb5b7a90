// pdc-profile MODEL.onnx -o profile.json: measures every fusion group of a model on this machine, in a generated
// program.
#include "../CompilerFlags.h"
#include "../StandardFlags.h"
#include "pdc/Driver/CommandLine.h"
#include "pdc/Plan/ScheduleName.h"

#include <iostream>

using namespace pdc;

int main(int argc, char** argv) {
  CLI::App app("Measures every fusion group of a model, for pdc --profile=FILE", "pdc-profile");
  addStandardFlags(app);
  CompileOptions options;
  options.version = PDC_VERSION;
  options.command = "pdc-profile";
  std::string file;
  ModelFlags model;
  model.addTo(app, options);
  model.addPrecisionTo(app);
  app.add_option("-o,--output", file, "profile to write")->type_name("profile.json")->required();
  app.add_option("--busy-cores", options.busyCores,
                 "measure on so many cores at once, as many as a run on this machine uses: they share memory")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1024}))
      ->capture_default_str();
  app.add_option("--schedule", options.planner.schedule,
                 "for this schedule: those that separate the halves of a backward need both, timed apart")
      ->type_name("1f1b|1f1b-flush|gpipe|2bw|zb-h1|zb-v|interleaved:V")
      ->check(CLI::Validator(
          [](const std::string& name) {
            return isScheduleName(name) ? std::string() : "'" + name + "' is none of " + scheduleNamesText();
          },
          "", "SCHEDULE"))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  Diagnostics diags(&std::cerr);
  if (model.apply(options, diags)) (void)measureProfile(options, file, std::cout, diags);
  return exitCodeOf(diags);
}
