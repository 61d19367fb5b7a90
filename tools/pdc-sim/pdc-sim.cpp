// pdc-sim PLAN: executes a plan's schedule with the plan's times, and says what a run would take and where it would
// wait.
#include "../StandardFlags.h"
#include "pdc/Predict/Warmup.h"
#include "pdc/Report/Report.h"
#include "pdc/Schedule/ScheduleFile.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdcrt/MappedFile.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <optional>

using namespace pdc;

namespace {

struct Flags {
  std::string plan, schedule, warmup, emit, times, trace, measured, metrics, report;
  std::int64_t microbatches = 0, minibatches = 0;
  bool json = false;
};

Expected<std::string> readText(const std::string& file, Diagnostics& diags) {
  std::string text;
  if (pdcrt::Status status = pdcrt::readText(file, text, pdcrt::Exit::invalid); !status)
    return diags.error({}) << status.message();
  return text;
}

/// "hide", "paper", or a number per stage.
Expected<std::vector<int>> warmupFor(const Plan& plan, const std::string& text, Diagnostics& diags) {
  if (text.empty() || text == "hide") return hideWarmup(plan);
  if (text == "paper") return paperWarmup(plan);
  std::vector<int> warmup;
  const char *at = text.data(), *end = at + text.size();
  while (true) {
    int value = -1;
    auto [next, code] = std::from_chars(at, end, value);
    if (code != std::errc() || value < 0 || value > 1 << 20 || (next != end && *next != ','))
      return diags.error({}).exit(ExitCode::usage).help("type --warmup=hide, --warmup=paper or --warmup=2,1,0")
             << "--warmup expects hide, paper, or forwards per stage, got '" << text << "'";
    warmup.push_back(value);
    if (next == end) break;
    at = next + 1;
  }
  if (warmup.size() != plan.stages.size())
    return diags.error({}).exit(ExitCode::usage).help("give one warm-up for each stage")
           << "the warm-up is for " << warmup.size() << " stages, the plan has " << plan.stages.size();
  return warmup;
}

/// The plan with another schedule, number of microbatches or warm-up, as the flags say.
Status change(Plan& plan, const Flags& flags, Diagnostics& diags) {
  bool changed = !flags.schedule.empty() && flags.schedule != plan.schedule.name();
  if (!flags.schedule.empty()) plan.schedule = flags.schedule;
  if (flags.microbatches > 0) {
    changed |= flags.microbatches != plan.microbatches;
    plan.microbatches = flags.microbatches;
  }
  if (changed)
    for (PlanStage& stage : plan.stages) stage.syncDelay = syncDelayFor(plan, stage.replicas);
  if (!changed && flags.warmup.empty()) return success;
  plan.file.clear(); // messages would point at what the file does not say
  Expected<std::vector<int>> warmup = warmupFor(plan, flags.warmup, diags);
  if (!warmup) return failure;
  for (std::size_t s = 0; s < warmup->size(); ++s) plan.stages[s].warmup = (*warmup)[s];
  return success;
}

/// The file that holds the schedule: the one that the flag names; or, beside a plan that was made for a file, the one
/// that pdc wrote. Empty: none does.
Expected<std::string> scheduleFileOf(const Plan& plan, const Flags& flags, Diagnostics& diags) {
  if (!flags.schedule.empty()) {
    Expected<bool> isFile = isScheduleFile(flags.schedule, diags);
    if (!isFile) return failure;
    if (*isFile && (flags.microbatches > 0 || !flags.warmup.empty()))
      return diags.error({}).exit(ExitCode::usage).help("leave out --microbatches and --warmup")
             << "the schedule in '" << flags.schedule << "' has its own microbatches and warm-up";
    return *isFile ? flags.schedule : std::string();
  }
  if (plan.scheduleFile.empty()) return std::string();
  const std::filesystem::path beside = std::filesystem::path(flags.plan).replace_filename("schedule.txt");
  if (std::filesystem::is_regular_file(beside)) return beside.string();
  return diags.error({flags.plan}).help("add --schedule=FILE")
         << "the schedule of this plan is in the file '" << plan.scheduleFile << "'";
}

/// The schedule that the flags ask for, or else the plan's, which then says so.
Expected<pdcrt::Schedule> scheduleOf(Plan& plan, const Flags& flags, Diagnostics& diags) {
  Expected<std::string> path = scheduleFileOf(plan, flags, diags);
  if (!path) return failure;
  if (path->empty()) {
    plan.scheduleFile.clear();
    if (!change(plan, flags, diags)) return failure;
    return scheduleFor(plan, diags);
  }
  Expected<ScheduleFile> file = readScheduleFile(*path, diags);
  if (!file) return failure;
  Expected<pdcrt::Schedule> schedule = scheduleFor(plan, *file, diags);
  if (schedule) adopt(plan, *file);
  return schedule;
}

/// What `file` says of a run of the plan's stages.
Expected<RunTrace> traceFrom(const Plan& plan, const std::string& file, std::string& text, Diagnostics& diags) {
  Expected<std::string> read = readText(file, diags);
  if (!read) return failure;
  text = std::move(*read);
  return readTrace(plan, text, file, diags);
}

Status write(const std::string& file, const std::string& text, Diagnostics& diags) {
  if (pdcrt::Status status = pdcrt::writeAtomically(file, text); !status) return diags.error({}) << status.message();
  return success;
}

Status run(Flags& flags, Diagnostics& diags) {
  Expected<std::string> text = readText(flags.plan, diags);
  if (!text) return failure;
  Expected<Plan> plan = planFromJson(*text, flags.plan, diags);
  if (!plan) return failure;
  Expected<pdcrt::Schedule> schedule = scheduleOf(*plan, flags, diags);
  if (!schedule) {
    Prediction refused;
    refused.problem = diags.all().empty() ? "" : diags.all().front().message;
    refused.deadlock = refused.problem.find("deadlock in a run of") != std::string::npos;
    if (flags.json && !refused.problem.empty()) std::cout << toJson(refused);
    return failure;
  }
  if (flags.emit == "schedule") {
    std::cout << pdcrt::toString(*schedule);
    return success;
  }
  if (flags.emit == "csv") {
    Expected<std::string> csv = torchCsv(*schedule, diags);
    if (!csv) return failure;
    std::cout << *csv;
    return success;
  }
  if (!flags.times.empty()) {
    std::string unused;
    Expected<RunTrace> times = traceFrom(*plan, flags.times, unused, diags);
    if (!times) return failure;
    takeTimes(*plan, *times);
  }
  bool trace = !flags.trace.empty() || !flags.measured.empty();
  Prediction prediction = predict(*plan, *schedule, flags.minibatches, trace);
  if (!prediction.problem.empty()) return diags.error({flags.plan}) << prediction.problem;
  std::string measured;
  std::optional<TraceComparison> comparison;
  MeasuredRun run;
  if (!flags.measured.empty()) {
    Expected<RunTrace> measuredTrace = traceFrom(*plan, flags.measured, measured, diags);
    if (!measuredTrace) return failure;
    run.trace = std::move(*measuredTrace);
    comparison = compare(*plan, prediction, run.trace);
  }
  if (!flags.metrics.empty()) {
    Expected<std::string> read = readText(flags.metrics, diags);
    if (!read) return failure;
    Expected<RunMetrics> metrics = readMetrics(*read, flags.metrics, diags);
    if (!metrics) return failure;
    run.metrics = std::move(*metrics);
  }
  if (flags.json) {
    std::cout << toJson(prediction, comparison ? &*comparison : nullptr);
  } else {
    print(std::cout, *plan, prediction);
    if (comparison) print(std::cout, *comparison);
  }
  if (!flags.report.empty() && !write(flags.report, reportHtml(*plan, *schedule, run), diags)) return failure;
  if (flags.trace.empty()) return success;
  return write(flags.trace, traceText(*plan, prediction, measured), diags);
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app("Simulates a plan: time per minibatch, bubble, memory, bytes", "pdc-sim");
  addStandardFlags(app);
  Flags flags;
  app.add_option("PLAN", flags.plan, "what pdc or pdc-plan wrote")->required()->type_name("plan.json");
  app.add_option("--schedule", flags.schedule,
                 "another schedule than the plan's\nOne of " + scheduleNamesText() + ", or a file.")
      ->type_name("1f1b|1f1b-flush|gpipe|2bw|zb-h1|zb-v|FILE");
  app.add_option("--microbatches", flags.microbatches, "per batch, where the schedule flushes")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->type_name("M");
  app.add_option("--minibatches", flags.minibatches, "length of the run (microbatches, where the schedule flushes)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->type_name("N");
  app.add_option("--warmup", flags.warmup, "forwards before the first backward, per stage: hide, paper, or N,N,…");
  app.add_option("--emit", flags.emit, "print the schedule instead: as pdc's text, or a batch as PyTorch's CSV")
      ->check(CLI::IsMember({"schedule", "csv"}))
      ->type_name("schedule|csv");
  app.add_option("--times", flags.times, "a trace of a run: its stages' times instead of the plan's")
      ->type_name("measured.json");
  app.add_option("--trace", flags.trace, "write the predicted timeline there, for Perfetto")->type_name("F.json");
  app.add_option("--compare", flags.measured, "a trace of a run: its errors, and both in one --trace")
      ->type_name("measured.json");
  app.add_option("--metrics", flags.metrics, "what a run wrote with --metrics: its loss curve, for --report")
      ->type_name("F.jsonl");
  app.add_option("--report", flags.report, "write the plan, its timeline and its memory there, for a browser")
      ->type_name("F.html");
  app.add_flag("--json", flags.json, "print one JSON object");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  Diagnostics diags(&std::cerr);
  (void)run(flags, diags);
  return static_cast<int>(diags.exitCode());
}
