// How experts were loaded in the last evaluation of a run.
#include "Sections.h"

#include <algorithm>

using namespace pdc;

/// A bar for each expert, from 0 to the share of the fullest one.
static std::string barsOf(const RunMetrics::Load& load) {
  constexpr double width = 320, height = 24;
  const std::size_t shown = std::min<std::size_t>(load.shares.size(), 128);
  const double fullest = *std::max_element(load.shares.begin(), load.shares.end());
  const double each = width / static_cast<double>(shown);
  std::string bars;
  for (std::size_t e = 0; e < shown && fullest > 0; ++e) {
    const double tall = height * std::max(0.0, load.shares[e]) / fullest;
    bars += box(each * static_cast<double>(e), height - tall, std::max(each - 1, each / 2), tall, "f",
                "expert " + std::to_string(e) + ": " + percentText(load.shares[e]));
  }
  return "<svg width=\"320\" height=\"24\" role=\"img\" aria-label=\"shares of the experts\">" + bars + "</svg>" +
         (load.shares.size() > shown ? " " + andMore(load.shares.size(), shown) : "");
}

std::string pdc::loadsSection(const ReportData& data) {
  const std::vector<RunMetrics::Load>& loads = data.run.metrics.loads;
  if (loads.empty()) return "";
  std::string body = "<div class=\"scroll\"><table>\n<tr><th class=\"l\">layer</th><th>experts</th><th>dropped</th><th>"
                     "fullest / mean</th><th class=\"l\">shares</th></tr>\n";
  const std::size_t shown = std::min(loads.size(), most::rows);
  for (std::size_t i = 0; i < shown; ++i) {
    const RunMetrics::Load& load = loads[i];
    body += "<tr><td class=\"l\"><code>" + escaped(shortened(load.layer, most::nameLength)) + "</code></td><td>" +
            std::to_string(load.shares.size()) + "</td><td>" + percentText(load.dropped) + "</td><td>" +
            number(load.fullest) + "</td><td class=\"l\">" + (load.shares.empty() ? "" : barsOf(load)) + "</td></tr>\n";
  }
  if (loads.size() > shown)
    body += "<tr><td class=\"l\" colspan=\"5\">" + andMore(loads.size(), shown) + "</td></tr>\n";
  return section("experts", "Experts",
                 "In the last evaluation: which share of the choices of experts found no slot, and how the others were "
                 "dealt out.",
                 body + "</table></div>\n");
}
