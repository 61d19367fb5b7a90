// Where the time of the ranks goes, and how the prediction compares with a run.
#include "Sections.h"
#include "pdc/Predict/TimeParts.h"
#include "pdc/Support/Names.h"

#include <algorithm>
#include <cstdio>

using namespace pdc;

static std::string hundredthsText(std::int64_t hundredths) {
  char text[32];
  std::snprintf(text, sizeof text, "%lld.%02lld", static_cast<long long>(hundredths / 100),
                static_cast<long long>(hundredths % 100));
  return text;
}

static std::string rowOf(const char* kind, const std::string& rank, const std::string& hosts,
                         const pdcrt::RankUse& use) {
  std::string row =
      std::string("<tr") + kind + "><td class=\"l\">" + rank + "</td><td class=\"l\">" + escaped(hosts) + "</td>";
  std::int64_t sum = 0;
  for (std::int64_t share : hundredthsOf(use)) {
    row += "<td>" + hundredthsText(share) + "</td>";
    sum += share;
  }
  return row + "<td>" + hundredthsText(sum) + "</td></tr>\n";
}

static std::string barOf(const pdcrt::RankUse& use, double finishMs, double ranks) {
  constexpr double width = 1040, height = 26;
  double x = 0;
  std::string body = box(0, 0, width, height, "row");
  constexpr const char* patterns[] = {"", "hatch", "lines", "dots", "wait", "cross", ""};
  for (std::size_t i = 0; i < timeParts.size(); ++i) {
    double share = use.*timeParts[i].ms / (finishMs * ranks), length = share * width;
    if (length <= 0) continue;
    std::string kind = "p-" + std::to_string(i), hover = std::string(timeParts[i].name) + ": " + percentText(share);
    body += box(x, 0, length, height, kind.c_str(), hover);
    if (*patterns[i] && i != 4) body += box(x, 0, length, height, patterns[i], hover);
    if (i == 0 && length > 60) body += label(x + length / 2, 17, "n nf", "middle", percentText(share));
    x += length;
  }
  return picture(width, height, "where the time of all ranks goes", body);
}

std::string pdc::timesSection(const ReportData& data) {
  const Prediction& prediction = data.prediction;
  if (!(prediction.finishMs > 0)) return "";
  std::string body = "<div class=\"figure\">" +
                     legend({{"p-0", "computing"},
                             {"p-1 hatch", "slower, because ranks share cores"},
                             {"p-2 lines", "waiting for transfers under way"},
                             {"p-3 dots", "waiting for all-reduces under way"},
                             {"p-4", "fill"},
                             {"p-5 cross", "waiting for other ranks to start"},
                             {"p-6", "drain"}}) +
                     barOf(prediction.use(), prediction.finishMs, static_cast<double>(prediction.ranks.size())) +
                     "</div>\n";
  body += "<div class=\"scroll\"><table>\n<tr><th class=\"l\">rank</th><th class=\"l\">stage.replica</th>";
  for (const TimePart& part : timeParts) body += std::string("<th>") + part.brief + " %</th>";
  body += "<th>sum %</th></tr>\n";
  std::size_t shown = std::min(prediction.ranks.size(), most::rows);
  for (std::size_t r = 0; r < shown; ++r)
    body += rowOf("", std::to_string(r), prediction.ranks[r].hosts, prediction.ranks[r].use);
  if (prediction.ranks.size() > shown)
    body += "<tr><td class=\"l\" colspan=\"10\">" + andMore(prediction.ranks.size(), shown) + "</td></tr>\n";
  body += rowOf(" class=\"sum\"", "all", "", prediction.use()) + "</table></div>\n";
  return section("time", "Where the time goes",
                 "Of a predicted run of " + counted(prediction.minibatches, "minibatch") + ", which takes " +
                     escaped(timeText(prediction.finishMs)) + " with its fill and drain.",
                 body);
}

std::string pdc::comparisonSection(const ReportData& data) {
  const TraceComparison& comparison = data.comparison;
  if (!data.isMeasured() || comparison.rows.empty()) return "";
  auto msCells = [](double predicted, double measured) {
    return "<td>" + escaped(timeText(predicted)) + "</td><td>" + escaped(timeText(measured)) + "</td><td>" +
           (measured > 0 ? errorText(TraceComparison::error(predicted, measured)) : "") + "</td></tr>\n";
  };
  std::string body =
      "<div class=\"scroll\"><table>\n<tr><th class=\"l\">action</th><th>count</th><th>predicted</th><th>measured"
      "</th><th>error</th></tr>\n";
  std::size_t shown = std::min(comparison.rows.size(), most::rows);
  for (std::size_t i = 0; i < shown; ++i) {
    const TraceComparison::Row& row = comparison.rows[i];
    body += "<tr><td class=\"l\"><code>" + escaped(row.action) + "</code></td><td>" + std::to_string(row.count) +
            "</td>" + msCells(row.predictedMs, row.measuredMs);
  }
  if (comparison.rows.size() > shown)
    body += "<tr><td class=\"l\" colspan=\"5\">" + andMore(comparison.rows.size(), shown) + "</td></tr>\n";
  if (comparison.measuredPerMinibatchMs > 0)
    body += "<tr class=\"sum\"><td class=\"l\">per minibatch</td><td></td>" +
            msCells(comparison.predictedPerMinibatchMs, comparison.measuredPerMinibatchMs);
  body += "</table></div>\n<div class=\"scroll\" style=\"margin-top:18px\"><table>\n<tr><th class=\"l\">time of all "
          "ranks, in the middle half of the "
          "minibatches</th><th>predicted</th><th>measured</th></tr>\n";
  for (const SharePart& part : shareParts)
    body += std::string("<tr><td class=\"l\">") + part.name + "</td><td>" +
            percentText(comparison.predictedShares.*part.share) + "</td><td>" +
            percentText(comparison.measuredShares.*part.share) + "</td></tr>\n";
  body += "</table></div>\n";
  return section("comparison", "Prediction and measurement",
                 "Mean times of each kind of action, named as in schedule.txt: stage, then F forward, B backward, I "
                 "and W its halves, U "
                 "update, SF and SB transfers, AR all-reduce. Computations are off by " +
                     percentText(comparison.computationError()) + " on average, weighted by their time.",
                 body);
}
