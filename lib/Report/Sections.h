// The sections of the report: each returns HTML, empty if there is nothing to say.
#pragma once

#include "Html.h"
#include "pdc/Report/Report.h"

#include <string>

namespace pdc {

/// What the sections share.
struct ReportData {
  const Plan& plan;
  const pdcrt::Schedule& schedule;
  const Prediction& prediction; ///< with its trace
  const MeasuredRun& run;
  TraceComparison comparison; ///< of what was measured, if anything was

  bool isMeasured() const { return !run.trace.empty(); }
};

/// What is drawn or listed at most.
namespace most {
constexpr std::size_t stages = 32, namesOfStage = 64, namesShown = 8, nameLength = 200, rows = 48, timelineRanks = 16,
                      timelineBoxes = 1600, memoryRanks = 48, courses = 8, points = 400;
}

std::string styleSheet();
/// Patterns and colours that all pictures use.
std::string sharedDefinitions();

std::string stagesSection(const ReportData& data);
std::string timelineSection(const ReportData& data);
std::string timesSection(const ReportData& data);
std::string memorySection(const ReportData& data);
std::string tensorsSection(const ReportData& data);
std::string alternativesSection(const ReportData& data);
std::string comparisonSection(const ReportData& data);
std::string lossSection(const ReportData& data);
std::string loadsSection(const ReportData& data);

/// Where the timeline of the beginning ends: the fill and two rounds of the schedule, as far as they can be drawn.
double beginningMs(const ReportData& data);

/// <section> with a heading, and a sentence that says how to read it (HTML).
std::string section(const char* id, const char* title, const std::string& sentence, const std::string& body);

/// "… and 244 more", or nothing.
std::string andMore(std::size_t all, std::size_t shown);

/// A rectangle in an SVG; `hover` is shown when a pointer rests on it.
std::string box(double x, double y, double width, double height, const char* kind, const std::string& hover = "");
/// Text in an SVG; `anchor`: start, middle, end.
std::string label(double x, double y, const char* kind, const char* anchor, const std::string& text);
/// <svg> that scales with the page, with a text for those who do not see it.
std::string picture(double width, double height, const std::string& description, const std::string& body);
/// A row of coloured squares with their meaning: pairs of class and text.
std::string legend(const std::vector<std::pair<const char*, const char*>>& entries);

} // namespace pdc
