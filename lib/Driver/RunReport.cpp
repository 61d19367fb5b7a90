#include "RunReport.h"

#include "OutputFolder.h"
#include "pdc/Report/Report.h"
#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdcrt/MappedFile.h"

#include <filesystem>

using namespace pdc;
namespace fs = std::filesystem;

static bool isReadable(const std::string& file) {
  constexpr std::uintmax_t most = 64 << 20;
  std::error_code error;
  return fs::is_regular_file(file, error) && fs::file_size(file, error) <= most && !error;
}

static Expected<MeasuredRun> readRun(const Plan& plan, const std::string& traceFile, const std::string& metricsFile,
                                     Diagnostics& diags) {
  MeasuredRun run;
  if (isReadable(traceFile)) {
    Expected<std::string> text = readFile(traceFile, diags);
    if (!text) return failure;
    Expected<RunTrace> trace = readTrace(plan, *text, traceFile, diags);
    if (!trace) return failure;
    run.trace = std::move(*trace);
  }
  if (isReadable(metricsFile)) {
    Expected<std::string> text = readFile(metricsFile, diags);
    if (!text) return failure;
    Expected<RunMetrics> metrics = readMetrics(*text, metricsFile, diags);
    if (!metrics) return failure;
    run.metrics = std::move(*metrics);
  }
  return run;
}

Status pdc::rewriteReport(const std::string& folder, const Plan& plan, const std::string& traceFile,
                          const std::string& metricsFile, Diagnostics& diags) {
  const std::string scheduleFile = folder + "/schedule.txt", reportFile = folder + "/report.html";
  Expected<std::string> text = readFile(scheduleFile, diags);
  if (!text) return failure;
  pdcrt::Schedule schedule;
  std::string error;
  if (!pdcrt::parseSchedule(*text, schedule, error) || !pdcrt::isWellFormed(schedule, error))
    return diags.error({scheduleFile}) << error;
  if (schedule.stages.size() != plan.stages.size() || schedule.ranks.size() != plan.ranks.size())
    return diags.error({scheduleFile}) << "expected a schedule for the plan's " << plan.stages.size() << " stages on "
                                       << plan.ranks.size() << " ranks, got " << schedule.stages.size() << " on "
                                       << schedule.ranks.size();
  Expected<MeasuredRun> run = readRun(plan, traceFile, metricsFile, diags);
  if (!run) return failure;
  if (pdcrt::Status status = pdcrt::writeAtomically(reportFile, reportHtml(plan, schedule, *run)); !status)
    return pdc::reportFile(status, reportFile, diags);
  return success;
}
