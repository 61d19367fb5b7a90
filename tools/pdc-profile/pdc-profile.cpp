// pdc-profile MODEL.onnx -o profile.json: measures every fusion group of a model on this machine, in a generated
// program.
#include "../CompilerFlags.h"
#include "../ConfigFile.h"
#include "../StandardFlags.h"
#include "pdc/Driver/CommandLine.h"

#include <iostream>
#include <optional>

using namespace pdc;

int main(int argc, char** argv) {
  CLI::App app("Measures every fusion group of a model, for pdc --profile=FILE", "pdc-profile");
  addStandardFlags(app);
  CompileOptions options;
  options.version = PDC_VERSION;
  options.command = "pdc-profile";
  std::string file, schedule = options.planner.schedule.name();
  ModelFlags model;
  model.addTo(app, options);
  model.addProgramsTo(app, options, true);
  app.add_option("-o,--output", file, "profile to write")->type_name("profile.json")->required();
  app.add_option("--busy-cores", options.busyCores,
                 "cores that measure at the same time\nAs many as a run on this machine uses: they share memory.")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1024}))
      ->capture_default_str();
  app.add_option("--schedule", schedule,
                 "schedule of the runs\nSchedules that separate the halves of a backward need both, timed apart.")
      ->type_name("1f1b|1f1b-flush|gpipe|2bw|zb-h1|zb-v|interleaved:V|bfs:V")
      ->check(CLI::Validator(
          [](const std::string& name) {
            return ScheduleKind::named(name) ? std::string() : "'" + name + "' is none of " + scheduleNamesText();
          },
          "", "SCHEDULE"))
      ->capture_default_str();
  addConfigFlag(app);
  if (const std::optional<int> code = parsed(app, argc, argv)) return *code;
  options.planner.schedule = schedule;
  Diagnostics diags(&std::cerr);
  if (model.apply(options, diags)) (void)measureProfile(options, file, std::cout, diags);
  return exitCodeOf(diags);
}
