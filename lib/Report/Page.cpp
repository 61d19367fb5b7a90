// The page as a whole: what is known is computed once, then each section says its part.
#include "Sections.h"
#include "pdc/Plan/PolicyText.h"
#include "pdc/Support/Names.h"
#include "pdc/Support/Units.h"

#include <algorithm>

using namespace pdc;

std::string pdc::section(const char* id, const char* title, const std::string& sentence, const std::string& body) {
  if (body.empty()) return "";
  return std::string("<section id=\"") + id + "\">\n<h2>" + title + "</h2>\n<p>" + sentence + "</p>\n" + body +
         "</section>\n";
}

std::string pdc::andMore(std::size_t all, std::size_t shown) {
  return all > shown ? "… and " + std::to_string(all - shown) + " more" : "";
}

std::string pdc::box(double x, double y, double width, double height, const char* kind, const std::string& hover) {
  std::string start = std::string("<rect class=\"") + kind + "\" x=\"" + number(x) + "\" y=\"" + number(y) +
                      "\" width=\"" + number(width) + "\" height=\"" + number(height) + "\"";
  return hover.empty() ? start + "/>" : start + "><title>" + escaped(hover) + "</title></rect>";
}

std::string pdc::label(double x, double y, const char* kind, const char* anchor, const std::string& text) {
  return std::string("<text class=\"") + kind + "\" x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" +
         anchor + "\">" + escaped(text) + "</text>";
}

std::string pdc::picture(double width, double height, const std::string& description, const std::string& body) {
  return "<svg viewBox=\"0 0 " + number(width) + " " + number(height) + "\" role=\"img\" aria-label=\"" +
         escaped(description) + "\">\n" + body + "</svg>\n";
}

std::string pdc::legend(const std::vector<std::pair<const char*, const char*>>& entries) {
  std::string result = "<div class=\"legend\">";
  for (const auto& [kind, text] : entries) {
    std::string kinds = kind; // "m-versions hatch": a colour, and a pattern over it
    std::size_t gap = kinds.find(' ');
    result += "<span><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\">" +
              box(0, 0, 14, 14, kinds.substr(0, gap).c_str()) +
              (gap == std::string::npos ? "" : box(0, 0, 14, 14, kinds.substr(gap + 1).c_str())) + "</svg>" + text +
              "</span>";
  }
  return result + "</div>\n";
}

static std::string tile(const std::string& value, const std::string& what, const std::string& more) {
  return "<div class=\"tile\"><b>" + escaped(value) + "</b><span>" + escaped(what) + "</span><span>" + escaped(more) +
         "</span></div>\n";
}

/// How far the plan may be from the best one.
static std::string certificate(const Plan& plan) {
  if (plan.optimal) return "proven to be the fastest plan of the cost model";
  if (plan.lowerBoundMs <= 0) return "";
  if (plan.gap() < 5e-4) return "within 0.1 % of the fastest plan of the cost model";
  return "at most " + percentText(plan.gap()) + " slower than the fastest plan of the cost model";
}

static std::string headerOf(const ReportData& data) {
  const Plan& plan = data.plan;
  std::string about = counted(static_cast<std::int64_t>(plan.stages.size()), "stage") + " on " +
                      counted(static_cast<std::int64_t>(plan.ranks.size()), "rank") + " · schedule " +
                      plan.schedule.name();
  if (!plan.schedule->hasBatches) about += ", weights " + nameOf(plan.weights) + ", sync " + nameOf(plan.sync);
  if (data.schedule.minibatchesPerUpdate > 0) about += ", " + counted(data.schedule.minibatchesPerUpdate, "microbatch");
  if (!plan.costSource.empty()) about += " · costs " + plan.costSource;
  if (std::string proof = certificate(plan); !proof.empty()) about += " · " + proof;
  return "<header>\n<h1>" + escaped(shortened(plan.model.empty() ? "Pipeline plan" : plan.model, most::nameLength)) +
         "</h1>\n<p>" + escaped(about) + "</p>\n";
}

static std::string tilesOf(const ReportData& data) {
  const Prediction& prediction = data.prediction;
  const char* unit = data.schedule.minibatchesPerUpdate > 0 ? "microbatch" : "minibatch";
  std::string result = "<div class=\"tiles\">\n";
  std::string measured = "predicted, in the steady state";
  if (data.isMeasured() && data.comparison.measuredPerMinibatchMs > 0)
    measured = "measured " + timeText(data.comparison.measuredPerMinibatchMs) + ", prediction " +
               errorText(TraceComparison::error(prediction.timePerMinibatchMs, data.comparison.measuredPerMinibatchMs));
  // A run too short for the steady state says little: the plan's own number stands for it.
  bool isSteady = prediction.minibatches >= 3 * pdcrt::minibatchesInFlight(data.schedule);
  double timeMs = isSteady ? prediction.timePerMinibatchMs : data.plan.timeMs;
  if (!isSteady && !data.isMeasured()) measured = "by the cost model";
  if (timeMs > 0) result += tile(timeText(timeMs), std::string("per ") + unit, measured);
  double alone = 0;
  for (const PlanStage& stage : data.plan.stages) alone += stage.computeMs() + stage.updateMs;
  if (timeMs > 0 && alone > 0) {
    const std::vector<PlanRank>& ranks = data.plan.ranks; // times of a stage are those of a member
    const int members = membersOf(data.plan, ranks.front());
    const bool alike =
        std::ranges::all_of(ranks, [&](const PlanRank& rank) { return membersOf(data.plan, rank) == members; });
    const std::string one = !alike        ? "its stages in turn"
                            : members > 1 ? "one team of " + std::to_string(members)
                                          : "one device";
    result += tile(timesText(alone / timeMs), "the rate of " + one,
                   "on " + (alike ? counted(std::ssize(ranks), members > 1 ? "team" : "device")
                                  : counted(processesOf(data.plan), "device")));
  }
  if (isSteady) {
    result += tile(percentText(prediction.bubbleFraction), "bubble", "idle time of all ranks");
    result += tile(percentText(prediction.exposedCommunicationFraction()), "exposed communication",
                   "waiting for what is under way");
  }
  std::size_t fullest = 0;
  for (std::size_t r = 1; r < prediction.ranks.size(); ++r)
    if (prediction.ranks[r].peakMemoryBytes > prediction.ranks[fullest].peakMemoryBytes) fullest = r;
  if (!prediction.ranks.empty()) {
    const RankPrediction& rank = prediction.ranks[fullest];
    std::string where = "rank " + std::to_string(fullest);
    if (rank.memoryLimitBytes > 0) where += ", limit " + sizeText(rank.memoryLimitBytes);
    result += tile(sizeText(rank.peakMemoryBytes), "largest memory", where);
  }
  if (!data.run.metrics.evaluations.empty()) {
    const RunMetrics::Evaluation& last = data.run.metrics.evaluations.back();
    std::string value = last.metric.empty()                                  ? ""
                        : last.metric == "accuracy" || last.metric == "top5" ? percentText(last.value)
                                                                             : number(last.value);
    if (!value.empty()) result += tile(value, "test " + shortened(last.metric, 32), "after the run");
  }
  return result + "</div>\n</header>\n";
}

/// Minibatches that show the fill and the steady state, as far as a million actions go.
static std::int64_t minibatchesFor(const pdcrt::Schedule& schedule) {
  constexpr double mostActions = 1e6; // a fraction of a second
  double actions = 1;
  for (const pdcrt::RankList& rank : schedule.ranks)
    actions += static_cast<double>(rank.repeat.size()) / static_cast<double>(std::max<std::int64_t>(1, rank.step));
  std::int64_t period = std::min<std::int64_t>(pdcrt::periodMinibatches(schedule), 1000);
  std::int64_t enough = std::max<std::int64_t>(8 * pdcrt::minibatchesInFlight(schedule) + 4 * period, 64);
  enough = std::min(enough, std::max<std::int64_t>(static_cast<std::int64_t>(mostActions / actions), 4));
  return std::max<std::int64_t>(1, enough / period) * period;
}

std::string pdc::reportHtml(const Plan& plan, const pdcrt::Schedule& schedule, const MeasuredRun& run) {
  Prediction prediction = predict(plan, schedule, minibatchesFor(schedule), true);
  ReportData data{plan, schedule, prediction, run, {}};
  if (data.isMeasured()) data.comparison = compare(plan, prediction, run.trace);
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<title>" +
      escaped(shortened(plan.model, most::nameLength)) + " · pdc report</title>\n<style>" + styleSheet() +
      "</style>\n</head>\n<body>\n" + sharedDefinitions() + "<main>\n";
  page += headerOf(data) + tilesOf(data);
  page += stagesSection(data) + timelineSection(data) + lossSection(data) + loadsSection(data) +
          comparisonSection(data) + timesSection(data) + memorySection(data) + tensorsSection(data) +
          alternativesSection(data);
  page += "<footer>Written by pdc. " +
          std::string(plan.modelHash.empty() ? "" : "Model hash " + escaped(plan.modelHash) + ". ") +
          "The prediction is of " + counted(prediction.minibatches, "minibatch") +
          "; <code>pdc-sim plan.json</code> tells more.</footer>\n</main>\n</body>\n</html>\n";
  return page;
}
